"""How this browser shows the console: theme, time zone, keyboard. Kept in cookies, set by forms."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST

from gateway.auth_roles import require_role
from gateway.pages import zone

THEMES = ("system", "light", "dark")
THEME_COOKIE, KEYS_COOKIE = "theme", "keys"
COOKIE_AGE_SECONDS = 365 * 24 * 3600


def theme_of(request: HttpRequest) -> str:
    """The theme that this browser chose; `system` where it chose none or something unknown."""
    chosen = request.COOKIES.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else "system"


def keys_of(request: HttpRequest) -> str:
    """`on`, or `off` where this browser turned the shortcuts of one key off (WCAG 2.1.4)."""
    return "off" if request.COOKIES.get(KEYS_COOKIE) == "off" else "on"


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Keep the choice and go back to where the form was; another host is never gone back to."""
    theme = request.POST.get("theme", "")
    response = HttpResponseRedirect(_back(request, request.POST.get("next", "")))
    if theme in THEMES:
        _keep(request, response, THEME_COOKIE, theme)
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    """The form of zone and keyboard; a POST keeps both and goes back, or says what is wrong."""
    asked = request.POST if request.method == "POST" else request.GET
    back = _back(request, asked.get("next", ""))
    context = {
        "back": back,
        "zone_name": zone.kept(request).name,
        "zones": zone.ZONES,
        "keys_are": keys_of(request),
        "theme": theme_of(request),
        "themes": THEMES,
    }
    if request.method != "POST":
        return render(request, "display/index.html", context)
    chosen = zone.read(request.POST.get("zone", "") or "UTC")
    if chosen is None:
        problem = "zone: write UTC, an offset such as +05:30, or a name such as Asia/Kolkata"
        return render(request, "display/index.html", context | {"problem": problem}, status=422)
    response = HttpResponseRedirect(back)
    _keep(request, response, zone.COOKIE, chosen.name)
    _keep(request, response, KEYS_COOKIE, "on" if request.POST.get("keys") == "on" else "off")
    return response


def _back(request: HttpRequest, url: str) -> str:
    own = url_has_allowed_host_and_scheme(url, {request.get_host()}, request.is_secure())
    return url if own else "/"


def _keep(request: HttpRequest, response: HttpResponse, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=COOKIE_AGE_SECONDS,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )
