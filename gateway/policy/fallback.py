"""Which declared edges may be used when every primary route fell, and what was refused (FBK-1)."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gateway.policy.estimates import Scale, Weighing
from gateway.policy.filters import BY_NAME, Bounds, has_all, sift
from gateway.policy.values import Evaluation, FallbackEdge, FallbackReason, Route


class Refused(NamedTuple):
    """An edge that may not be used, by the name of the condition that it breaks."""

    edge: FallbackEdge
    condition: str


class Reached(NamedTuple):
    """A route that an edge led to: from where, for what, and the primary it all began with."""

    weighing: Weighing
    edge: FallbackEdge
    reason: FallbackReason
    degraded_from: str


class Search(msgspec.Struct, frozen=True):
    """What the edges led to: who is left, who was reached and fell, which edges were refused."""

    left: tuple[Reached, ...] = ()
    reached: tuple[Reached, ...] = ()
    fell: dict[str, str] = {}
    refused: tuple[Refused, ...] = ()


class Origin(NamedTuple):
    """A route that fell for a reason which may open edges."""

    route: Route
    reason: FallbackReason
    degraded_from: str


def origins_of(weighings: list[Weighing], fell: Mapping[str, str]) -> list[Origin]:
    """Return the primaries that fell as overloaded, unhealthy or at risk of the deadline."""
    origins = []
    for weighing in weighings:
        opens = BY_NAME[fell[weighing.route.route_id]].opens
        if opens is not None:
            origins.append(Origin(weighing.route, opens, weighing.route.route_id))
    return origins


def search(
    scale: Scale,
    bounds: Bounds,
    origins: list[Origin],
    routes: Mapping[str, Route],
    foreign: frozenset[str],
    *,
    tried: frozenset[str] = frozenset(),
    outcome_unknown: bool = False,
) -> Search:
    """Return what the edges from `origins` lead to, nearest first.

    `tried`: routes that this request was on before, which are no targets; `outcome_unknown`: the
    end of an attempt there isn't known.

    Each hop is sifted by every hard filter; only when nobody of a hop is left do the edges of
    those that fell lead on. A route is weighed at most once and never one that is among `origins`,
    so no walk loops, whatever the edges are.
    """
    seen = {origin.route.route_id for origin in origins} | tried
    reached: list[Reached] = []
    refused: list[Refused] = []
    fell: dict[str, str] = {}
    while origins:
        hop: list[Reached] = []
        for origin in origins:
            for edge in scale.policy.edges:
                target = routes.get(edge.to_route)
                if edge.from_route != origin.route.route_id or target is None:
                    continue
                if target.route_id in seen:
                    continue
                weighing = scale.weigh((target,))[0]
                broken = broken_condition(
                    edge,
                    origin,
                    weighing,
                    scale,
                    bounds,
                    foreign,
                    outcome_unknown=outcome_unknown,
                )
                if broken is not None:
                    refused.append(Refused(edge, broken))
                    continue
                seen.add(target.route_id)
                hop.append(Reached(weighing, edge, origin.reason, origin.degraded_from))
        left, hop_fell, _ = sift(bounds, [each.weighing for each in hop])
        fell.update(hop_fell)
        reached += hop
        if left:
            ids = {weighing.route.route_id for weighing in left}
            winners = tuple(each for each in hop if each.weighing.route.route_id in ids)
            return Search(winners, tuple(reached), fell, tuple(refused))
        origins = []
        for each in hop:
            opens = BY_NAME[hop_fell[each.weighing.route.route_id]].opens
            if opens is not None:
                origins.append(Origin(each.weighing.route, opens, each.degraded_from))
    return Search((), tuple(reached), fell, tuple(refused))


def broken_condition(
    edge: FallbackEdge,
    origin: Origin,
    target: Weighing,
    scale: Scale,
    bounds: Bounds,
    foreign: frozenset[str],
    *,
    outcome_unknown: bool = False,
) -> str | None:
    """Return the first condition that an edge breaks for this request, or None (FBK-1).

    An edge is taken at its word where it declares less, and checked where it declares more: one
    that doesn't preserve the data boundary or the capabilities serves no request that names any.
    """
    route, request = target.route, scale.request
    checks = (
        ("edge_reason", origin.reason in edge.allowed_reasons),
        ("edge_canary_arm", route.route_id not in foreign),
        ("edge_unknown_outcome", not (outcome_unknown and request.side_effects)),
        ("edge_data_boundary", _within_boundary(edge, route, bounds)),
        (
            "edge_capabilities",
            not request.required_capabilities
            or (
                edge.preserves_required_capabilities
                and has_all(route.capabilities, request.required_capabilities)
            ),
        ),
        (
            "edge_safety_policy",
            route.safety_policy_revision >= origin.route.safety_policy_revision,
        ),
        ("edge_snapshot_age", target.fresh),
    )
    for condition, holds in checks:
        if not holds:
            return condition
    return evidence_gap(edge, route, scale.context.evaluations)


def evidence_gap(
    edge: FallbackEdge, target: Route, evaluations: tuple[Evaluation, ...]
) -> str | None:
    """Return what the target's evidence lacks for this edge, or None.

    Evidence is the newest result, the last in ledger order, of the edge's suite for the exact
    model identity of the target.
    """
    for evaluation in reversed(evaluations):
        if (evaluation.suite, evaluation.identity_id) == (
            edge.required_evaluation_suite,
            target.identity_id,
        ):
            if not evaluation.passed:
                return "edge_evaluation"
            floor = edge.quality_floor_milli
            return None if evaluation.score_milli >= floor else "edge_quality_floor"
    return "edge_evaluation"


def _within_boundary(edge: FallbackEdge, target: Route, bounds: Bounds) -> bool:
    if bounds.regions is None:
        return True
    return edge.preserves_data_boundary and target.region in bounds.regions
