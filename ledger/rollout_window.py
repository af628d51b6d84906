"""What one window of a rollout showed: every declared condition tested, with its numbers (REL-5).

Pure. Requests are compared within their kind: priority and input token bucket (REL-6).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ledger import strata
from ledger.peeking import BadCounts
from ledger.receipt_cost import unpriced
from ledger.releases import ShareCheck, Verdict, share_check
from ledger.rollouts import PERMILLE, RATIOS, TAILS, Condition, Plan
from ledger.slo import user_cancelled_unserved, valid_completion

PPM = 1_000_000
BUCKETS = (512, 2_048, 8_192, 32_768)  # upper bounds of input tokens, exclusive
BASELINE, CANARY = "baseline", "canary"
ABANDONED = "CLIENT_GONE"


class ArmRow(NamedTuple):
    """What is read of a receipt to compare the arms."""

    arm: str
    priority: str
    status: str
    degraded_from: str | None
    first_token_us: int | None
    itl_mean_us: int | None
    e2e_us: int
    deadline_us: int
    schema_valid: int | None
    terminal_error_code: str | None
    input_tokens: int
    output_tokens: int
    cost_total_pico: int
    rate_key: str | None = None
    usage_source: str | None = None
    taken_over: int | None = None  # as the last outcome report says that says anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One condition with its test's verdict and numbers."""

    metric: str
    verdict: Verdict
    statistics: strata.StrataTail | strata.StrataRatio | strata.StrataMean | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStatistics:
    """All of a window: its tests, its share of traffic, its bad requests by arm."""

    tested: tuple[Tested, ...]
    share: ShareCheck | None  # None: no traffic, or a key whose requests aren't independent
    bad: BadCounts
    baseline_requests: int
    canary_requests: int

    @property
    def verdicts(self) -> dict[str, Verdict]:
        return {one.metric: one.verdict for one in self.tested}

    @property
    def share_off_plan(self) -> bool:
        return self.share is not None and self.share.blocked


def statistics(plan: Plan, permille: int, rows: Sequence[ArmRow]) -> WindowStatistics:
    """The window's statistics. `rows` are all requests of the release, rejected ones too."""
    planned = Fraction(permille, PERMILLE)
    counts = [sum(row.arm == arm for row in rows) for arm in (BASELINE, CANARY)]
    # Keys other than the request's own put many requests into one arm at once: no chi square.
    checked = share_check(counts[1], sum(counts), planned) if plan.key == "request" else None
    served = [row for row in rows if row.status != "rejected"]
    return WindowStatistics(
        tested=tuple(_tested(plan, condition, served) for condition in plan.conditions),
        share=checked,
        bad=bad_counts(planned, served),
        baseline_requests=counts[0],
        canary_requests=counts[1],
    )


def bad_counts(share: Fraction, rows: Iterable[ArmRow]) -> BadCounts:
    """Requests of each arm that were no valid completion (SLO-0)."""
    bad = {BASELINE: 0, CANARY: 0}
    for row in rows:
        if row.status != "rejected" and not user_cancelled_unserved(row):
            bad[row.arm] += not valid_completion(row)
    return BadCounts(share=share, baseline_bad=bad[BASELINE], canary_bad=bad[CANARY])


def kind_of(row: ArmRow) -> str:
    """The request's kind: its priority and its bucket of input tokens."""
    for bound in BUCKETS:
        if row.input_tokens < bound:
            return f"{row.priority}<{bound}"
    return f"{row.priority}>={BUCKETS[-1]}"


def _tested(plan: Plan, condition: Condition, rows: Sequence[ArmRow]) -> Tested:
    """The condition's test; a metric that nobody knows is INCONCLUSIVE, never a pass."""
    limit = Fraction(condition.limit_permille, PERMILLE)
    found: strata.StrataTail | strata.StrataRatio | strata.StrataMean | None = None
    if condition.metric in TAILS:
        found = strata.tail_over_strata(
            _tails(plan, condition.metric, rows),
            delta=limit,
            alpha=condition.alpha_ppm / PPM,
            baseline_minimum=plan.baseline_minimum,
            canary_minimum=plan.canary_minimum,
        )
    elif condition.metric in RATIOS:
        found = strata.ratio_over_strata(
            _ratios(condition.metric, rows),
            higher_is_better=condition.metric == "valid_completion",
            margin=float(limit),
            minimum=min(plan.canary_minimum, plan.baseline_minimum),
        )
    elif condition.metric in _MEANS:
        found = strata.mean_over_strata(
            _means(condition.metric, rows),
            delta=limit,
            two_sided=condition.metric != "cost_per_valid",
            minimum=min(plan.canary_minimum, plan.baseline_minimum),
        )
    verdict: Verdict = "INCONCLUSIVE" if found is None else found.verdict
    return Tested(metric=condition.metric, verdict=verdict, statistics=found)


