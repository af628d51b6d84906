"""Releases: is the new version as good as the old one, on the same traffic?"""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.periods import RANGES, ZONES, range_of
from gateway.pages.release_view import (
    choose,
    completion_words,
    facts,
    metric_cards,
    verdict_chip,
)
from gateway.pages.shell import clock, ledger, page
from gateway.policy.values import PRIORITIES
from ledger.queries.releases import Comparison, compare, sides


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    context: dict[str, object] = {"ranges": RANGES, "zones": ZONES, "priorities": PRIORITIES}
    try:
        asked = range_of(request.GET, clock.now_us())
        offered = sides(ledger(), asked.period)
        context |= {"asked": asked, "offered": offered}
        chosen = choose(request.GET, offered)
        if chosen is not None:
            context |= {"chosen": chosen} | _shown(
                compare(
                    ledger(),
                    asked.period,
                    logical_model=chosen.logical_model,
                    baseline=chosen.baseline,
                    candidate=chosen.candidate,
                    priority=chosen.priority,
                )
            )
    except ValueError as problem:
        context["problem"] = str(problem)
    return page(request, "releases", "_comparison.html", context)


def _shown(found: Comparison) -> dict[str, object]:
    return {
        "found": found,
        "facts": facts(found),
        "metrics": metric_cards(found),
        "completion": completion_words(found.completion),
        "completion_chip": verdict_chip(found.completion.verdict),
    }
