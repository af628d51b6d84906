"""The time model of one iteration, in integer picoseconds (SIM-1).

One iteration over P prefill tokens and B decodes, whose decode contexts add up to S and
whose prefill attention pairs add up to A, takes

    f(P + B) + c_b B + c_s S + c_a A  (+ c_mix where P > 0)

A decode is a scheduled request that lacks exactly one computed token; its context is the
number of tokens that it had computed before. A chunk of n tokens behind a prefix of p adds
n p + n (n - 1) / 2 pairs, always a whole number.

All coefficients are integers, so sums are associative: k skipped steps equal k single steps
bit for bit, on any platform. Floats would force tolerances; nanoseconds are too coarse,
because reading one token's KV costs 40 to 250 of them.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from math import sqrt

PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000

MAX_PS = 2**62
"""Times stay below this so that numpy lanes may add two of them in int64 (53 days)."""

MAX_PS_TEXT = f"{MAX_PS:,} ps (53 days)"

MAX_TRACE_US = MAX_PS // PS_PER_US // 2
"""The latest arrival of a trace, 26.7 days: as much is left for what then still runs."""

NEARLY_2 = 2.0 * (1.0 - 1e-12)
"""Keeps a root that was estimated in floating point from exceeding the exact one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRange:
    """What calibration has seen; a forecast beyond it is extrapolation and is flagged."""

    max_prefill_tokens: int
    max_decodes: int
    max_decode_context_sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeModel:
    """Integer coefficients of the iteration time.

    `breakpoints` are (tokens, ps) pairs of f, tokens strictly increasing from 0 or 1, ps not
    decreasing; f is linear between them, rounded down, and keeps its last slope beyond the
    last one. Raises ValueError where f could decrease, where an iteration could take no time, and
    for a coefficient of MAX_PS or more; TypeError for one that is no int.
    """

    name: str
    breakpoints: tuple[tuple[int, int], ...]
    per_decode_ps: int = 0
    per_context_token_ps: int = 0
    per_attention_pair_ps: int = 0
    mixed_ps: int = 0
    calibrated: bool = False
    observed: ObservedRange | None = None

    def __post_init__(self) -> None:
        coefficients = (
            self.per_decode_ps,
            self.per_context_token_ps,
            self.per_attention_pair_ps,
            self.mixed_ps,
        )
        whole_numbers("a time model", *coefficients, *chain.from_iterable(self.breakpoints))
        if not self.breakpoints or not 0 <= self.breakpoints[0][0] <= 1:
            raise ValueError("breakpoints must start at 0 or 1 tokens")
        for (x0, y0), (x1, y1) in zip(self.breakpoints, self.breakpoints[1:], strict=False):
            if x1 <= x0 or y1 < y0:
                raise ValueError("breakpoints must rise in tokens and may not fall in time")
        if min(coefficients) < 0:
            raise ValueError("coefficients may not be negative")
        if max(*coefficients, *chain.from_iterable(self.breakpoints)) >= MAX_PS:
            raise ValueError(f"no coefficient or breakpoint may reach {MAX_PS_TEXT}")
        if self.batch_ps(1) < 1:
            raise ValueError("an iteration must take at least one picosecond")

    def batch_ps(self, tokens: int) -> int:
        """Return f(tokens) in ps, rounded down between breakpoints; tokens >= 1."""
        points = self.breakpoints
        if len(points) == 1:
            return points[0][1]
        last = len(points) - 2
        i = min(last, max(0, bisect_right(points, (tokens, MAX_PS)) - 1))
        (x0, y0), (x1, y1) = points[i], points[i + 1]
        return y0 + (tokens - x0) * (y1 - y0) // (x1 - x0)

    def batch_table(self, max_tokens: int) -> list[int]:
        """Return [f(0), f(1), .. f(max_tokens)] in ps, for engines that look up instead.

        The entry for no tokens is 0: an empty iteration never runs.
        """
        return list(_batch_table(self, max_tokens))

    def iteration_ps(
        self,
        prefill_tokens: int,
        decodes: int,
        decode_context_sum: int,
        prefill_attention_sum: int,
    ) -> int:
        """Return the duration of one iteration in ps, exact."""
        return (
            self.batch_ps(prefill_tokens + decodes)
            + self.per_decode_ps * decodes
            + self.per_context_token_ps * decode_context_sum
            + self.per_attention_pair_ps * prefill_attention_sum
            + (self.mixed_ps if prefill_tokens else 0)
        )

    def scaled(self, factor: int) -> "TimeModel":
        """Return the model with all times multiplied by a positive integer.

        Whole multiples of f hold at the breakpoints; between them rounding down may differ by
        less than `factor` ps unless every slope is whole.
        """
        return TimeModel(
            name=self.name,
            breakpoints=tuple((x, y * factor) for x, y in self.breakpoints),
            per_decode_ps=self.per_decode_ps * factor,
            per_context_token_ps=self.per_context_token_ps * factor,
            per_attention_pair_ps=self.per_attention_pair_ps * factor,
            mixed_ps=self.mixed_ps * factor,
            calibrated=self.calibrated,
            observed=self.observed,
        )


