"""A period is covered by rollup rows that exist, once each, as coarse as they can be."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ledger.rollups.cover import balance, cover
from ledger.rollups.projection import State
from ledger.rollups.tables import COARSE_MIN, DAY, HOUR, QUARTER, SHIFT, grain_us

QUARTER_US = grain_us(QUARTER)
HOUR_US = grain_us(HOUR)
DAY_US = grain_us(DAY)
quarters = st.integers(0, 40 * 96)


def state_at(newest_us):
    hour, shift, day = (newest_us // grain_us(grain) * grain_us(grain) for grain in COARSE_MIN)
    return State(1, (hour, shift, day))


@given(quarters, quarters, quarters)
def test_segments_tile_the_period_with_rows_that_are_there(one, other, newest):
    start_us, end_us = sorted((one * QUARTER_US, other * QUARTER_US))
    state = state_at(newest * QUARTER_US)
    segments = cover(start_us, end_us, state)
    edges = [start_us, *(segment.end_us for segment in segments)]
    assert [segment.start_us for segment in segments] == edges[:-1]
    assert edges[-1] == end_us
    for segment in segments:
        assert segment.start_us % grain_us(segment.grain_min) == 0
        assert segment.end_us % grain_us(segment.grain_min) == 0
        if segment.grain_min != QUARTER:
            assert segment.end_us <= state.until(segment.grain_min)
    assert all(a.grain_min != b.grain_min for a, b in itertools.pairwise(segments))


def test_a_shifted_month_takes_days_in_the_middle_and_quarter_hours_at_its_ends():
    start_us = 18 * HOUR_US + 2 * QUARTER_US
    segments = cover(start_us, start_us + 30 * DAY_US, state_at(60 * DAY_US))
    rows = [
        (one.grain_min, (one.end_us - one.start_us) // grain_us(one.grain_min)) for one in segments
    ]
    assert rows == [(QUARTER, 2), (HOUR, 5), (DAY, 29), (SHIFT, 3), (QUARTER, 2)]


def test_an_empty_period_has_no_segments():
    assert cover(DAY_US, DAY_US, state_at(DAY_US)) == ()


def quarters_of(segments):
    return Counter(
        quarter
        for segment in segments
        for quarter in range(segment.start_us // QUARTER_US, segment.end_us // QUARTER_US)
    )


@given(quarters, quarters, quarters)
def test_what_is_added_less_what_is_taken_is_each_quarter_hour_of_the_period_once(
    one, other, newest
):
    """CST-9: a day of a zone adds up from the UTC rows around it."""
    first, last = sorted((one, other))
    state = state_at(newest * QUARTER_US)
    found = balance(first * QUARTER_US, last * QUARTER_US, state)
    total = quarters_of(found.added)
    total.subtract(quarters_of(found.taken))
    assert {quarter: count for quarter, count in total.items() if count} == dict.fromkeys(
        range(first, last), 1
    )
    for segment in (*found.added, *found.taken):
        length_us = grain_us(segment.grain_min)
        assert segment.start_us % length_us == 0
        assert segment.end_us % length_us == 0
        if segment.grain_min != QUARTER:
            assert segment.end_us <= state.until(segment.grain_min)


def rows_of(segments):
    return [
        (one.grain_min, (one.end_us - one.start_us) // grain_us(one.grain_min)) for one in segments
    ]


def test_a_day_at_half_past_five_is_seven_rows_and_one_an_hour_ahead_of_utc_is_three():
    state = state_at(60 * DAY_US)
    start_us = 2 * DAY_US + 18 * HOUR_US + 2 * QUARTER_US
    found = balance(start_us, start_us + DAY_US, state)
    assert rows_of(found.added) == [(DAY, 1), (SHIFT, 1), (QUARTER, 2)]
    assert rows_of(found.taken) == [(QUARTER, 2), (SHIFT, 1)]
    start_us = 2 * DAY_US + 23 * HOUR_US
    found = balance(start_us, start_us + DAY_US, state)
    assert rows_of(found.added) == [(DAY, 1), (HOUR, 1)]
    assert rows_of(found.taken) == [(HOUR, 1)]
