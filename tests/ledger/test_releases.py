"""REL-5 and REL-6: the tests that compare two releases, held against SPEC's numbers and scipy."""

import math
from fractions import Fraction

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from ledger import releases

BASELINE_US = list(range(1_000, 1_001_000, 1_000))  # 1,000 values, 1 ms to 1 s


@pytest.mark.parametrize(
    ("n_b", "rank", "n_c", "exceeding", "p_value"),
    [
        (1_000, 990, 500, 10, 0.090442),
        (1_000, 990, 500, 13, 0.017885),
        (2_000, 1_980, 300, 9, 0.008924),
        (500, 475, 200, 20, 0.013871),
    ],
)
def test_the_exceedance_probability_has_the_published_values(n_b, rank, n_c, exceeding, p_value):
    assert round(releases.exceedance_probability(n_b, rank, n_c, exceeding), 6) == p_value


@st.composite
def exceedances(draw, most_b=3_000, most_c=2_000):
    n_b = draw(st.integers(1, most_b))
    n_c = draw(st.integers(1, most_c))
    return n_b, draw(st.integers(1, n_b)), n_c, draw(st.integers(0, n_c))


@given(exceedances())
def test_the_exceedance_probability_is_scipys(counts):
    n_b, rank, n_c, exceeding = counts
    expected = scipy.stats.betabinom.sf(exceeding - 1, n_c, n_b - rank + 1, rank)
    actual = releases.exceedance_probability(n_b, rank, n_c, exceeding)
    assert actual == pytest.approx(expected, rel=1e-6, abs=1e-8)


def exact_probability(n_b, rank, n_c, exceeding):
    """The same tail by whole numbers alone: every interleaving of the two samples is as likely."""
    a, b = n_b - rank + 1, rank
    ways = sum(
        math.comb(k + a - 1, k) * math.comb(n_c - k + b - 1, n_c - k)
        for k in range(exceeding, n_c + 1)
    )
    return Fraction(ways, math.comb(n_c + n_b, n_c))


@given(exceedances(60, 60))
def test_the_exceedance_probability_counts_interleavings(counts):
    exact = float(exact_probability(*counts))
    assert releases.exceedance_probability(*counts) == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_a_tail_test_counts_values_strictly_above_the_raised_order_statistic():
    # B_(990) = 990 ms, with 10 %: 1,089 ms. A value on the threshold doesn't exceed it.
    canary = sorted([500_000] * 487 + [1_089_000] * 3 + [1_089_001] * 10)
    test = releases.tail_test(BASELINE_US, canary)
    assert (test.rank, test.threshold_us, test.exceeding) == (990, 1_089_000, 10)
    assert round(test.p_value, 6) == 0.090442
    assert test.verdict == "PASS"


def test_a_worse_tail_fails_although_the_mean_is_better():
    canary = sorted([100_000] * 480 + [3_000_000] * 20)
    test = releases.tail_test(BASELINE_US, canary)
    assert sum(canary) / len(canary) < sum(BASELINE_US) / len(BASELINE_US)
    assert test.verdict == "FAIL"


def test_a_tail_with_too_few_samples_is_inconclusive_however_bad():
    assert releases.tail_test(BASELINE_US, [9_000_000] * 299).verdict == "INCONCLUSIVE"
    assert releases.tail_test(BASELINE_US[:999], [9_000_000] * 300).verdict == "INCONCLUSIVE"
    assert releases.tail_test(BASELINE_US, [9_000_000] * 300).verdict == "FAIL"


def test_a_tail_test_of_nothing_is_no_test():
    assert releases.tail_test([], [1]) is None
    assert releases.tail_test([1], []) is None


def test_newcombes_interval_has_the_published_bounds():
    low, high = releases.newcombe_interval((56, 70), (48, 80))
    assert (round(low, 6), round(high, 6)) == (0.052431, 0.333873)


proportions = st.integers(1, 5_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(proportions)
def test_the_score_interval_is_scipys(proportion):
    good, count = proportion
    expected = scipy.stats.binomtest(good, count).proportion_ci(0.95, method="wilson")
    assert releases.wilson_interval(good, count) == pytest.approx(
        (expected.low, expected.high), abs=1e-9
    )


@given(proportions, proportions)
def test_the_interval_of_a_difference_holds_it_and_turns_with_its_sides(first, second):
    low, high = releases.newcombe_interval(first, second)
    difference = first[0] / first[1] - second[0] / second[1]
    assert -1 - 1e-9 <= low <= difference + 1e-12
    assert difference - 1e-12 <= high <= 1 + 1e-9
    assert releases.newcombe_interval(second, first) == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize(
    ("baseline", "canary", "verdict"),
    [
        ((9_900, 10_000), (9_900, 10_000), "PASS"),
        ((9_900, 10_000), (9_000, 10_000), "FAIL"),
        ((99, 100), (97, 100), "INCONCLUSIVE"),
        ((29, 29), (0, 29), "INCONCLUSIVE"),
        ((0, 0), (10, 10), "INCONCLUSIVE"),
        ((10, 10), (0, 0), "INCONCLUSIVE"),
    ],
)
def test_a_ratio_is_decided_three_ways(baseline, canary, verdict):
    assert releases.ratio_test(baseline, canary).verdict == verdict


def test_of_a_ratio_that_should_be_low_the_higher_side_is_worse():
    worse = releases.ratio_test((100, 10_000), (1_000, 10_000), higher_is_better=False)
    better = releases.ratio_test((1_000, 10_000), (100, 10_000), higher_is_better=False)
    assert (worse.verdict, better.verdict) == ("FAIL", "PASS")


@pytest.mark.parametrize(("canary", "blocked"), [(780, True), (930, False), (1_000, False)])
def test_a_share_that_strays_from_its_plan_blocks(canary, blocked):
    check = releases.share_check(canary, 10_000, Fraction(1, 10))
    assert check.blocked is blocked


@given(st.integers(1, 100_000), st.integers(0, 100), st.integers(1, 999))
def test_the_share_check_is_scipys_chi_square(total, percent, permille):
    canary = total * percent // 100
    check = releases.share_check(canary, total, Fraction(permille, 1_000))
    expected = [total * permille / 1_000, total * (1_000 - permille) / 1_000]
    reference = scipy.stats.chisquare([canary, total - canary], expected)
    assert check.chi_square == pytest.approx(reference.statistic, rel=1e-9, abs=1e-9)
    assert check.p_value == pytest.approx(reference.pvalue, rel=1e-7, abs=1e-12)


def test_a_share_of_no_traffic_is_not_checked():
    assert releases.share_check(0, 0, Fraction(1, 10)) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: releases.exceedance_probability(10, 11, 5, 1),
        lambda: releases.exceedance_probability(10, 5, 5, 6),
        lambda: releases.wilson_interval(1, 0),
        lambda: releases.wilson_interval(3, 2),
        lambda: releases.share_check(5, 4, Fraction(1, 2)),
        lambda: releases.share_check(5, 10, Fraction(1)),
        lambda: releases.tail_test([1], [1], quantile=Fraction(0)),
    ],
)
def test_counts_that_can_not_be_are_refused(call):
    with pytest.raises(ValueError, match=r"no |tail test"):
        call()
