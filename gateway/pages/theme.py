"""Light, dark, or as the system says: kept in a cookie, switched by a form, no script needed."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

THEMES = ("system", "light", "dark")
COOKIE = "theme"
COOKIE_AGE_SECONDS = 365 * 24 * 3600


def theme_of(request: HttpRequest) -> str:
    """The theme that this browser chose; `system` where it chose none or something unknown."""
    chosen = request.COOKIES.get(COOKIE, "")
    return chosen if chosen in THEMES else "system"


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Keep the choice and go back to where the form was; another host is never gone back to."""
    theme = request.POST.get("theme", "")
    back = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        back = "/"
    response = HttpResponseRedirect(back)
    if theme in THEMES:
        response.set_cookie(
            COOKIE,
            theme,
            max_age=COOKIE_AGE_SECONDS,
            httponly=True,
            samesite="Lax",
            secure=request.is_secure(),
        )
    return response
