"""Exact order statistics, and how sure they are (SLO-1, SLO-7). Pure."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from ledger.slo_burn import binomial_tail

MISSED = 0.05  # the chance that an interval or a band misses what it is of


def nearest_rank(ordered: Sequence[int], numerator: int, denominator: int) -> int:
    """Return the nearest-rank quantile of sorted values: the ceil(q n)-th smallest, q exact.

    p99 of 1..100 is 99. Raises ValueError for no values and for q outside (0, 1].
    """
    if not ordered:
        raise ValueError("a quantile of no values: NO_DATA is an answer of its own")
    if not 0 < numerator <= denominator:
        raise ValueError(f"a quantile lies in (0, 1], not at {numerator}/{denominator}")
    return ordered[nearest_rank_index(len(ordered), numerator, denominator)]


def nearest_rank_index(count: int, numerator: int, denominator: int) -> int:
    """Return the place of the nearest-rank quantile among `count` sorted values, from 0."""
    return -(-numerator * count // denominator) - 1


@lru_cache(maxsize=1_024)
def interval_ranks(count: int, numerator: int, denominator: int) -> tuple[int | None, int | None]:
    """Ranks, from 1, between which a quantile lies but for a chance of MISSED, of any distribution.

    The low and the high order statistic of `count` values whose q-quantile is asked for; None for a
    side that so few values don't bound. p99 of 1,000: 983 and 997. How many values lie under the
    quantile is binomial; each side misses with at most half of the chance.
    """
    share = Fraction(numerator, denominator)
    if count < 1 or not 0 < share < 1:
        return None, None
    half, mean = MISSED / 2, float(count * share)
    reach = 3 + 3 * math.sqrt(mean * (1 - float(share)))
    low, high = max(1, math.floor(mean - reach)), min(count, math.ceil(mean + reach))
    while low < high and 1 - binomial_tail(low + 1, count, share) <= half:
        low += 1
    while high > low and binomial_tail(high - 1, count, share) <= half:
        high -= 1
    return (
        low if 1 - binomial_tail(low, count, share) <= half else None,
        high if binomial_tail(high, count, share) <= half else None,
    )


def band_of(count: int) -> float:
    """How far the share of values under any point may be from the true one: a band for all points.

    Dvoretzky, Kiefer and Wolfowitz with Massart's constant; it misses with a chance of MISSED.
    1,000 values: .0429. 1 where there is no value.
    """
    return min(1.0, math.sqrt(math.log(2 / MISSED) / (2 * count))) if count else 1.0
