"""One objective: its card, every closed window, its revisions, what it did; and slices."""

from typing import get_args

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.auth_roles import require_role
from gateway.diagnosing import LABELS, read_moment
from gateway.pages.periods import answerable, asked
from gateway.pages.shell import answered, clock, ledger, page
from gateway.pages.slo_history import STEP_PX, evidence_links, revisions_of, slice_rows, strip
from gateway.pages.slo_view import card
from gateway.pages.zone import shown
from gateway.reporting import unknown_parameter
from ledger.queries import objectives as stored
from ledger.queries.means import experiences
from ledger.queries.slis import ROWS_LIMIT, SLICES, Slice, indicators
from ledger.queries.slo import slo_reports
from ledger.slo import HOUR_US, SloDefinition

WINDOWS_SHOWN = 96  # eight hours of five minutes
DEFAULT_SLICE: Slice = "route"
OVERRIDE_HOURS = (1, 4, 24)


@require_safe
@require_role("viewer")
def show(request: HttpRequest, slo_id: str) -> HttpResponse:
    every = [one for one in stored.revisions(ledger()) if one.slo_id == slo_id]
    refusal = unknown_parameter(request.GET, ())
    if not every or refusal is not None:
        reason = f"There is no objective {slo_id[:80]!r}, or the address has a part of no use here."
        return render(request, "404.html", {"reason": reason}, status=404)
    return render(request, "slo_one/index.html", _context(max(every, key=lambda o: o.revision)))


def _context(definition: SloDefinition) -> dict[str, object]:
    connection, now_us = ledger(), clock.now_us()
    slo_id = definition.slo_id
    (report,) = slo_reports(connection, now_us, [definition])
    met = experiences(connection, now_us - HOUR_US, now_us, [definition])
    evaluated = stored.evaluations(connection, slo_id, limit=WINDOWS_SHOWN)
    return {
        "c": card(
            report,
            met[definition.key],
            stored.last_evaluation(connection, slo_id),
            shown().zone,
        ),
        "definition": definition,
        "strip": strip(evaluated),
        "strip_width": WINDOWS_SHOWN * STEP_PX,
        "revisions": revisions_of(
            stored.revisions(connection), stored.declarations(connection, slo_id), slo_id
        ),
        "phases": evidence_links(stored.phases_of(connection, slo_id)),
        "overrides": stored.overrides(connection, slo_id),
        "override": stored.override_of(connection, slo_id, now_us),
        "override_until": {f"{hours} h": now_us + hours * HOUR_US for hours in OVERRIDE_HOURS},
        "now_us": now_us,
    }


@require_safe
@require_role("viewer")
def slices(request: HttpRequest) -> HttpResponse:
    context = {"slices": SLICES, "ranges": LABELS} | answered(_sliced, request)
    return page(request, "slo_slices", "_slices.html", context)


def _sliced(request: HttpRequest) -> dict[str, object]:
    moment = answerable(read_moment(asked(request.GET), clock.now_us(), ("by",)))
    wanted = request.GET.get("by", "") or DEFAULT_SLICE
    by = next((name for name in get_args(Slice) if name == wanted), None)
    if by is None:
        raise ValueError(f"by: there are {', '.join(SLICES)}")
    found = indicators(ledger(), moment.start_us, moment.end_us, by)
    return {"by": by, "moment": moment, "found": found, "limit": ROWS_LIMIT} | {
        "rows": slice_rows(found.slices, by, moment)
    }
