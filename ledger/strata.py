"""Two sides compared request type by request type, so that a shift in mix decides nothing (REL-6).

Pure. A stratum is a kind of request (priority and size). Tails: the exact exceedance test within
each stratum, and the exact distribution of the sum. Ratios and means: weighted to the baseline's
mix. Nothing is ever a pass for want of data.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from ledger.releases import (
    RATIO_CONFIDENCE,
    RATIO_MARGIN,
    RATIO_MINIMUM,
    TAIL_ALPHA,
    TAIL_BASELINE_MINIMUM,
    TAIL_CANARY_MINIMUM,
    TAIL_DELTA,
    Verdict,
    against_margin,
    exceedance_probability,
    newcombe_of_shares,
)

STRATUM_MINIMUM = 100  # baseline values; smaller strata are compared as one
UNCOMPARED_LIMIT = Fraction(5, 100)  # of a side, in strata that the other side has not
OTHER = "other"
NEGLIGIBLE = 1e-30  # a probability that no longer counts, relative to the largest

Sides = tuple[Sequence[int], Sequence[int]]  # baseline, canary
Counts = tuple[tuple[int, int], tuple[int, int]]  # (good, count) of baseline, of canary


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumTail:
    """One stratum's part of a tail test: canary values above its own raised order statistic."""

    stratum: str
    baseline_count: int
    canary_count: int
    rank: int
    threshold_us: Fraction
    exceeding: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrataTail:
    """The exceedance test over all strata together; p is exact for the sum of `exceeding`."""

    baseline_count: int
    canary_count: int
    exceeding: int
    uncompared: int  # canary values of strata without a baseline
    p_value: float
    verdict: Verdict
    strata: tuple[StratumTail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrataRatio:
    """A difference of proportions, canary - baseline, at the baseline's mix; None: nothing."""

    baseline_count: int
    canary_count: int
    baseline_share: float | None
    canary_share: float | None  # at the baseline's mix
    low: float | None
    high: float | None
    margin: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class StrataMean:
    """A ratio of means, canary / baseline, at the baseline's mix; None: nothing to divide."""

    baseline_count: int
    canary_count: int
    ratio: float | None
    low: float | None
    high: float | None
    limit: float  # the largest ratio that is no worse
    verdict: Verdict


def tail_over_strata(
    strata: Mapping[str, Sides],
    *,
    quantile: Fraction = Fraction(99, 100),
    delta: Fraction = TAIL_DELTA,
    alpha: float = TAIL_ALPHA,
    baseline_minimum: int = TAIL_BASELINE_MINIMUM,
    canary_minimum: int = TAIL_CANARY_MINIMUM,
) -> StrataTail:
    """Whether the canary's quantile is worse by more than delta, request type by request type.

    Values are sorted ascending. In each stratum K ~ BetaBinomial(n_c, n_b - r + 1, r) holds
    whatever its share of the traffic, so the sum's distribution holds under any mix (REL-5, 6).
    FAIL where p <= alpha, PASS where not, INCONCLUSIVE with fewer values than the minimum or with
    more than UNCOMPARED_LIMIT of the canary in strata that the baseline has not.
    """
    pooled = _pooled(strata)
    parts = [
        _stratum_tail(name, baseline, canary, quantile, delta)
        for name, (baseline, canary) in pooled.items()
        if len(baseline) and len(canary)
    ]
    n_b = sum(len(baseline) for baseline, _ in pooled.values())
    n_c = sum(len(canary) for _, canary in pooled.values())
    compared = sum(part.canary_count for part in parts)
    exceeding = sum(part.exceeding for part in parts)
    p_value = _sum_tail(parts, exceeding) if parts else 1.0
    enough = n_b >= baseline_minimum and compared >= canary_minimum
    known = (n_c - compared) <= UNCOMPARED_LIMIT * n_c
    decided: Verdict = "FAIL" if p_value <= alpha else "PASS"
    return StrataTail(
        baseline_count=n_b,
        canary_count=n_c,
        exceeding=exceeding,
        uncompared=n_c - compared,
        p_value=p_value,
        verdict=decided if enough and known and parts else "INCONCLUSIVE",
        strata=tuple(parts),
    )


def ratio_over_strata(
    strata: Mapping[str, Counts],
    *,
    higher_is_better: bool = True,
    margin: float = RATIO_MARGIN,
    confidence: float = RATIO_CONFIDENCE,
    minimum: int = RATIO_MINIMUM,
) -> StrataRatio:
    """Whether the canary's proportion, at the baseline's mix, is worse by more than the margin.

    Newcombe's interval of the difference, with the effective count of the weighted side
    (1 / sum of w^2 / n, which is n where the mixes are equal). Three-way as `ratio_test`;
    INCONCLUSIVE, too, where strata that only one side has hold over UNCOMPARED_LIMIT of it.
    """
    both = {name: sides for name, sides in strata.items() if sides[0][1] and sides[1][1]}
    n_b, n_c = (sum(sides[side][1] for sides in strata.values()) for side in (0, 1))
    shared_b, shared_c = (sum(sides[side][1] for sides in both.values()) for side in (0, 1))
    share_b = share_c = low = high = None
    verdict: Verdict = "INCONCLUSIVE"
    if both:
        share_b = sum(sides[0][0] for sides in both.values()) / shared_b
        weights = {name: sides[0][1] / shared_b for name, sides in both.items()}
        share_c = sum(weights[name] * good / count for name, (_, (good, count)) in both.items())
        share_c = min(1.0, share_c)
        effective = 1 / sum(weights[name] ** 2 / count for name, (_, (_, count)) in both.items())
        low, high = newcombe_of_shares((share_c, effective), (share_b, shared_b), confidence)
        if min(shared_b, shared_c) >= minimum and _known(n_b, shared_b, n_c, shared_c):
            verdict = against_margin(low, high, margin, higher_is_better=higher_is_better)
    return StrataRatio(
        baseline_count=n_b,
        canary_count=n_c,
        baseline_share=share_b,
        canary_share=share_c,
        low=low,
        high=high,
        margin=margin,
        verdict=verdict,
    )


Pairs = tuple[Sequence[int], Sequence[int]]  # numerators and denominators, request by request


def mean_over_strata(
    strata: Mapping[str, tuple[Pairs, Pairs]],
    *,
    delta: Fraction,
    two_sided: bool = False,
    confidence: float = RATIO_CONFIDENCE,
    minimum: int = RATIO_MINIMUM,
) -> StrataMean:
    """Whether the canary's sum of numerators per denominator is over (1 + delta) x the baseline's.

    Cost per valid result is (costs, valid 0/1); token length drift is (tokens, ones), two-sided:
    shorter by as much is a drift as well. The interval is that of a ratio estimate's logarithm
    (linearised), at the baseline's mix. FAIL where all of it is beyond the limit, PASS where none
    is, INCONCLUSIVE between, under the minimum, and where a side's denominators are all 0.
    """
    both = {n: s for n, s in strata.items() if len(s[0][0]) and len(s[1][0])}
    n_b, n_c = (sum(len(sides[side][0]) for sides in strata.values()) for side in (0, 1))
    shared_b, shared_c = (sum(len(sides[side][0]) for sides in both.values()) for side in (0, 1))
    limit = 1 + float(delta)
    ratio = low = high = None
    verdict: Verdict = "INCONCLUSIVE"
    weights = {name: len(sides[0][0]) / shared_b for name, sides in both.items()}
    baseline = _ratio_estimate({name: sides[0] for name, sides in both.items()}, weights)
    canary = _ratio_estimate({name: sides[1] for name, sides in both.items()}, weights)
    if baseline is not None and canary is not None:
        ratio = canary[0] / baseline[0]
        spread = NormalDist().inv_cdf((1 + confidence) / 2) * math.hypot(canary[1], baseline[1])
        low, high = ratio * math.exp(-spread), ratio * math.exp(spread)
        if min(shared_b, shared_c) >= minimum and _known(n_b, shared_b, n_c, shared_c):
            floor = 1 / limit if two_sided else 0.0
            if low > limit or high < floor:
                verdict = "FAIL"
            elif high <= limit and low >= floor:
                verdict = "PASS"
    return StrataMean(
        baseline_count=n_b,
        canary_count=n_c,
        ratio=ratio,
        low=low,
        high=high,
        limit=limit,
        verdict=verdict,
    )


def _known(n_b: int, shared_b: int, n_c: int, shared_c: int) -> bool:
    """Whether the strata that both sides have hold nearly all of each."""
    return n_b - shared_b <= UNCOMPARED_LIMIT * n_b and n_c - shared_c <= UNCOMPARED_LIMIT * n_c


def _ratio_estimate(
    strata: Mapping[str, Pairs], weights: Mapping[str, float]
) -> tuple[float, float] | None:
    """(weighted sum of numerators per denominator, its relative standard error); None for none."""
    arrays = {
        name: (np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64))
        for name, (top, bottom) in strata.items()
    }
    top = sum(weights[name] * float(pair[0].mean()) for name, pair in arrays.items())
    bottom = sum(weights[name] * float(pair[1].mean()) for name, pair in arrays.items())
    if top <= 0 or bottom <= 0:
        return None
    ratio = top / bottom
    variance = sum(
        weights[name] ** 2 * float((pair[0] - ratio * pair[1]).var()) / len(pair[0])
        for name, pair in arrays.items()
    )
    return ratio, math.sqrt(variance) / top


