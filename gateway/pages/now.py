"""Now: what is wrong, for whom, since when; what was done about it; and the receipts that prove it.

The home page. Everything that it asks is in its URL: the window, the moment, whether it follows.
"""

import sqlite3

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway import live
from gateway.auth_roles import require_role
from gateway.diagnosing import LABELS, Moment, read_moment
from gateway.live import Live
from gateway.pages.health_view import wrong
from gateway.pages.now_parts import rollouts_under_way, routes_not_taking
from gateway.pages.now_view import (
    Objective,
    action,
    diagnosed,
    objective,
    ranked,
    read_of,
    undiagnosed,
)
from gateway.pages.periods import asked, sentence, without
from gateway.pages.shell import clock, ledger, page
from gateway.reporting import AskProblem
from ledger.health import health
from ledger.queries import objectives as stored
from ledger.queries.diagnosis import diagnosis
from ledger.queries.proving import proving
from ledger.queries.slo import slo_status
from ledger.queries.unknowns import at_risk
from ledger.slo import HOUR_US

FOLLOW_SECONDS = 10
FOLLOW = "follow"
OVERRIDE_HOURS = (1, 4, 24)
MINUTE_US = 60_000_000


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    moment = read_moment(asked(request.GET), clock.now_us(), (FOLLOW,))
    if isinstance(moment, AskProblem):
        return page(request, "now", "_now.html", {"problem": sentence(moment)})
    context = shown(ledger(), moment) | {
        "ranges": LABELS,
        "follow": not moment.at and request.GET.get(FOLLOW) != "0",
        "follow_seconds": FOLLOW_SECONDS,
        "query": without(request.GET, FOLLOW),
    }
    response = page(request, "now", "_now.html", context)
    response["HX-Push-Url"] = "false"  # a part that is followed makes no history
    return response


def shown(connection: sqlite3.Connection, moment: Moment) -> dict[str, object]:
    """All that the page says of a moment; actions, unknowns and routes are always those of now."""
    now_us, seen = clock.now_us(), live.look(settings.WEIGHBRIDGE_DB)
    objectives = _objectives(connection, moment, now_us)
    before, window, findings = diagnosis(connection, moment.start_us, moment.end_us)
    earlier = read_of(before, 2 * moment.start_us - moment.end_us)
    read = read_of(window, moment.start_us)
    found = [
        diagnosed(one, proving(connection, one, moment.start_us, moment.end_us), moment)
        for one in findings
    ]
    open_unknowns, at_risk_pico = at_risk(connection)
    actions = [action(one) for one in stored.open_episodes(connection)]
    context: dict[str, object] = {
        "moment": moment,
        "now_us": now_us,
        "objectives": objectives,
        "burning": [one for one in objectives if one.wrong],
        "diagnosed": found,
        "undiagnosed": "" if found else undiagnosed(earlier, read),
        "read": read,
        "actions": actions,
        "waiting": [one for one in actions if one.proposed],
        "overridden": [one for one in objectives if one.override],
        "override_until": {f"{hours} h": now_us + hours * HOUR_US for hours in OVERRIDE_HOURS},
        "rollouts": rollouts_under_way(connection),
        "unknowns": open_unknowns,
        "at_risk_pico": at_risk_pico,
        "routes": routes_not_taking(connection, now_us, seen),
    }
    context |= _server(seen, now_us)
    context["wrong"] = _count(context)
    return context


def _objectives(
    connection: sqlite3.Connection, moment: Moment, now_us: int
) -> tuple[Objective, ...]:
    end_us = moment.end_us - moment.end_us % MINUTE_US
    return ranked(
        [
            objective(
                slo_status(connection, definition, end_us),
                stored.evaluations(connection, definition.slo_id),
                stored.override_of(connection, definition.slo_id, now_us),
                moment,
            )
            for definition in stored.objectives(connection)
        ]
    )


def _server(seen: Live | None, now_us: int) -> dict[str, object]:
    """Whether requests are taken, and what is bad with the ledger."""
    path = settings.WEIGHBRIDGE_DB
    state = health(path, now_us=now_us, live=None if seen is None else seen.writer)
    asking = wrong(state)
    return {
        "live": seen,
        "problems": seen.problems if seen else (),
        "bad_signals": [one for one in asking if one.state == "bad"],
        "watched_signals": [
            one for one in asking if one.state == "watch" and one.code != "OPEN_UNKNOWNS"
        ],
    }


def _count(context: dict[str, object]) -> int:
    """How many things ask for a person: open unknowns count as one."""
    listed = ("burning", "diagnosed", "waiting", "routes", "problems", "bad_signals")
    lists = [context[name] for name in listed]
    return sum(len(one) for one in lists if isinstance(one, list | tuple)) + bool(
        context["unknowns"]
    )
