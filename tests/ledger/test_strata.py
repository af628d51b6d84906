"""REL-5, REL-6: request types are compared with themselves; evidence holds under peeking."""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from ledger.peeking import BadCounts, evidence
from ledger.releases import exceedance_probability, newcombe_interval
from ledger.strata import (
    beta_binomial_mass,
    mean_over_strata,
    ratio_over_strata,
    tail_over_strata,
)

VALUES = st.lists(st.integers(1, 10_000), min_size=1, max_size=80).map(sorted)


@given(st.integers(1, 400), st.integers(1, 200), st.data())
def test_the_mass_of_exceedances_is_scipys_beta_binomial(n_b, n_c, data):
    rank = data.draw(st.integers(1, n_b))
    mass = beta_binomial_mass(n_b, rank, n_c)
    expected = scipy.stats.betabinom(n_c, n_b - rank + 1, rank).pmf(np.arange(len(mass)))
    assert mass == pytest.approx(expected, rel=1e-9, abs=1e-14)


@given(VALUES, VALUES)
def test_one_stratum_is_the_exceedance_test_itself(baseline, canary):
    found = tail_over_strata({"chat": (baseline, canary)})
    part = found.strata[0]
    assert found.p_value == exceedance_probability(
        len(baseline), part.rank, len(canary), found.exceeding
    )


def test_two_strata_have_the_distribution_of_the_sum():
    first = (list(range(1, 201)), [300] * 3 + [1] * 97)
    second = (list(range(1, 401)), [600] * 2 + [1] * 48)
    found = tail_over_strata(
        {"a": (first[0], sorted(first[1])), "b": (second[0], sorted(second[1]))}
    )
    k = np.arange(0, 151)
    one = scipy.stats.betabinom(100, 3, 198).pmf(k)
    two = scipy.stats.betabinom(50, 5, 396).pmf(k)
    assert found.exceeding == 5
    assert found.p_value == pytest.approx(np.convolve(one, two)[5:].sum(), rel=1e-9)


def mixed(long_share, seed, count, slow=1.0):
    """Short and long requests of log-normal times; only the mix differs between two of them."""
    drawn = random.Random(seed)
    found = {"short": [], "long": []}
    for _ in range(count):
        kind = "long" if drawn.random() < long_share else "short"
        centre = 4_000_000 if kind == "long" else 200_000
        found[kind].append(int(centre * slow * math.exp(drawn.gauss(0, 0.3))))
    return {kind: sorted(values) for kind, values in found.items()}


def pair(baseline, canary):
    """Both sides' values of every kind together."""
    return tuple(sorted(side["short"] + side["long"]) for side in (baseline, canary))


def test_a_shift_in_mix_fakes_no_regression_and_hides_none():
    """REL-6: thirty times as many long requests are no slower tail; slower short ones are."""
    baseline, canary = mixed(0.01, 1, 4_000), mixed(0.30, 2, 1_000)
    pooled: Any = {"all": pair(baseline, canary)}
    assert tail_over_strata(pooled).verdict == "FAIL"
    by_type = {kind: (baseline[kind], canary[kind]) for kind in baseline}
    assert tail_over_strata(by_type).verdict == "PASS"
    baseline, canary = mixed(0.30, 3, 4_000), mixed(0.05, 4, 1_000, slow=1.6)
    pooled = {"all": pair(baseline, canary)}
    assert tail_over_strata(pooled).verdict == "PASS"
    by_type = {kind: (baseline[kind], canary[kind]) for kind in baseline}
    assert tail_over_strata(by_type).verdict == "FAIL"


def test_a_type_that_the_baseline_never_served_leaves_the_tail_undecided():
    baseline, canary = mixed(0.0, 1, 2_000), mixed(0.2, 2, 1_000)
    strata = {kind: (baseline[kind], canary[kind]) for kind in baseline}
    found = tail_over_strata(strata)
    assert found.uncompared == len(canary["long"])
    assert found.verdict == "INCONCLUSIVE"


def test_a_ratio_is_compared_at_the_baselines_mix():
    """REL-6: the same rates by type pass, however the mix turned; the plain ratio would not."""
    strata = {"easy": ((9_900, 10_000), (990, 1_000)), "hard": ((8_000, 10_000), (7_200, 9_000))}
    found = ratio_over_strata(strata, margin=0.03)
    assert (found.baseline_share, found.canary_share) == pytest.approx((0.895, 0.895))
    assert found.verdict == "PASS"
    worse = {"easy": ((990, 1_000), (850, 1_000)), "hard": ((800, 1_000), (800, 1_000))}
    assert ratio_over_strata(worse).verdict == "FAIL"


@given(st.integers(30, 500), st.integers(30, 500), st.data())
def test_of_one_stratum_the_ratio_is_newcombes(n_b, n_c, data):
    sides = ((data.draw(st.integers(0, n_b)), n_b), (data.draw(st.integers(0, n_c)), n_c))
    found = ratio_over_strata({"all": sides})
    assert (found.low, found.high) == pytest.approx(
        newcombe_interval(sides[1], sides[0]), abs=1e-12
    )