def _pooled(strata: Mapping[str, Sides]) -> dict[str, Sides]:
    """The strata, those with a small baseline joined to one."""
    large = {name: sides for name, sides in strata.items() if len(sides[0]) >= STRATUM_MINIMUM}
    small = [sides for name, sides in sorted(strata.items()) if name not in large]
    if not small:
        return large
    joined = tuple(sorted(value for sides in small for value in sides[side]) for side in (0, 1))
    return {**large, OTHER: (joined[0], joined[1])}


def _stratum_tail(
    name: str,
    baseline: Sequence[int],
    canary: Sequence[int],
    quantile: Fraction,
    delta: Fraction,
) -> StratumTail:
    rank = math.ceil(quantile * len(baseline))
    threshold_us = (1 + delta) * int(baseline[rank - 1])
    return StratumTail(
        stratum=name,
        baseline_count=len(baseline),
        canary_count=len(canary),
        rank=rank,
        threshold_us=threshold_us,
        exceeding=len(canary) - bisect.bisect_right(canary, math.floor(threshold_us)),
    )


def _sum_tail(parts: Sequence[StratumTail], exceeding: int) -> float:
    """P(sum of the K >= exceeding) where each K is beta-binomial and they are independent."""
    if exceeding == 0:
        return 1.0
    if len(parts) == 1:
        only = parts[0]
        return exceedance_probability(
            only.baseline_count, only.rank, only.canary_count, only.exceeding
        )
    mass: npt.NDArray[np.float64] = np.ones(1)
    for part in parts:
        more = beta_binomial_mass(part.baseline_count, part.rank, part.canary_count)
        mass = np.asarray(np.convolve(mass, more), dtype=np.float64)
    return min(1.0, float(mass[exceeding:].sum()))


def beta_binomial_mass(
    baseline_count: int, rank: int, canary_count: int
) -> npt.NDArray[np.float64]:
    """float64[k]: P(K = k) of BetaBinomial(canary_count, baseline_count - rank + 1, rank).

    Cut off after the mode where terms are under NEGLIGIBLE of the largest.
    """
    a, b, n = baseline_count - rank + 1, rank, canary_count
    k = np.arange(n, dtype=np.float64)
    ratios = np.log((k + a) * (n - k)) - np.log((k + 1) * (n - k - 1 + b))
    logs = np.concatenate(([0.0], np.cumsum(ratios)))
    mass = np.exp(logs - logs.max())
    last = int(np.flatnonzero(mass > NEGLIGIBLE)[-1])
    kept: npt.NDArray[np.float64] = mass[: last + 1] / mass.sum()
    return kept
