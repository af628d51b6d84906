"""How sure a quantile and a distribution are, held against scipy (SLO-1, REL-2)."""

import bisect
import random

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from ledger.quantiles import (
    MISSED,
    band_of,
    interval_ranks,
    nearest_rank,
    nearest_rank_index,
)


@given(count=st.integers(1, 3_000), percent=st.sampled_from([1, 5, 50, 95, 99]))
def test_the_ranks_are_the_tightest_that_the_binomial_allows(count, percent):
    low, high = interval_ranks(count, percent, 100)
    share, half = percent / 100, MISSED / 2
    tight = 1e-9
    if low is None:
        assert scipy.stats.binom.cdf(0, count, share) > half - tight
    else:
        assert scipy.stats.binom.cdf(low - 1, count, share) <= half + tight
        assert low == count or scipy.stats.binom.cdf(low, count, share) > half - tight
    if high is None:
        assert scipy.stats.binom.sf(count - 1, count, share) > half - tight
    else:
        assert scipy.stats.binom.sf(high - 1, count, share) <= half + tight
        assert high == 1 or scipy.stats.binom.sf(high - 2, count, share) > half - tight


@given(
    values=st.lists(st.integers(0, 10**9), min_size=1, max_size=300),
    percent=st.integers(1, 100),
)
def test_the_nearest_rank_is_the_inverse_of_the_empirical_distribution(values, percent):
    """SLO-7: the smallest value that at least so many hundredths of all are at or under."""
    ordered = sorted(values)
    exact = nearest_rank(ordered, percent, 100)
    reached = scipy.stats.ecdf(ordered).cdf
    at = [bisect.bisect_right(ordered, each) for each in reached.quantiles]
    expected = next(
        int(value)
        for value, count in zip(reached.quantiles, at, strict=True)
        if 100 * count >= percent * len(ordered)
    )
    assert exact == expected


@pytest.mark.parametrize(
    ("count", "percent", "ranks"),
    [(1_000, 99, (983, 997)), (100, 50, (40, 61)), (100, 99, (97, None)), (5, 50, (None, None))],
)
def test_a_few_ranks_by_their_numbers(count, percent, ranks):
    assert interval_ranks(count, percent, 100) == ranks


def test_of_many_samples_nearly_all_intervals_hold_the_true_p99():
    """Uniform on 0..1: the true p99 is .99."""
    drawn, missed = random.Random(7), 0
    low, high = interval_ranks(1_000, 99, 100)
    assert low is not None
    assert high is not None
    for _ in range(400):
        ordered = sorted(drawn.random() for _ in range(1_000))
        assert ordered[low - 1] <= ordered[nearest_rank_index(1_000, 99, 100)] <= ordered[high - 1]
        missed += not ordered[low - 1] <= 0.99 <= ordered[high - 1]
    assert missed <= 400 * MISSED


def test_the_band_of_a_distribution_narrows_with_its_requests():
    assert band_of(0) == 1.0
    assert round(band_of(1_000), 4) == 0.0429
    assert round(band_of(100_000), 4) == 0.0043