def test_nothing_is_never_a_pass():
    assert tail_over_strata({}).verdict == "INCONCLUSIVE"
    assert ratio_over_strata({}).verdict == "INCONCLUSIVE"
    assert mean_over_strata({}, delta=Fraction(1, 5)).verdict == "INCONCLUSIVE"
    nothing_valid = {"all": (([5] * 50, [0] * 50), ([5] * 50, [0] * 50))}
    assert mean_over_strata(nothing_valid, delta=Fraction(1, 5)).verdict == "INCONCLUSIVE"


def test_cost_per_valid_result_counts_what_was_spent_in_vain():
    """A canary as cheap by request fails where half of its answers are no valid results."""
    costs = [100 + n % 7 for n in range(1_000)]
    same = {"all": ((costs, [1] * 1_000), (costs, [1] * 1_000))}
    assert mean_over_strata(same, delta=Fraction(1, 5)).verdict == "PASS"
    wasted = {"all": ((costs, [1] * 1_000), (costs, [1, 0] * 500))}
    found = mean_over_strata(wasted, delta=Fraction(1, 5))
    assert found.ratio == pytest.approx(2.0)
    assert found.verdict == "FAIL"


def test_token_drift_is_two_sided():
    strata = {"all": (([100] * 40, [1] * 40), ([50] * 40, [1] * 40))}
    assert mean_over_strata(strata, delta=Fraction(1, 5), two_sided=True).verdict == "FAIL"
    assert mean_over_strata(strata, delta=Fraction(1, 5)).verdict == "PASS"


def test_the_e_value_acts_at_one_over_alpha_and_not_before():
    """REL-6: with a tenth of the traffic and of the bad requests there is no evidence."""
    tenth = Fraction(1, 10)
    fair = evidence([BadCounts(share=tenth, baseline_bad=900, canary_bad=100)])
    assert fair.e_value < 1
    assert not fair.stops
    bad = evidence([BadCounts(share=tenth, baseline_bad=10, canary_bad=10)], Fraction(1, 100))
    assert bad.e_value > 100
    assert bad.stops
    assert evidence([]).e_value == 1


def test_the_e_value_is_the_mean_of_a_bet_on_each_odds_by_hand():
    """At half of the traffic one bad request is 4/3, 8/5 and 16/9 of a chance, or 2/3, 2/5, 2/9."""
    half = Fraction(1, 2)
    canary, baseline = (
        BadCounts(share=half, baseline_bad=bad, canary_bad=1 - bad) for bad in (0, 1)
    )
    assert evidence([canary]).e_value == pytest.approx(212 / 135, rel=1e-12)
    assert evidence([baseline]).e_value == pytest.approx(58 / 135, rel=1e-12)
    both = [canary, baseline]
    assert evidence(both).e_value == pytest.approx((8 / 9 + 16 / 25 + 32 / 81) / 3, rel=1e-12)


def test_evidence_beyond_what_a_float_holds_is_told_as_the_largest():
    counts = BadCounts(share=Fraction(1, 10), baseline_bad=0, canary_bad=10**6)
    found = evidence([counts])
    assert (found.e_value, found.stops) == (math.exp(700), True)


def test_it_stops_where_the_limit_is_reached_and_not_only_passed():
    assert evidence([], Fraction(1)).stops


@pytest.mark.parametrize(
    ("share", "baseline", "canary"), [("0", 1, 1), ("1", 1, 1), ("1/2", -1, 1), ("1/2", 1, -1)]
)
def test_no_evidence_is_told_of_a_share_or_of_counts_that_are_none(share, baseline, canary):
    wrong = BadCounts(share=Fraction(share), baseline_bad=baseline, canary_bad=canary)
    with pytest.raises(ValueError, match="no evidence"):
        evidence([wrong])


@given(st.integers(1, 999), st.integers(1, 12))
def test_the_e_value_of_no_difference_has_an_expectation_of_one(permille, bad):
    """Over every split of the bad requests, weighted by its chance: a fair bet."""
    share = Fraction(permille, 1000)
    expectation = sum(
        scipy.stats.binom.pmf(canary, bad, float(share))
        * evidence([BadCounts(share=share, baseline_bad=bad - canary, canary_bad=canary)]).e_value
        for canary in range(bad + 1)
    )
    assert expectation == pytest.approx(1.0, rel=1e-9)


def test_peeking_after_every_bad_request_stops_few_rollouts_without_a_difference():
    """REL-6: 600 paths of 120 looks at alpha .01 cross its limit in at most one of a hundred."""
    drawn = random.Random(7)
    crossed = 0
    for _ in range(600):
        bad = [0, 0]
        for _ in range(120):
            bad[drawn.random() < 0.2] += 1
            counts = BadCounts(share=Fraction(1, 5), baseline_bad=bad[0], canary_bad=bad[1])
            if evidence([counts], Fraction(1, 100)).stops:
                crossed += 1
                break
    assert crossed <= 6
