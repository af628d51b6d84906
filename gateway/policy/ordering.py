"""The explainable order among candidates that passed every filter; the rule is data (RTE-1)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.policy.estimates import Weighing, Weighings

UNPRICED_LAST: Final = 1 << 63
"""Above any price: a candidate without one comes after those that have one."""

_KEYS: Final[dict[str, Callable[[Weighing], int]]] = {
    "e2e": lambda w: w.e2e_us,
    "cost": lambda w: UNPRICED_LAST if w.cost_pico is None else w.cost_pico,
    "quality": lambda w: -w.route.quality_milli,
}

_COLUMNS: Final[dict[str, Callable[[Weighings], list[int]]]] = {
    "e2e": lambda each: each.e2e_us,
    "cost": lambda each: ([UNPRICED_LAST if cost is None else cost for cost in each.costs_pico]),
    "quality": lambda each: [-route.quality_milli for route in each.table.routes],
}


def first(rule: tuple[str, ...], left: Iterable[Weighing]) -> tuple[Weighing, str]:
    """Return the winner and the reason that it won: the part of the rule that set it apart.

    Candidates are compared by each part in turn, the best of `left` (at least one) going on.
    `route_id` breaks the last tie, so the order of the input can't matter (ADM-2). The reason is
    ONLY_CANDIDATE, or FIRST_BY_<part> of the part that left the winner alone.
    """
    remaining = list(left)
    if len(remaining) == 1:
        return remaining[0], "ONLY_CANDIDATE"
    for part in rule:
        if part == "route_id":
            break
        values = list(map(_KEYS[part], remaining))
        best = min(values)
        if values.count(best) == 1:
            return remaining[values.index(best)], f"FIRST_BY_{part.upper()}"
        remaining = [w for w, value in zip(remaining, values, strict=True) if value == best]
    return min(remaining, key=_route_id), "FIRST_BY_ROUTE_ID"


def first_place(rule: tuple[str, ...], weighings: Weighings) -> tuple[int, str]:
    """Return the place of the winner among all, and why it won; the same as `first` says of all.

    The table is sorted by route_id, so the first of those that tie is the one that it puts first.
    """
    many = len(weighings.counted)
    if many == 1:
        return 0, "ONLY_CANDIDATE"
    places: Sequence[int] = range(many)
    for part in rule:
        if part == "route_id":
            break
        values = _COLUMNS[part](weighings)
        if len(places) < many:
            values = [values[place] for place in places]
        best = min(values)
        ties = values.count(best)
        if ties == 1:
            return places[values.index(best)], f"FIRST_BY_{part.upper()}"
        if ties < len(values):
            places = [place for place, value in zip(places, values, strict=True) if value == best]
    return places[0], "FIRST_BY_ROUTE_ID"


def _route_id(weighing: Weighing) -> str:
    return weighing.route.route_id
