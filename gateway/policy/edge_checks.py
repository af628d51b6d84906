"""Why fallback edges can't be published: edges that no request can use, and circles (FBK-1)."""

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.policy.fallback import evidence_gap
from gateway.policy.problems import Problem
from gateway.policy.values import Evaluation, FallbackEdge, RoutePolicy

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
                code="EDGE_WITHOUT_REASON",
                where=where,
                what="it allows no reason",
                action="Name one, or drop the edge",
            )
        if edge.quality_floor_milli > QUALITY_MOST_MILLI:
            yield Problem(
                code="EDGE_FLOOR_UNREACHABLE",
                where=where,
                what=f"no evaluation scores {edge.quality_floor_milli} of {QUALITY_MOST_MILLI}",
                action=f"Set quality_floor_milli to {QUALITY_MOST_MILLI} or less",
            )
        if here is None or there is None:
            continue
        if there.safety_policy_revision < here.safety_policy_revision:
            yield Problem(
                code="EDGE_TO_OLDER_SAFETY_POLICY",
                where=where,
                what=f"the target's safety policy revision {there.safety_policy_revision} is older "
                f"than {here.safety_policy_revision}",
                action="Bring the target to the newer safety policy, or drop the edge",
            )
        if edge.from_route not in reachable:
            yield Problem(
                code="EDGE_UNREACHABLE",
                where=where,
                what=f"{edge.from_route} is no primary route and no edge leads to it",
                action="Make it reachable, or drop the edge",
            )
        elif _only_between_primaries(policy, edge):
            yield Problem(
                code="EDGE_NEVER_USED",
                where=where,
                what=f"wherever {edge.from_route} is tried, {edge.to_route} is a primary route and "
                "was judged already",
                action="Drop the edge",
            )
    circle = _circle(policy.edges)
    if circle:
        yield Problem(
            code="EDGE_CIRCLE",
            where="edges",
            what=f"they go in a circle: {' -> '.join(circle)}",
            action="Drop one of them",
        )


def unreached(policy: RoutePolicy) -> Iterator[Problem]:
    """Routes that are no primary of any model and that no edge leads to."""
    reachable = _reachable(policy)
    for route in policy.routes:
        if route.route_id not in reachable:
            yield Problem(
                code="ROUTE_UNREACHABLE",
                where=f"route {route.route_id}",
                what="no model names it as a primary route and no edge leads to it",
                action="Name it in a model or an edge, or drop it",
            )


def unproven(policy: RoutePolicy, evaluations: tuple[Evaluation, ...]) -> Iterator[Problem]:
    """Edges that are refused until their target's exact identity has passed their suite (FBK-1)."""
    by_id = {route.route_id: route for route in policy.routes}
    for edge in policy.edges:
        target = by_id.get(edge.to_route)
        if target is None:
            continue
        gap = evidence_gap(edge, target, evaluations)
        if gap is not None:
            lacks = "a score at its quality floor" if gap == "edge_quality_floor" else "a pass"
            yield Problem(
                code="EDGE_WITHOUT_EVIDENCE",
                where=f"edge {edge.from_route} -> {edge.to_route}",
                what=f"{edge.to_route}'s model identity lacks {lacks} in "
                f"{edge.required_evaluation_suite}, so the edge is refused",
                action="Record the evaluation; the edge is usable from then on",
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
