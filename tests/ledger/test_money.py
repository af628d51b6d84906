"""Pico units as text, limbs and shares: exact in every digit (LED-3)."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.money import (
    INT64_MAX,
    INT64_MIN,
    LIMB,
    allocate,
    int64,
    join,
    parse_scaled,
    parse_units,
    split,
    units_text,
)


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (-1, "-0.000000000001"),
        (10**12 - 1, "0.999999999999"),
        (10**12 + 1, "1.000000000001"),
        (-(10**12), "-1"),
        (3_600_000_000, "0.0036"),
        (3_600_000_000_000, "3.6"),
        (-50_400_000_000, "-0.0504"),
        (10**12, "1"),
        (INT64_MAX, "9223372.036854775807"),
    ],
)
def test_an_amount_is_written_exactly_and_read_back(pico, text):
    assert units_text(pico) == text
    assert parse_units(text) == pico


@pytest.mark.parametrize(
    ("text", "pico"),
    [("2e-06", 2_000_000), ("1.50", 1_500_000_000_000), ("+0.0", 0), ("1E2", 10**14)],
)
def test_other_spellings_of_a_decimal_are_read_exactly(text, pico):
    assert parse_units(text) == pico


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1,5",
        " 1",
        "1.",
        ".5",
        "nan",
        "inf",
        "1e999",
        "0x10",
        "1_000",
        "٣",
        "1" * 65,
        "1e31",
    ],
)
def test_what_is_no_decimal_is_refused(text):
    with pytest.raises(ValueError, match=r"decimal|exponent"):
        parse_units(text)


def test_an_amount_finer_than_a_pico_unit_is_refused_and_never_rounded():
    with pytest.raises(ValueError, match="finer than 12"):
        parse_units("0.0000000000001")
    assert parse_scaled("0.250", 2) == 25


def test_the_longest_text_and_the_widest_exponents_are_read_and_no_further():
    assert parse_units("0" * 63 + "1") == 10**12
    assert parse_units("1e30") == 10**42
    assert parse_scaled("1e30", 0) == 10**30
    assert parse_scaled("1" + "0" * 30 + "e-30", 0) == 1
    for text in ("1e-31", "1e31"):
        with pytest.raises(ValueError, match="exponent beyond"):
            parse_scaled(text, 40)


def test_a_value_beyond_64_bits_is_refused_by_name():
    assert int64(INT64_MAX, "cost_pico") == INT64_MAX
    assert int64(INT64_MIN, "cost_pico") == INT64_MIN
    for value in (INT64_MAX + 1, INT64_MIN - 1):
        with pytest.raises(OverflowError, match="cost_pico"):
            int64(value, "cost_pico")


@given(st.integers(-(10**40), 10**40))
def test_every_amount_survives_being_written_and_read(pico):
    assert Decimal(units_text(pico)) * 10**12 == Decimal(pico) or abs(pico) > 10**28
    if len(units_text(pico)) <= 64:
        assert parse_units(units_text(pico)) == pico


@given(st.lists(st.integers(INT64_MIN, INT64_MAX), max_size=50))
def test_limbs_added_up_apart_join_to_the_exact_sum(amounts):
    limbs = [split(amount) for amount in amounts]
    assert all(0 <= low < LIMB for _, low in limbs)
    highs, lows = sum(high for high, _ in limbs), sum(low for _, low in limbs)
    assert join(highs, lows) == sum(amounts)


def test_ten_thousand_over_three_equal_weights_gives_the_odd_one_to_the_first():
    assert allocate(10_000, (1, 1, 1)) == (3_334, 3_333, 3_333)


def test_the_largest_remainder_gets_the_odd_one():
    assert allocate(10, (1, 3, 3)) == (2, 4, 4)
    assert allocate(100, (0, 1, 2)) == (0, 33, 67)


@pytest.mark.parametrize("weights", [(), (0, 0), (1, -1, 5)])
def test_weights_that_share_nothing_are_refused(weights):
    with pytest.raises(ValueError, match="can't share out"):
        allocate(10, weights)


@given(
    st.integers(-(10**18), 10**18),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=12).filter(any),
)
def test_shares_add_up_and_are_each_within_one_of_proportion(amount, weights):
    shares = allocate(amount, weights)
    assert sum(shares) == amount
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share * sum(weights) - amount * weight) < sum(weights)
