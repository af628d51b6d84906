"""What the pages share: the ledger they read, and one URL for the page and its partial."""

import sqlite3
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.cache import patch_vary_headers

from gateway.clock import SystemClock
from ledger.reading import reader

clock = SystemClock()


def ledger() -> sqlite3.Connection:
    """This thread's read-only connection to the ledger."""
    return reader(settings.WEIGHBRIDGE_DB)


def page(request: HttpRequest, name: str, partial: str, context: dict[str, Any]) -> HttpResponse:
    """The whole page `<name>/index.html`, or its `partial` alone where HTMX asks for that.

    With status 400 where the context has a `problem`: the question can't be answered as asked.
    HTMX restoring its history asks for the whole page. Caches keep the two apart.
    """
    asked = request.headers
    only_part = asked.get("HX-Request") == "true" and "HX-History-Restore-Request" not in asked
    template = f"{name}/{partial}" if only_part else f"{name}/index.html"
    status = 400 if context.get("problem") else 200
    response = render(request, template, context, status=status)
    patch_vary_headers(response, ["HX-Request", "Cookie"])
    if only_part:
        response["HX-Push-Url"] = _short(request)
    return response


def answered(
    answer: Callable[[HttpRequest], dict[str, object]], request: HttpRequest
) -> dict[str, object]:
    """What `answer` gives for a page's context; the ValueError it raises is the `problem` there."""
    try:
        return answer(request)
    except ValueError as problem:
        return {"problem": str(problem)}


def _short(request: HttpRequest) -> str:
    """The URL without the form's empty fields: what the address bar shows and a link carries."""
    query = QueryDict(mutable=True)
    for name, values in request.GET.lists():
        query.setlist(name, [value for value in values if value])
    text = query.urlencode()
    return f"{request.path}?{text}" if text else request.path
