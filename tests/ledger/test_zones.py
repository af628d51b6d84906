"""Local days, hours and months cover a period exactly, in any zone and across clock changes."""

import itertools
import zoneinfo
from datetime import UTC, date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import zones
from ledger.zones import Period

HOUR_US = 3_600_000_000
NAMES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})


@pytest.mark.parametrize(
    ("name", "offset_min"), [("UTC", 0), ("Z", 0), ("+05:30", 330), ("-0330", -210), ("+00:00", 0)]
)
def test_offsets_are_zones(name, offset_min):
    assert zones.parse_zone(name).utcoffset(None) == timedelta(minutes=offset_min)


@pytest.mark.parametrize(
    "name", ["", "+05:31", "+25:00", "Mars/Base", "../etc/passwd", "/etc/passwd", "x" * 99, "a\0b"]
)
def test_what_is_no_zone_is_refused_with_what_can_be_written(name):
    with pytest.raises(ValueError, match="write UTC"):
        zones.parse_zone(name)


@pytest.mark.parametrize(
    "name", ["localtime", "LocalTime", "posixrules", "Factory", "right/UTC", "posix/Asia/Kolkata"]
)
def test_a_zone_that_differs_from_host_to_host_or_counts_leap_seconds_is_refused(name):
    with pytest.raises(ValueError, match="write UTC"):
        zones.parse_zone(name)


def test_a_day_in_india_starts_at_half_past_six_in_the_evening_utc():
    period = zones.days(date(2026, 11, 29), date(2026, 11, 29), zones.parse_zone("Asia/Kolkata"))
    assert zones.to_local(period.start_us, UTC).isoformat() == "2026-11-28T18:30:00+00:00"
    assert period == zones.days(date(2026, 11, 29), date(2026, 11, 29), zones.parse_zone("+05:30"))


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/Havana", date(2026, 3, 8), 23),  # midnight is skipped
        ("America/Havana", date(2026, 11, 1), 25),  # midnight comes twice
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("UTC", date(2026, 3, 29), 24),
    ],
)
def test_a_day_is_as_long_as_its_clocks_say(zone, day, hours):
    parsed = zones.parse_zone(zone)
    period = zones.days(day, day, parsed)
    assert period.end_us - period.start_us == hours * HOUR_US
    assert {zones.to_local(at, parsed).date() for at in (period.start_us, period.end_us - 1)} == {
        day
    }
    assert zones.to_local(period.start_us - 1, parsed).date() == day - timedelta(days=1)


@given(
    st.sampled_from(NAMES),
    st.dates(date(2000, 1, 1), date(2035, 1, 1)),
    st.integers(1, 31),
    st.sampled_from(["hour", "day", "month"]),
)
def test_local_buckets_tile_their_period_in_every_zone(name, first, length, unit):
    zone = zones.parse_zone(name)
    period = zones.days(first, first + timedelta(days=length - 1), zone)
    found = zones.buckets(period, unit, zone)
    assert found[0].start_us == period.start_us
    assert found[-1].end_us == period.end_us
    assert all(a.end_us == b.start_us for a, b in itertools.pairwise(found))
    assert all(bucket.start_us % zones.QUARTER_US == 0 for bucket in found)
    if unit == "day":  # a day may be missing where a zone crossed the date line
        assert length - 1 <= len(found) <= length
    assert len({bucket.label for bucket in found}) == len(found)


def test_labels_name_the_local_time():
    zone = zones.parse_zone("+05:30")
    period = zones.days(date(2026, 11, 29), date(2026, 11, 30), zone)
    assert zones.buckets(period, "hour", zone)[1].label == "2026-11-29T01:00+05:30"
    assert [b.label for b in zones.buckets(period, "day", zone)] == ["2026-11-29", "2026-11-30"]
    assert [b.label for b in zones.buckets(period, "month", zone)] == ["2026-11"]


def test_a_recent_period_ends_with_the_present_quarter_hour():
    period = zones.recent(10 * HOUR_US + 1, HOUR_US)
    assert period.end_us == 10 * HOUR_US + zones.QUARTER_US
    assert period.end_us - period.start_us == HOUR_US


def test_more_buckets_than_the_limit_are_refused():
    period = zones.days(date(2026, 1, 1), date(2026, 12, 31), UTC)
    with pytest.raises(ValueError, match="shorter period"):
        zones.buckets(period, "hour", UTC)


@pytest.mark.parametrize(("start_us", "end_us"), [(1, zones.QUARTER_US), (zones.QUARTER_US, 0)])
def test_a_period_that_is_none_is_refused(start_us, end_us):
    with pytest.raises(ValueError, match="a period"):
        Period(start_us=start_us, end_us=end_us)
