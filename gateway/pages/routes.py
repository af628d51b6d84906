"""Routes and capacity: which routes take requests, how much room each has, where each leads."""

import sqlite3

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway import live
from gateway.auth_roles import require_role
from gateway.configuration import evaluations_of, policy_in_force
from gateway.pages.routes_graph import graph, proofs
from gateway.pages.routes_view import Line, kinds, lines, matrix
from gateway.pages.shell import clock, ledger, page
from gateway.policy.values import RoutePolicy
from gateway.route_health import BREAKER_ACTION
from ledger.queries.actions import last_of_each
from ledger.queries.capacity import last_snapshots

FOLLOW_SECONDS = 5


@require_safe
@require_role("viewer")
def index(request: HttpRequest) -> HttpResponse:
    policy = policy_in_force(ledger())
    context: dict[str, object] = {"follow": request.GET.get("follow") == "1"}
    context["follow_seconds"] = FOLLOW_SECONDS
    if policy is not None:
        context |= _shown(policy)
    response = page(request, "routes", "_routes.html", context)
    response["HX-Push-Url"] = "false"  # a part that is followed makes no history
    return response


def _shown(policy: RoutePolicy) -> dict[str, object]:
    connection, now_us = ledger(), clock.now_us()
    seen = live.look(settings.WEIGHBRIDGE_DB)
    found = lines_now(connection, policy, now_us, seen)
    edges = proofs(policy, evaluations_of(connection)[0])
    columns = kinds(policy.routes)
    return {
        "policy": policy,
        "lines": found,
        "in_traffic": sum(each.in_traffic for each in found),
        "in_flight": sum(each.live.in_flight for each in found if each.live),
        "live": seen,
        "now_us": now_us,
        "edges": edges,
        "graph": graph(policy, edges, {each.route.route_id: each.chip for each in found}),
        "kinds": columns,
        "matrix": matrix(columns),
    }


def lines_now(
    connection: sqlite3.Connection, policy: RoutePolicy, now_us: int, seen: live.Live | None
) -> tuple[Line, ...]:
    """Every route of the policy, in its order, by what the server says and the ledger kept."""
    return lines(
        policy,
        now_us,
        live=seen,
        kept=last_snapshots(connection, [route.route_id for route in policy.routes]),
        drains=last_of_each(connection, ("drain_route", "undrain_route")),
        breakers=last_of_each(connection, (BREAKER_ACTION,)),
    )
