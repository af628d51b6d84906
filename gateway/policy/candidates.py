"""What a decision says of each route that it looked at: where it fell, or what it estimates."""

from collections.abc import Iterable, Mapping
from typing import Literal

from gateway.policy.estimates import Weighing
from gateway.policy.fallback import Search
from gateway.policy.values import Candidate


def primaries(weighings: Iterable[Weighing], fell: Mapping[str, str]) -> tuple[Candidate, ...]:
    """Return the candidates of a model's own routes."""
    return tuple([_candidate(w, "primary", fell.get(w.route.route_id), None) for w in weighings])


def fallbacks(found: Search) -> tuple[Candidate, ...]:
    """Return the routes that edges led to, then the edges that were refused, as candidates."""
    reached = [
        _candidate(
            each.weighing,
            "fallback",
            found.fell.get(each.weighing.route.route_id),
            each.edge.from_route,
        )
        for each in found.reached
    ]
    refused = [
        Candidate(
            route_id=edge.to_route,
            role="fallback",
            fell_at=condition,
            input_tokens=0,
            via_route=edge.from_route,
        )
        for edge, condition in found.refused
    ]
    return (*reached, *refused)


def _candidate(
    w: Weighing, role: Literal["primary", "fallback"], fell_at: str | None, via: str | None
) -> Candidate:
    known = w.tokens is not None
    return Candidate(
        route_id=w.route.route_id,
        role=role,
        fell_at=fell_at,
        input_tokens=w.tokens or 0,
        ttft_us=w.ttft_us if known else None,
        e2e_us=w.e2e_us if known else None,
        cost_pico=w.cost_pico if known else None,
        queue_us=w.queue_us if known else None,
        prefill_us=w.prefill_us if known else None,
        via_route=via,
    )
