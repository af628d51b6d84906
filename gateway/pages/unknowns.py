"""Unknowns: which attempts may have run, since when, and how much money hangs on each."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.shell import clock, ledger
from gateway.unknown_report import unknowns_body

SHOWN_LIMIT = 200


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    body = unknowns_body(ledger(), clock.now_us())
    shown = body["unknowns"][:SHOWN_LIMIT]
    return render(
        request,
        "unknowns/index.html",
        {"body": body, "shown": shown, "more": body["open"] - len(shown)},
    )
