"""SLO burn: who waits too long, how fast that uses up the budget, and what follows from it."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.periods import sentence
from gateway.pages.shell import clock, ledger, page
from gateway.pages.slo_view import card
from gateway.pages.zone import shown
from gateway.reporting import unknown_parameter
from ledger.queries.means import experiences
from ledger.queries.objectives import last_evaluation
from ledger.queries.slo import slo_reports
from ledger.slo import HOUR_US


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    refusal = unknown_parameter(request.GET, ())
    if refusal is not None:
        return page(request, "slo", "_cards.html", {"problem": sentence(refusal)})
    connection, now_us = ledger(), clock.now_us()
    reports = slo_reports(connection, now_us)
    definitions = [report.status.definition for report in reports]
    met = experiences(connection, now_us - HOUR_US, now_us, definitions)
    cards = [
        card(report, met[one.key], last_evaluation(connection, one.slo_id), shown().zone)
        for report, one in zip(reports, definitions, strict=True)
    ]
    worst = sorted(cards, key=lambda each: {"alert": 0, "watch": 1, "no_data": 3}.get(each.chip, 2))
    context = {"cards": worst, "at_us": now_us - now_us % 60_000_000}
    return page(request, "slo", "_cards.html", context)
