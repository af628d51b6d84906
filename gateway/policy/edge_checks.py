"""Why fallback edges can't be published: edges that no request can use, and circles (FBK-1)."""

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.policy.problems import Problem
from gateway.policy.values import FallbackEdge, RoutePolicy

QUALITY_MOST_MILLI: Final = 1000


def edges(policy: RoutePolicy) -> Iterator[Problem]:
    """Fallback edges that can't be used by any request, and circles of them (FBK-1)."""
    by_id = {route.route_id: route for route in policy.routes}
    reachable = _reachable(policy)
    for edge in policy.edges:
        where = f"edge {edge.from_route} -> {edge.to_route}"
        here, there = by_id.get(edge.from_route), by_id.get(edge.to_route)
        if not edge.allowed_reasons:
            yield Problem(
                where=where, what="it allows no reason", action="Name one, or drop the edge"
            )
        if edge.quality_floor_milli > QUALITY_MOST_MILLI:
            yield Problem(
                where=where,
                what=f"no evaluation scores {edge.quality_floor_milli} of {QUALITY_MOST_MILLI}",
                action=f"Set quality_floor_milli to {QUALITY_MOST_MILLI} or less",
            )
        if here is None or there is None:
            continue
        if there.safety_policy_revision < here.safety_policy_revision:
            yield Problem(
                where=where,
                what=f"the target's safety policy revision {there.safety_policy_revision} is older "
                f"than {here.safety_policy_revision}",
                action="Bring the target to the newer safety policy, or drop the edge",
            )
        if edge.from_route not in reachable:
            yield Problem(
                where=where,
                what=f"{edge.from_route} is no primary route and no edge leads to it",
                action="Make it reachable, or drop the edge",
            )
        elif _only_between_primaries(policy, edge):
            yield Problem(
                where=where,
                what=f"wherever {edge.from_route} is tried, {edge.to_route} is a primary route and "
                "was judged already",
                action="Drop the edge",
            )
    circle = _circle(policy.edges)
    if circle:
        yield Problem(
            where="edges",
            what=f"they go in a circle: {' -> '.join(circle)}",
            action="Drop one of them",
        )


def _reachable(policy: RoutePolicy) -> set[str]:
    """The primaries of any model, and what edges lead to from there."""
    reachable = {route_id for model in policy.models for route_id in model.primary_routes}
    while True:
        more = {edge.to_route for edge in policy.edges if edge.from_route in reachable}
        if more <= reachable:
            return reachable
        reachable |= more


def _only_between_primaries(policy: RoutePolicy, edge: FallbackEdge) -> bool:
    """Whether the edge starts at primaries alone, and its target is one in each such model."""
    if any(each.to_route == edge.from_route for each in policy.edges):
        return False
    starts = [model for model in policy.models if edge.from_route in model.primary_routes]
    return bool(starts) and all(edge.to_route in model.primary_routes for model in starts)


def _circle(all_edges: Iterable[FallbackEdge]) -> list[str]:
    """Return the routes of one circle, its first again at the end; empty where there is none."""
    onward: dict[str, list[str]] = {}
    for edge in all_edges:
        onward.setdefault(edge.from_route, []).append(edge.to_route)
    done: set[str] = set()
    for start in onward:
        path, branches = [start], [iter(onward[start])]
        while path and start not in done:
            step = next(branches[-1], None)
            if step is None:
                done.add(path.pop())
                branches.pop()
            elif step in path:
                return [*path[path.index(step) :], step]
            elif step not in done:
                path.append(step)
                branches.append(iter(onward.get(step, ())))
    return []