def _tails(plan: Plan, metric: str, rows: Iterable[ArmRow]) -> dict[str, strata.Sides]:
    value_of = _LATENCY[metric]
    found: dict[str, tuple[list[int], list[int]]] = {}
    for row in rows:
        if plan.priority and row.priority != plan.priority:
            continue
        value_us = value_of(row)
        if value_us is not None:
            found.setdefault(kind_of(row), ([], []))[row.arm == CANARY].append(value_us)
    return {kind: (sorted(sides[0]), sorted(sides[1])) for kind, sides in found.items()}


def _ttft_us(row: ArmRow) -> int | None:
    """A request without a token is as late as its deadline at least; one given up is not late."""
    if row.first_token_us is not None:
        return row.first_token_us
    return None if user_cancelled_unserved(row) else max(row.e2e_us, row.deadline_us)


_LATENCY: dict[str, Callable[[ArmRow], int | None]] = {
    "ttft_p99": _ttft_us,
    "itl_p99": lambda row: row.itl_mean_us,
    "e2e_p99": lambda row: row.e2e_us if row.status == "completed" else None,
}


def _ratios(metric: str, rows: Iterable[ArmRow]) -> dict[str, strata.Counts]:
    asks = _RATIO[metric]
    found: dict[str, list[list[int]]] = {}
    for row in rows:
        answer = asks(row)
        if answer is not None:
            side = found.setdefault(kind_of(row), [[0, 0], [0, 0]])[row.arm == CANARY]
            side[0] += answer
            side[1] += 1
    return {
        kind: ((sides[0][0], sides[0][1]), (sides[1][0], sides[1][1]))
        for kind, sides in found.items()
    }


def _completed_validly(row: ArmRow) -> bool | None:
    return None if user_cancelled_unserved(row) else valid_completion(row)


def _was_cancelled_by_user(row: ArmRow) -> bool | None:
    return row.status == "cancelled" and row.terminal_error_code == ABANDONED


def _broke_its_schema(row: ArmRow) -> bool | None:
    return None if row.schema_valid is None else row.schema_valid == 0


def _was_degraded(row: ArmRow) -> bool | None:
    return None if row.status != "completed" else row.degraded_from is not None


def _was_taken_over(row: ArmRow) -> bool | None:
    return None if row.taken_over is None else row.taken_over == 1


_RATIO: Mapping[str, Callable[[ArmRow], bool | None]] = {
    "valid_completion": _completed_validly,
    "schema_failures": _broke_its_schema,
    "user_cancels": _was_cancelled_by_user,
    "degraded": _was_degraded,
    "taken_over": _was_taken_over,
}


def _means(metric: str, rows: Iterable[ArmRow]) -> dict[str, tuple[strata.Pairs, strata.Pairs]]:
    pair_of = _MEANS[metric]
    found: dict[str, tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]] = {}
    for row in rows:
        if metric == "cost_per_valid" and unpriced(row):
            continue  # its nothing is no cost, and would make its arm the cheaper one
        side = found.setdefault(kind_of(row), (([], []), ([], [])))[row.arm == CANARY]
        top, bottom = pair_of(row)
        side[0].append(top)
        side[1].append(bottom)
    return dict(found)


_MEANS: Mapping[str, Callable[[ArmRow], tuple[int, int]]] = {
    "cost_per_valid": lambda row: (row.cost_total_pico, int(valid_completion(row))),
    "input_tokens": lambda row: (row.input_tokens, 1),
    "output_tokens": lambda row: (row.output_tokens, 1),
}
