"""Health: what is wrong with the ledger and what to do; the audit on demand; the checkpoint."""

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway import live
from gateway.auth_roles import require_role
from gateway.pages.health_view import CHIPS, FINDINGS_SHOWN, run_audit, shown, wrong
from gateway.pages.shell import clock, ledger, page
from ledger.chain import checkpoint_of
from ledger.health import health
from ledger.reading import read_head


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    seen = live.look(settings.WEIGHBRIDGE_DB)
    now_us = clock.now_us()
    found = health(
        settings.WEIGHBRIDGE_DB, now_us=now_us, live=None if seen is None else seen.writer
    )
    context: dict[str, object] = {"found": found, "chip": CHIPS[found.state], "now_us": now_us}
    context |= {"wrong": wrong(found), "signals": shown(found), "live": seen}
    if request.GET.get("audit") == "quick":
        ran = run_audit(settings.WEIGHBRIDGE_DB)
        context |= {"asked": True, "ran": ran, "findings_shown": FINDINGS_SHOWN}
    return page(request, "health", "_signals.html", context)


@require_safe
@require_role("viewer")
def checkpoint(request: HttpRequest) -> HttpResponse:
    """The chain's size and root now: kept elsewhere, it proves later that nothing was changed."""
    head = read_head(ledger())
    if head is None:
        said = "The ledger's chain_head row is gone; run verify_ledger.\n"
        return HttpResponse(said, status=503, content_type="text/plain")
    text = msgspec.json.encode(checkpoint_of(head)) + b"\n"
    response = HttpResponse(text, content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="checkpoint-{head.size}.json"'
    return response
