"""Exact order statistics (SLO-1, SLO-7). Pure."""

from collections.abc import Sequence


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
