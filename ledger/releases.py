"""How two releases compare: tails, ratios and shares, with tests that decide (REL-5, REL-6). Pure.

Latencies are integer microseconds. Tail probabilities are exact sums of integers; nothing is ever a
pass for want of data: INCONCLUSIVE is an answer of its own.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Literal

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]

TAIL_DELTA = Fraction(10, 100)
TAIL_ALPHA = 0.01
TAIL_BASELINE_MINIMUM = 1_000
TAIL_CANARY_MINIMUM = 300
RATIO_MARGIN = 0.01
RATIO_CONFIDENCE = 0.95
RATIO_MINIMUM = 30  # in each side
SHARE_ALPHA = 0.001
SAMPLES_LIMIT = 1_000_000  # in each side of a tail test


@dataclass(frozen=True, slots=True, kw_only=True)
class TailTest:
    """The exact exceedance test of one quantile of one latency."""

    quantile: Fraction
    baseline_count: int
    canary_count: int
    rank: int  # r: the baseline's order statistic that carries the threshold
    threshold_us: Fraction  # (1 + delta) x B_(r)
    exceeding: int  # canary values strictly above it
    p_value: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioTest:
    """A difference of two proportions, canary - baseline, with its confidence interval."""

    baseline_good: int
    baseline_count: int
    canary_good: int
    canary_count: int
    difference: float | None
    low: float | None
    high: float | None
    margin: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCheck:
    """Whether a canary got the share of traffic that its plan says."""

    canary_count: int
    total_count: int
    planned: Fraction
    chi_square: float
    p_value: float
    blocked: bool


def tail_test(
    baseline_us: Sequence[int],
    canary_us: Sequence[int],
    *,
    quantile: Fraction = Fraction(99, 100),
    delta: Fraction = TAIL_DELTA,
    alpha: float = TAIL_ALPHA,
    baseline_minimum: int = TAIL_BASELINE_MINIMUM,
    canary_minimum: int = TAIL_CANARY_MINIMUM,
) -> TailTest | None:
    """Whether the canary's quantile is worse than the baseline's by more than delta.

    Both sequences are sorted ascending. FAIL where the p value is at most alpha, PASS where not,
    INCONCLUSIVE where a side has fewer than its minimum. None where the baseline or the canary is
    empty: there is nothing to test. ValueError where a side exceeds SAMPLES_LIMIT.
    """
    n_b, n_c = len(baseline_us), len(canary_us)
    if n_b == 0 or n_c == 0:
        return None
    if max(n_b, n_c) > SAMPLES_LIMIT:
        raise ValueError(f"a tail test takes at most {SAMPLES_LIMIT} values a side")
    if not 0 < quantile <= 1 or delta < 0:
        raise ValueError(f"no tail test of quantile {quantile} with delta {delta}")
    rank = math.ceil(quantile * n_b)
    threshold_us = (1 + delta) * baseline_us[rank - 1]
    exceeding = n_c - bisect.bisect_right(canary_us, math.floor(threshold_us))
    p_value = exceedance_probability(n_b, rank, n_c, exceeding)
    enough = n_b >= baseline_minimum and n_c >= canary_minimum
    decided: Verdict = "FAIL" if p_value <= alpha else "PASS"
    return TailTest(
        quantile=quantile,
        baseline_count=n_b,
        canary_count=n_c,
        rank=rank,
        threshold_us=threshold_us,
        exceeding=exceeding,
        p_value=p_value,
        verdict=decided if enough else "INCONCLUSIVE",
    )


def exceedance_probability(
    baseline_count: int, rank: int, canary_count: int, exceeding: int
) -> float:
    """P(K >= exceeding) where both sides are of one distribution: the chance that it means nothing.

    K ~ BetaBinomial(canary_count, baseline_count - rank + 1, rank): how many of the canary's values
    lie above the baseline's rank-th smallest, whatever the (continuous) distribution. The terms are
    summed from logarithms, outwards from `exceeding`; correct to about 1e-10 relative to the larger
    tail. ValueError for counts that are none.
    """
    if not (1 <= rank <= baseline_count and 0 <= exceeding <= canary_count):
        raise ValueError(
            f"no exceedance of {exceeding} in {canary_count} above rank {rank} of {baseline_count}"
        )
    if exceeding == 0:
        return 1.0
    a, b = baseline_count - rank + 1, rank
    if exceeding * (a + b) > canary_count * a:  # above the mean: the upper tail is the smaller
        return min(1.0, _beta_binomial_sum(canary_count, a, b, exceeding, canary_count))
    return max(0.0, 1.0 - _beta_binomial_sum(canary_count, a, b, exceeding - 1, 0))


def _beta_binomial_sum(n: int, a: int, b: int, first: int, last: int) -> float:
    """The sum of the probabilities of first..last, in that order, until they no longer matter."""
    log_term = (
        _log_choose(first + a - 1, first)
        + _log_choose(n - first + b - 1, n - first)
        - _log_choose(n + a + b - 1, n)
    )
    term = total = math.exp(log_term)
    for k in range(first, last, 1 if last > first else -1):
        if last > first:
            term *= (k + a) * (n - k) / ((k + 1) * (n - k - 1 + b))
        else:
            term *= k * (n - k + b) / ((k - 1 + a) * (n - k + 1))
        total += term
        if term <= total * 1e-17:  # also where the first one is too small for a float
            break
    return total


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def wilson_interval(
    good: int, count: int, confidence: float = RATIO_CONFIDENCE
) -> tuple[float, float]:
    """The score interval of a proportion. ValueError for counts that are none."""
    if not 0 <= good <= count or count == 0:
        raise ValueError(f"no proportion of {good} in {count}")
    low, high = score_interval(good / count, count, confidence)
    return (0.0 if good == 0 else low), (1.0 if good == count else high)


def score_interval(share: float, count: float, confidence: float) -> tuple[float, float]:
    """The score interval of a share that counts as `count` independent ones (an effective count).

    Clipped to 0..1.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = share + z * z / (2 * count)
    spread = z * math.sqrt(max(0.0, share * (1 - share)) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def newcombe_interval(
    first: tuple[int, int], second: tuple[int, int], confidence: float = RATIO_CONFIDENCE
) -> tuple[float, float]:
    """Newcombe's hybrid score interval of first - second, each (good, count).

    56/70 - 48/80 gives .052431 .. .333873 (Newcombe 1998, method 10).
    """
    (good_1, count_1), (good_2, count_2) = first, second
    low_1, high_1 = wilson_interval(good_1, count_1, confidence)
    low_2, high_2 = wilson_interval(good_2, count_2, confidence)
    return _hybrid((good_1 / count_1, low_1, high_1), (good_2 / count_2, low_2, high_2))


def newcombe_of_shares(
    first: tuple[float, float], second: tuple[float, float], confidence: float = RATIO_CONFIDENCE
) -> tuple[float, float]:
    """As `newcombe_interval`, of shares with their effective counts."""
    (share_1, count_1), (share_2, count_2) = first, second
    low_1, high_1 = score_interval(share_1, count_1, confidence)
    low_2, high_2 = score_interval(share_2, count_2, confidence)
    return _hybrid((share_1, low_1, high_1), (share_2, low_2, high_2))


def _hybrid(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> tuple[float, float]:
    (share_1, low_1, high_1), (share_2, low_2, high_2) = first, second
    difference = share_1 - share_2
    low = difference - math.hypot(share_1 - low_1, high_2 - share_2)
    high = difference + math.hypot(high_1 - share_1, share_2 - low_2)
    return low, high


def against_margin(low: float, high: float, margin: float, *, higher_is_better: bool) -> Verdict:
    """What an interval of differences says: worse than the margin all of it, none, or some."""
    worst, best = (low, high) if higher_is_better else (-high, -low)
    if best < -margin:
        return "FAIL"
    return "PASS" if worst >= -margin else "INCONCLUSIVE"


def ratio_test(
    baseline: tuple[int, int],
    canary: tuple[int, int],
    *,
    higher_is_better: bool = True,
    margin: float = RATIO_MARGIN,
    confidence: float = RATIO_CONFIDENCE,
    minimum: int = RATIO_MINIMUM,
) -> RatioTest:
    """Whether the canary's proportion is worse than the baseline's by more than the margin.

    FAIL where the whole interval is worse than the margin, PASS where none of it is, INCONCLUSIVE
    between, and where a side has fewer than the minimum. Sides are (good, count).
    """
    (good_b, count_b), (good_c, count_c) = baseline, canary
    difference = low = high = None
    verdict: Verdict = "INCONCLUSIVE"
    if count_b and count_c:
        difference = good_c / count_c - good_b / count_b
        low, high = newcombe_interval(canary, baseline, confidence)
        if min(count_b, count_c) >= minimum:
            verdict = against_margin(low, high, margin, higher_is_better=higher_is_better)
    return RatioTest(
        baseline_good=good_b,
        baseline_count=count_b,
        canary_good=good_c,
        canary_count=count_c,
        difference=difference,
        low=low,
        high=high,
        margin=margin,
        verdict=verdict,
    )


def share_check(
    canary_count: int, total_count: int, planned: Fraction, *, alpha: float = SHARE_ALPHA
) -> ShareCheck | None:
    """Chi square of the canary's share against its plan; blocked where p < alpha (REL-6).

    780 of 10,000 at 10 % blocks, 930 doesn't. None where there was no traffic. ValueError for a
    plan outside (0, 1) or a count above the total.
    """
    if not 0 < planned < 1 or not 0 <= canary_count <= total_count:
        raise ValueError(f"no share check of {canary_count} in {total_count} at {planned}")
    if total_count == 0:
        return None
    expected = planned * total_count
    chi_square = (canary_count - expected) ** 2 / expected / (1 - planned)
    p_value = math.erfc(math.sqrt(float(chi_square) / 2))
    return ShareCheck(
        canary_count=canary_count,
        total_count=total_count,
        planned=planned,
        chi_square=float(chi_square),
        p_value=p_value,
        blocked=p_value < alpha,
    )
