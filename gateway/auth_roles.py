"""Operators' roles: viewer reads, operator acts, admin also manages people and settings (SEC-2).

Each role is a Django group of that name; a higher role may do all that a lower one may. The groups
are made after every migrate, so a fresh console file has them.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.http import url_has_allowed_host_and_scheme

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")  # lowest first

View = Callable[..., HttpResponseBase]


def ensure_groups(using: str = "default", **kwargs: Any) -> None:
    """Make the group of each role where it is missing; a handler of post_migrate."""
    if using == "default":
        for role in ROLES:
            Group.objects.using(using).get_or_create(name=role)


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    """The highest role of a user; None for someone without one. A superuser is an admin."""
    if not isinstance(user, User) or not user.is_active:
        return None
    if user.is_superuser:
        return "admin"
    names = set(user.groups.values_list("name", flat=True))
    return next((role for role in reversed(ROLES) if role in names), None)


def includes(held: Role | None, needed: Role) -> bool:
    """Whether who holds `held` may do what needs `needed`."""
    return held is not None and ROLES.index(held) >= ROLES.index(needed)


def require_role(needed: Role) -> Callable[[View], View]:
    """A view's guard: to the login page without one, 403 without the role.

    The guarded view carries `required_role`, so that a test can list what every URL needs; the
    request carries `role`, so that a template need not ask the database again.
    """

    def guard(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_login(request)
            held = role_of(request.user)
            if not includes(held, needed):
                raise PermissionDenied(
                    f"This page needs the role {needed}; you have {held or 'none'}. "
                    "Ask an admin to change your role."
                )
            request.role = held  # type: ignore[attr-defined]  # read by the templates
            return view(request, *args, **kwargs)

        guarded.required_role = needed  # type: ignore[attr-defined]  # read by the URL test
        return guarded

    return guard


def _to_login(request: HttpRequest) -> HttpResponse:
    """To the login page and back; a part leads there as its whole page, which has its address.

    A form that came too late leads back to the page that it stood on, and the login says so: what
    was sent is gone, for a login must not send it.
    """
    to_login = redirect_to_login(request.get_full_path())
    if request.method == "POST":
        back = request.POST.get("next", "") or request.path
        if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
            back = "/"
        to_login = redirect_to_login(back)
        to_login["Location"] += "&unsent=1"
    if request.headers.get("HX-Request") == "true":
        response = HttpResponse(status=401)
        response["HX-Redirect"] = to_login.url
        return response
    return to_login
