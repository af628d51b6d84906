"""Charts are geometry: places in per cent, equal for equal values, never outside of the plot."""

import re
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pages.charts import (
    Distribution,
    Phase,
    Series,
    clock_ticks,
    ecdf,
    log_ticks,
    stacked_bars,
    ticks,
    time_series,
    waterfall,
)


def phase(start_us: int, length_us: int) -> Phase:
    return Phase(label="x", start_us=start_us, length_us=length_us, colour=1)


def share(text: str) -> float:
    return float(text.removesuffix("%"))


def test_a_waterfall_puts_each_phase_where_the_one_before_it_ends():
    found = waterfall([phase(0, 200), phase(200, 600), phase(800, 200)], deadline_us=1_000)
    assert found is not None
    assert [(bar.x, bar.width) for bar in found.bars] == [
        ("0%", "20%"),
        ("20%", "60%"),
        ("80%", "20%"),
    ]
    assert found.mark is not None
    assert found.mark.at == "100%"


def test_a_deadline_far_away_is_named_and_not_drawn():
    found = waterfall([phase(0, 1_000_000)], deadline_us=60_000_000)
    assert found is not None
    assert (found.mark, found.mark_beyond) == (None, "deadline 1\u00a0min")


def test_without_measured_time_there_is_no_waterfall():
    assert waterfall([], deadline_us=1_000) is None


@given(
    st.lists(st.integers(min_value=0, max_value=10**10), min_size=1, max_size=6),
    st.integers(min_value=1, max_value=10**11),
)
def test_every_bar_lies_in_the_plot(lengths, deadline_us):
    start, phases = 0, []
    for length in lengths:
        phases.append(phase(start, length))
        start += length
    found = waterfall(phases, deadline_us)
    for bar in found.bars if found else ():
        assert 0 <= share(bar.x) <= 100
        assert share(bar.x) + share(bar.width) <= 100.06


def ends(first: float, last: float) -> list[tuple[float, str]]:
    return [(first, "begin"), (last, "end")]


@pytest.mark.parametrize(
    ("zone", "hours", "labels"),
    [
        ("UTC", 8.75, ["21:00", "00:00", "03:00"]),
        ("Asia/Kolkata", 2, ["00:30", "01:00", "01:30", "02:00"]),
        ("America/New_York", 24, ["18:00", "00:00", "06:00", "12:00"]),
        ("UTC", 0.25, ["18:55", "19:00", "19:05", "19:10"]),
    ],
)
def test_times_on_an_axis_are_round_in_the_chosen_zone(zone: str, hours: float, labels: list[str]):
    first_us = 1_795_978_500_000_000  # 29 Nov 2026 18:55 UTC
    found = clock_ticks(first_us, first_us + hours * 3_600_000_000, ZoneInfo(zone))
    assert [label for _, label in found] == labels
    assert all(first_us <= at <= first_us + hours * 3_600_000_000 for at, _ in found)


def test_a_gap_in_a_series_is_a_gap_in_its_line():
    series = Series(label="a", points=((0, 1.0), (1, None), (2, 1.0), (3, 1.0)))
    plot = time_series([series], x_ticks=ends, y_label=str)
    assert plot is not None
    assert plot.lines[0].path.count("M") == 2


def test_a_series_without_any_value_has_no_plot():
    series = Series(label="a", points=((0, None), (1, None)))
    assert time_series([series], x_ticks=ends, y_label=str) is None


@given(
    st.lists(
        st.tuples(st.integers(1, 10**8), st.integers(0, 10**6), st.integers(0, 1_000)), max_size=20
    )
)
def test_a_cumulative_curve_rises_from_none_to_all(raw):
    start, bins = 1, []
    for gap, width, count in raw:
        start += gap
        bins.append((start, start + width, count))
        start += width + 1
    plot = ecdf([Distribution(label="a", bins=tuple(bins))])
    if not any(count for _, _, count in bins):
        assert plot is None
        return
    assert plot is not None
    spots = [
        (float(x), float(y))
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", plot.lines[0].path)
    ]
    assert spots[0][1] == 1000
    assert spots[-1] == (1000, 0)
    assert all(a[0] <= b[0] and a[1] >= b[1] for a, b in pairwise(spots))


def test_a_curve_with_a_band_has_a_closed_area_within_the_plot():
    bins = ((10, 20, 5), (21, 40, 5))
    plot = ecdf([Distribution(label="a", bins=bins, band=0.3), Distribution(label="b", bins=bins)])
    assert plot is not None
    (area,) = plot.areas
    assert (area.label, area.path[-1]) == ("a", "Z")
    heights = [float(y) for _, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", area.path)]
    assert (min(heights), max(heights)) == (0, 1000)


def test_stacked_parts_lie_side_by_side_and_end_at_their_total():
    found = stacked_bars([("a", "4", [1, 3]), ("b", "2", [2, 0])], ["x", "y"])
    assert found is not None
    assert [(p.x, p.width, p.colour) for p in found.stacks[0].parts] == [
        ("0%", "25%", 1),
        ("25%", "75%", 2),
    ]
    assert found.stacks[1].end == "50%"
    assert len(found.stacks[1].parts) == 1


def test_bars_of_nothing_are_not_drawn():
    assert stacked_bars([("a", "0", [0, 0])], ["x", "y"]) is None


def test_ticks_are_round_numbers():
    assert ticks(0, 10) == (0, 2, 4, 6, 8, 10)
    assert ticks(0, 0.31) == (0, 0.1, 0.2, 0.3)
    assert log_ticks(90, 2_100) == (100, 200, 500, 1_000, 2_000)
    assert log_ticks(1, 10**6) == (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
    assert log_ticks(7, 13) == (8, 10, 12)
