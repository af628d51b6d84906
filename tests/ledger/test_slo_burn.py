"""SLO-5, SLO-6: time to exhaustion and the guard's tail, by hand at their ends."""

from fractions import Fraction

import pytest

from ledger.slo_burn import binomial_tail, exhausted_in_us


def test_time_to_exhaustion_is_rounded_down_and_none_where_nothing_is_known():
    assert exhausted_in_us(Fraction(1), Fraction(2, 3), 101) == 151  # 151.5
    assert exhausted_in_us(Fraction(1, 10**9), Fraction(1), 10) == 0
    assert exhausted_in_us(Fraction(1), Fraction(0), 10) is None
    assert exhausted_in_us(None, Fraction(1), 10) is None
    assert exhausted_in_us(Fraction(1), None, 10) is None


@pytest.mark.parametrize(
    ("bad", "valid", "share"), [(-1, 5, "0.1"), (6, 5, "0.1"), (1, 5, "0"), (1, 5, "1")]
)
def test_no_tail_is_told_of_counts_or_of_a_share_that_are_none(bad: int, valid: int, share: str):
    with pytest.raises(ValueError, match="no binomial"):
        binomial_tail(bad, valid, Fraction(share))


def test_a_tail_of_none_bad_is_certain_and_of_all_bad_is_a_power():
    assert binomial_tail(0, 0, Fraction(1, 2)) == 1
    assert binomial_tail(3, 3, Fraction(1, 2)) == pytest.approx(0.125, rel=1e-12)
