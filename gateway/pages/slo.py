"""SLO burn: who waits too long, how fast that uses up the budget, and what follows from it."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.shell import clock, ledger, page
from gateway.pages.slo_view import burns, card
from ledger.queries.means import means_over_all
from ledger.queries.slo import slo_reports
from ledger.slo import HOUR_US


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    connection, now_us = ledger(), clock.now_us()
    reports = slo_reports(connection, now_us)
    burning = any(map(burns, reports))
    means = means_over_all(connection, now_us - HOUR_US, now_us) if burning else {}
    cards = [card(report, means) for report in reports]
    worst = sorted(cards, key=lambda each: {"alert": 0, "watch": 1, "no_data": 3}.get(each.chip, 2))
    context = {"cards": worst, "at_us": now_us - now_us % 60_000_000}
    return page(request, "slo", "_cards.html", context)
