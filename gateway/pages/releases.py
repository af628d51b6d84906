"""Releases: is the new version as good as the old one, on the same traffic?"""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.pages.periods import RANGES, answerable, range_of, ranged
from gateway.pages.release_view import (
    choices,
    completion_words,
    described,
    facts,
    metric_cards,
    verdict_chip,
)
from gateway.pages.rollout import releases_of, rollouts_of
from gateway.pages.shell import answered, clock, ledger, page
from gateway.pages.zone import ZONES
from gateway.policy.values import PRIORITIES
from gateway.release_asks import comparison_of
from gateway.reporting import read_releases
from ledger.queries.configuration import identities
from ledger.queries.releases import Comparison
from ledger.records import ModelIdentity


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    context: dict[str, object] = {"ranges": RANGES, "zones": ZONES, "priorities": PRIORITIES}
    context |= {"rollouts": rollouts_of(ledger()), "releases": releases_of(ledger())}
    context |= answered(_asked, request)
    return page(request, "releases", "_comparison.html", context)


def _asked(request: HttpRequest) -> dict[str, object]:
    """The sides on offer and the comparison of those named, or of the busiest as in the API."""
    now_us, connection = clock.now_us(), ledger()
    ask = answerable(read_releases(ranged(request.GET), now_us))
    found, offered = answerable(comparison_of(connection, ask))
    known = identities(connection)
    return {
        "asked": range_of(request.GET, now_us),
        "choices": choices(offered, known),
        **({} if found is None else _shown(found, known)),
    }


def _shown(found: Comparison, known: list[ModelIdentity]) -> dict[str, object]:
    by_id = {one.identity_id: one for one in known}
    return {
        "found": found,
        "baseline_is": described(found.baseline.side, by_id),
        "candidate_is": described(found.candidate.side, by_id),
        "facts": facts(found),
        "metrics": metric_cards(found),
        "completion": completion_words(found.completion),
        "completion_chip": verdict_chip(found.completion.verdict),
    }
