"""What a period's decisions would have been under other rules, summed up (RTE-4). Pure."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from gateway.policy.values import Decision
from ledger.quantiles import nearest_rank

REJECTED: Final = "(rejected)"
"""Where a request that isn't accepted goes to, among the routes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What the decisions of one side come to: as recorded, or as they would have been.

    Quantiles are nearest rank over the accepted, in µs, None of none. `cost_pico` is the estimated
    cost of the accepted that have a price; `unpriced` counts those that have none.
    """

    accepted: int
    rejections: tuple[tuple[str, int], ...]  # by code, sorted
    routes: tuple[tuple[str, int], ...]  # by id, sorted
    degraded: int
    ttft_p50_us: int | None
    ttft_p95_us: int | None
    e2e_p50_us: int | None
    e2e_p95_us: int | None
    cost_pico: int
    unpriced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Both sides, and how many requests went from where to where else: (from, to, count)."""

    decisions: int
    before: Side
    after: Side
    moved: tuple[tuple[str, str, int], ...]
    other_code: int  # decided by another revision of the code, which may differ for that alone
    unreadable: int  # named something that the ledger has not; they are in neither side


@dataclass(slots=True)
class _Sums:
    rejections: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)
    ttft_us: list[int] = field(default_factory=list)
    e2e_us: list[int] = field(default_factory=list)
    degraded: int = 0
    cost_pico: int = 0
    unpriced: int = 0

    def add(self, decision: Decision) -> None:
        if decision.status == "rejected":
            self.rejections[decision.reason_code or ""] += 1
            return
        self.routes[decision.route_id or ""] += 1
        self.ttft_us.append(decision.ttft_us or 0)
        self.e2e_us.append(decision.e2e_us or 0)
        self.degraded += decision.degraded_from is not None
        self.cost_pico += decision.cost_pico or 0
        self.unpriced += decision.cost_pico is None

    def side(self) -> Side:
        ttft_us, e2e_us = sorted(self.ttft_us), sorted(self.e2e_us)
        return Side(
            accepted=self.routes.total(),
            rejections=tuple(sorted(self.rejections.items())),
            routes=tuple(sorted(self.routes.items())),
            degraded=self.degraded,
            ttft_p50_us=_percentile(ttft_us, 50),
            ttft_p95_us=_percentile(ttft_us, 95),
            e2e_p50_us=_percentile(e2e_us, 50),
            e2e_p95_us=_percentile(e2e_us, 95),
            cost_pico=self.cost_pico,
            unpriced=self.unpriced,
        )


class Counterfactual:
    """Takes decisions pair by pair; `summary` is what they came to so far."""

    def __init__(self) -> None:
        self._before, self._after = _Sums(), _Sums()
        self._moved: Counter[tuple[str, str]] = Counter()
        self._other_code = self._unreadable = 0

    def add(self, recorded: Decision, other: Decision, *, same_code: bool = True) -> None:
        """Take a recorded decision and the one that its inputs lead to under the other rules."""
        self._before.add(recorded)
        self._after.add(other)
        self._other_code += not same_code
        here, there = recorded.route_id or REJECTED, other.route_id or REJECTED
        if here != there:
            self._moved[here, there] += 1

    def skip(self) -> None:
        """Count a decision that can't be made again."""
        self._unreadable += 1

    def summary(self) -> Summary:
        before, after = self._before.side(), self._after.side()
        ordered = sorted(self._moved.items(), key=lambda each: (-each[1], each[0]))
        return Summary(
            decisions=before.accepted + sum(count for _, count in before.rejections),
            before=before,
            after=after,
            moved=tuple((here, there, count) for (here, there), count in ordered),
            other_code=self._other_code,
            unreadable=self._unreadable,
        )


def _percentile(ascending: list[int], percent: int) -> int | None:
    return nearest_rank(ascending, percent, 100) if ascending else None