@lru_cache(maxsize=8)
def _batch_table(model: TimeModel, max_tokens: int) -> tuple[int, ...]:
    """A fleet's replicas, and a sweep's runs, ask for the same one again and again."""
    points = model.breakpoints
    if len(points) == 1:
        return (0, *[points[0][1]] * max_tokens)
    table, end = [0], max_tokens + 1
    for number, ((x0, y0), (x1, y1)) in enumerate(pairwise(points), 2):
        until = end if number == len(points) else min(end, x1)
        table += [y0 + (n - x0) * (y1 - y0) // (x1 - x0) for n in range(max(1, x0), until)]
    return tuple(table)


def whole_numbers(owner: str, *values: object) -> None:
    """Return nothing where all are ints: compiled code takes no other, so neither does its source.

    Raises TypeError else: numpy's scalars would wrap around, floats be rounded.
    """
    for value in values:
        if not isinstance(value, int):
            raise TypeError(f"{owner} takes whole numbers, int, not {type(value).__name__}")


def beyond_time() -> OverflowError:
    """Return what to raise where times leave the range of MAX_PS."""
    return OverflowError(f"the simulation ran beyond {MAX_PS_TEXT}: rebase a longer trace")


def attention_pairs(chunk_tokens: int, prefix_tokens: int) -> int:
    """Return the query-key pairs of one prefill chunk: chunk x (prefix + (chunk - 1) / 2)."""
    return chunk_tokens * prefix_tokens + chunk_tokens * (chunk_tokens - 1) // 2


def stretch_ps(steps: int, a: int, b: int) -> int:
    """Return T(k) = k a + b k (k - 1) / 2 in ps, exact: the time of k pure decode steps."""
    return steps * a + b * (steps * (steps - 1) // 2)


def steps_until(span_ps: int, a: int, b: int) -> int:
    """Return the fewest steps (at least 1) whose stretch lasts `span_ps` or longer.

    The root is estimated in floating point and corrected in integers, so it is exact.
    """
    if span_ps <= a:
        return 1
    if b == 0:
        return -(-span_ps // a)
    p = a - b / 2
    steps = max(1, int(2 * span_ps / (p + sqrt(p * p + 2.0 * b * span_ps))))
    while stretch_ps(steps, a, b) < span_ps:
        steps += 1
    while steps > 1 and stretch_ps(steps - 1, a, b) >= span_ps:
        steps -= 1
    return steps


def steps_within(span_ps: int, a: int, b: int) -> int:
    """Return the most steps (possibly 0) that are over within `span_ps`, exact."""
    if span_ps < a:
        return 0
    steps = steps_until(span_ps, a, b)
    return steps if stretch_ps(steps, a, b) == span_ps else steps - 1


def roofline(
    *,
    name: str,
    weight_bytes: int,
    parameters: int,
    kv_bytes_per_token: int,
    attention_flops_per_pair: int,
    bandwidth_bytes_per_s: int,
    flops_per_s: int,
    overhead_ps: int = 0,
) -> TimeModel:
    """Return an uncalibrated model: weights over bandwidth, 2 x parameters over FLOP/s.

    A preset for rankings only: on real runs it missed by -12 to +108 %. Never below one ps a
    coefficient where the hardware figure is not zero; divisions round to nearest.
    """
    weights_ps = _divide(weight_bytes * PS_PER_S, bandwidth_bytes_per_s)
    token_flops = 2 * parameters
    knee_tokens = max(2, _divide(weights_ps * flops_per_s, token_flops * PS_PER_S))
    doubled_ps = _divide(2 * knee_tokens * token_flops * PS_PER_S, flops_per_s)
    floor_ps = max(1, weights_ps + overhead_ps)
    return TimeModel(
        name=name,
        breakpoints=(
            (0, floor_ps),
            (knee_tokens, floor_ps),
            (2 * knee_tokens, max(floor_ps, doubled_ps + overhead_ps)),
        ),
        per_context_token_ps=_at_least_one(kv_bytes_per_token * PS_PER_S, bandwidth_bytes_per_s),
        per_attention_pair_ps=_at_least_one(attention_flops_per_pair * PS_PER_S, flops_per_s),
        calibrated=False,
    )


def _divide(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _at_least_one(numerator: int, denominator: int) -> int:
    return max(1, _divide(numerator, denominator)) if numerator else 0
