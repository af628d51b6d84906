"""The console's one way to change something: a form's POST becomes an operation (SEC-2)."""

from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from gateway.auth_roles import require_role, role_of
from gateway.fleet_file.document import TEXT_LIMIT_BYTES
from gateway.fleet_file.named import instant_us
from gateway.fleet_file.positions import BadToml, parse
from gateway.operations import anywhere
from gateway.operations.base import Actor, Done, Operation, Refused
from gateway.operations.registry import OPERATIONS, read
from ledger.errors import LedgerError
from ledger.money import parse_scaled

FIELDS_LIMIT = 200
_OWN = ("csrfmiddlewaretoken", "next")
REFUSED_STATUS = 422
_PLACES = {"units": 12, "ms": 3}  # decimal places of a form's amount in the field's own unit


@require_role("operator")
@require_POST
def act(request: HttpRequest, operation: str) -> HttpResponse:
    """Perform it as the logged-in operator, then go back; a refusal or a new key is a page."""
    return answered(request, performed(request, operation))


def answered(request: HttpRequest, found: Done | Refused) -> HttpResponse:
    """Back to where the form was, with what was done; or a page of what has to be read."""
    back = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        back = "/"
    if isinstance(found, Done) and found.shown_once is None:
        messages.success(request, found.summary)
        return HttpResponseRedirect(back)
    context = {"result": found, "refused": isinstance(found, Refused), "back": back}
    return render(
        request, "acted.html", context, status=REFUSED_STATUS if context["refused"] else 200
    )


def performed(request: HttpRequest, name: str) -> Done | Refused:
    """Do the operation of a form, wherever the ledger is owned; or say why not."""
    try:
        body = msgspec.json.encode(tree_of(request.POST, name))
    except ValueError as problem:
        return Refused(code="INVALID_REQUEST", message=str(problem))
    operation = read(name, body)
    return operation if isinstance(operation, Refused) else done(request, operation)


def done(request: HttpRequest, operation: Operation) -> Done | Refused:
    """Do an operation as the logged-in operator, wherever the ledger is owned; or say why not."""
    try:
        return anywhere.perform(settings.WEIGHBRIDGE_DB, operation, actor_of(request))
    except LedgerError as problem:
        return Refused(code="LEDGER_UNAVAILABLE", message=str(problem))


def actor_of(request: HttpRequest) -> Actor:
    """The logged-in operator, as what is done is attributed."""
    user = request.user
    role = role_of(user)
    if not isinstance(user, User) or role is None:
        raise PermissionError("the view's guard let nobody in")
    return Actor(name=user.get_username(), role=role, via="console")


def tree_of(form: QueryDict, name: str) -> dict[str, Any]:
    """A form's fields as the operation's: what is left empty is left out.

    `quota.time_zone` is a field within `quota`; of a name ending in `[]` every value is taken; one
    ending in `:json` is JSON text, in `:toml` TOML; in `:units` an amount that becomes pico units,
    in `:ms` milliseconds that become µs. Numbers come as text and are read as the operation
    declares. ValueError, naming the field, for what can't be read.
    """
    kind = OPERATIONS.get(name)
    if len(form) > FIELDS_LIMIT:
        raise ValueError(f"a form has at most {FIELDS_LIMIT} fields")
    tree: dict[str, Any] = {}
    for key, values in form.lists():
        given = [str(value).strip() for value in values if str(value).strip()]
        if key in _OWN or not given:
            continue
        *parents, leaf = key.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise ValueError(f"{parent} is a field with fields, and came as one without")
        place[leaf.removesuffix("[]").partition(":")[0]] = _value(key, given)
    if kind is None:
        return tree
    try:
        loose = msgspec.convert(tree, type=kind, strict=False)
    except msgspec.ValidationError as problem:
        raise ValueError(f"the form can't be read: {problem}") from problem
    found: dict[str, Any] = msgspec.to_builtins(loose)
    return found


def _value(key: str, given: list[str]) -> Any:
    if key.endswith("[]"):
        return given
    name, _, kind = key.partition(":")
    if not kind:
        return given[-1]
    if kind in _PLACES:
        try:
            return parse_scaled(given[-1], _PLACES[kind])
        except ValueError as problem:
            raise ValueError(f"{name.removesuffix('_pico')}: {problem}") from problem
    try:
        return _toml(given[-1]) if kind == "toml" else msgspec.json.decode(given[-1])
    except msgspec.DecodeError as problem:
        raise ValueError(f"{name} is no JSON: {problem}") from problem
    except BadToml as problem:
        raise ValueError(f"{name} is no TOML: {problem}") from problem
    except RecursionError as problem:
        raise ValueError(f"{name} is nested too deeply") from problem


def _toml(text: str) -> Any:
    """The tree of a TOML text, its moments in microseconds."""
    if len(text.encode()) > TEXT_LIMIT_BYTES:
        raise ValueError(f"the text is longer than {TEXT_LIMIT_BYTES:,} bytes")
    return _in_microseconds(parse(text)[0])


def _in_microseconds(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _in_microseconds(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_in_microseconds(value) for value in tree]
    if isinstance(tree, datetime):
        if tree.tzinfo is None:
            raise ValueError(f"{tree.isoformat()} has no zone: end it in Z or an offset")
        return instant_us(tree)
    return tree
