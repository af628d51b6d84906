"""How numbers and times are written: exact values, and properties over all of them."""

from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pages import formatting as f
from ledger.money import parse_units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "–"),
        (440_000, "440.0"),
        (5_216_040, "5,216.0"),
        (5_216_050, "5,216.1"),
        (49, "0.0"),
        (-50, "-0.1"),
        (-49, "0.0"),
    ],
)
def test_milliseconds_are_rounded_half_up_to_one_decimal(us, text):
    assert f.milliseconds(us) == text


def spaced(text: str) -> str:
    """A number and its unit stay on one line; a test writes a blank between them."""
    assert " µs" not in text and " ms" not in text and " %" not in text
    return text.replace(f.JOIN, " ")


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (640, "640 µs"),
        (440_000, "440.0 ms"),
        (5_216_000, "5.216 s"),
        (1_172_950, "1.173 s"),
        (125_000_000, "2 min 5 s"),
        (11_400_000_000, "3 h 10 min"),
        (90_000_000_000, "1 d 1 h"),
        (60_000_000, "1 min"),
        (-640, "-640 µs"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(us, text):
    assert spaced(f.duration(us)) == text


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (3_600_000_000, "0.003600"),
        (1, "0.000000000001"),
        (-3_600_000_000_000, "-3.600000"),
        (1_234_567 * 10**12, "1,234,567.000000"),
        (0, "0.000000"),
    ],
)
def test_an_amount_is_shown_whole_with_six_decimals_at_least(pico, text):
    assert f.units(pico) == text


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_what_is_shown_of_an_amount_reads_back_as_the_same_amount(pico):
    assert parse_units(f.units(pico).replace(",", "")) == pico


def test_amounts_of_a_column_have_their_points_in_line():
    texts = [f.aligned(pico) for pico in (1, 10**12, 3_600_000_000, 123_456_789_000)]
    behind = {len(text) - text.index(".") for text in texts[1:]}
    assert behind == {10}


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(1, 3, "33.3 %"), (-3, 2, "-150.0 %"), (0, 5, "0.0 %"), (5, 0, "–"), (2, 3, "66.7 %")],
)
def test_a_share_is_rounded_half_up(part, whole, text):
    assert spaced(f.percent(part, whole)) == text


def test_times_are_iso_with_the_zone_and_to_the_millisecond():
    assert f.iso(1_764_000_000_250_999) == "2025-11-24T16:00:00.250Z"
    india = timezone(timedelta(hours=5, minutes=30))
    assert f.iso(1_764_000_000_250_999, india) == "2025-11-24T21:30:00.250+05:30"


def test_an_id_is_shortened_to_where_ids_differ():
    assert f.short_id("req_0123456789abcdef") == "req_…89abcdef"
    assert f.short_id("req_1") == "req_1"
