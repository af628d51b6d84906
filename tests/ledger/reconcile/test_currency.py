"""REC-2: an amount through a rate of exchange: exact, half to even, and never through no rate."""

import pytest

from ledger.reconcile.currency import converted, rate_scaled

HALF = 5 * 10**17


@pytest.mark.parametrize(
    ("pico", "expected"),
    [(1, 0), (2, 1), (3, 2), (5, 2), (-1, 0), (-3, -2), (-5, -2), (10**22, 5 * 10**21)],
)
def test_half_a_pico_unit_goes_to_the_even_one(pico: int, expected: int):
    assert converted(pico, HALF) == expected


@pytest.mark.parametrize(("scaled", "expected"), [(HALF - 1, 0), (HALF + 1, 1), (10**18, 1)])
def test_beside_a_half_it_is_the_nearer_pico_unit(scaled: int, expected: int):
    assert converted(1, scaled) == expected


def test_a_rate_is_read_exactly_to_its_last_place():
    assert rate_scaled("1.0873") == 1_087_300_000_000_000_000
    assert rate_scaled("0.000000000000000001") == 1


@pytest.mark.parametrize("text", ["0", "0.000", "-1", "-0.000000000000000001"])
def test_a_rate_of_nothing_or_less_is_refused(text: str):
    with pytest.raises(ValueError, match="must be above 0"):
        rate_scaled(text)
