"""REL-5, REL-6: intervals, weights and limits over request types, computed by hand."""

import math
from fractions import Fraction

import pytest

from ledger.strata import Pairs, mean_over_strata, ratio_over_strata, tail_over_strata

Z = 1.959963984540054  # the normal's 97.5 % quantile
FIFTH = Fraction(1, 5)
NOTHING: Pairs = ((), ())


def costs(*values: int) -> Pairs:
    """Requests that cost so much and are each one valid result."""
    return values, (1,) * len(values)


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        (costs(1, 3), 0.125**0.5),  # 2 on average, residuals ±1: √(1 / 2) / 2
        (((1, 3), (1, 0)), 1.125**0.5),  # 4 a result, residuals ±3: √(9 / 2) / 2
    ],
)
def test_the_interval_of_a_ratio_of_means_is_that_of_its_logarithm(pairs: Pairs, error: float):
    twice = tuple(2 * value for value in pairs[0]), pairs[1]
    found = mean_over_strata({"all": (pairs, twice)}, delta=FIFTH, confidence=0.95)
    assert found.ratio == 2
    spread = Z * error * 2**0.5
    assert (found.low, found.high) == pytest.approx(
        (2 * math.exp(-spread), 2 * math.exp(spread)), rel=1e-12
    )


def test_a_types_variance_is_weighted_by_the_square_of_its_share():
    """Half of the requests vary: √((1/2)² x 1/2) / 2 on either side."""
    strata = {"a": (costs(1, 3), costs(1, 3)), "b": (costs(2, 2), costs(2, 2))}
    found = mean_over_strata(strata, delta=FIFTH, confidence=0.95)
    spread = Z * 0.25
    assert (found.low, found.high) == pytest.approx(
        (math.exp(-spread), math.exp(spread)), rel=1e-12
    )


def test_means_are_compared_at_the_baselines_mix():
    """15 and 16.5 at three of a to one of b; at the canary's mix it were 25 and 29.5."""
    strata = {
        "a": (costs(10, 10, 10), costs(10)),
        "b": (costs(30), costs(36, 36, 36)),
    }
    found = mean_over_strata(strata, delta=FIFTH, minimum=4)
    assert (found.ratio, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))
    assert (found.baseline_count, found.canary_count, found.verdict) == (4, 4, "PASS")
    assert mean_over_strata(strata, delta=FIFTH, minimum=5).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("baseline", "canary", "verdict"),
    [
        (100, 120, "PASS"),
        (1_000, 1_201, "FAIL"),
        (120, 100, "PASS"),
        (1_201, 1_000, "FAIL"),
    ],
)
def test_a_drift_up_to_its_limit_is_none_on_either_side(baseline: int, canary: int, verdict: str):
    strata = {"all": (costs(*[baseline] * 4), costs(*[canary] * 4))}
    found = mean_over_strata(strata, delta=FIFTH, two_sided=True, minimum=4)
    assert found.verdict == verdict
    below = mean_over_strata(strata, delta=FIFTH, minimum=4).verdict
    assert below == ("PASS" if canary < baseline else verdict)


def test_an_interval_over_the_limit_on_one_end_only_decides_nothing():
    strata = {"all": (costs(1, 3), costs(1, 3))}
    for two_sided in (False, True):
        found = mean_over_strata(strata, delta=FIFTH, two_sided=two_sided, minimum=2)
        assert found.verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(("alone", "verdict"), [(1, "PASS"), (2, "INCONCLUSIVE")])
@pytest.mark.parametrize("side", [0, 1])
def test_up_to_a_twentieth_of_a_side_may_be_of_types_that_the_other_has_not(
    side: int, alone: int, verdict: str
):
    """1 of 20 is left out of the comparison; 2 of 21 leave it undecided."""
    odd = costs(*[9_000] * alone)
    strata = {
        "a": (costs(*[5] * 19), costs(*[5] * 19)),
        "b": (odd, NOTHING) if side == 0 else (NOTHING, odd),
    }
    mean = mean_over_strata(strata, delta=FIFTH, minimum=19)
    assert (mean.ratio, mean.verdict) == (1, verdict)
    assert (mean.baseline_count, mean.canary_count)[side] == 19 + alone
    counts = {
        "a": ((1_900, 1_900), (1_900, 1_900)),
        "b": ((0, 100 * alone), (0, 0)) if side == 0 else ((0, 0), (0, 100 * alone)),
    }
    ratio = ratio_over_strata(counts, minimum=1_900)
    assert (ratio.baseline_share, ratio.canary_share, ratio.verdict) == (1, 1, verdict)
    assert ratio_over_strata(counts, minimum=1_901).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(("alone", "verdict"), [(1, "PASS"), (2, "INCONCLUSIVE")])
def test_a_tail_leaves_out_up_to_a_twentieth_of_the_canary(alone: int, verdict: str):
    strata = {"a": (list(range(100)), [1] * 19), "b": ([], [9_000] * alone)}
    found = tail_over_strata(strata, baseline_minimum=100, canary_minimum=19)
    assert (found.uncompared, found.exceeding, found.verdict) == (alone, 0, verdict)
    assert [part.stratum for part in found.strata] == ["a"]


@pytest.mark.parametrize(
    ("baseline_minimum", "canary_minimum", "verdict"),
    [(100, 5, "PASS"), (101, 5, "INCONCLUSIVE"), (100, 6, "INCONCLUSIVE")],
)
def test_a_tail_of_fewer_values_than_the_minimum_decides_nothing(
    baseline_minimum: int, canary_minimum: int, verdict: str
):
    found = tail_over_strata(
        {"a": (list(range(100)), [1] * 5)},
        baseline_minimum=baseline_minimum,
        canary_minimum=canary_minimum,
    )
    assert found.verdict == verdict


def test_a_value_at_the_raised_quantile_is_no_slower_and_one_over_it_is():
    """The 99th of 1..100 is 99; raised by a tenth it is 108.9."""
    baseline = list(range(1, 101))
    for delta, at in ((Fraction(0), 99), (Fraction(1, 10), 108)):
        found = tail_over_strata({"a": (baseline, [at, at + 1, at + 1])}, delta=delta)
        (part,) = found.strata
        assert (part.rank, part.exceeding, found.exceeding) == (99, 2, 2)


def test_a_chance_of_just_alpha_fails():
    strata = {"a": (list(range(1, 101)), [1] * 18 + [500] * 2)}
    chance = tail_over_strata(strata).p_value
    assert 0 < chance < 1
    for alpha, verdict in ((chance, "FAIL"), (math.nextafter(chance, 0), "PASS")):
        found = tail_over_strata(strata, alpha=alpha, baseline_minimum=1, canary_minimum=1)
        assert found.verdict == verdict


def test_types_with_fewer_than_a_hundred_baseline_values_are_compared_as_one():
    few, more = list(range(99)), list(range(100))
    found = tail_over_strata({"a": (few, [1]), "b": (few, [1, 1]), "c": (more, [1])})
    assert [(part.stratum, part.baseline_count, part.canary_count) for part in found.strata] == [
        ("c", 100, 1),
        ("other", 198, 3),
    ]
