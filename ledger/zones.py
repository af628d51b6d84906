"""Reporting time zones and periods: which UTC microseconds a local day, hour or month covers.

Pure but for the zone database. Buckets are quarter hours, which every zone in use today keeps to
(CST-9): a local day is always whole quarter hours, also at +05:30 and across a clock change.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Unit = Literal["hour", "day", "month"]

QUARTER_US = 900_000_000
HOUR_US = 4 * QUARTER_US
PERIOD_LIMIT_DAYS = 3_660
BUCKETS_LIMIT = 800  # a month of hours, two years of days
ZONE_NAME_LIMIT = 64

# Names of the zone database that stand for another zone on another host, or count leap seconds.
_HOST_ZONES = frozenset({"localtime", "posixrules", "factory", "posix", "right"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """start_us <= t < end_us, in whole quarter hours."""

    start_us: int
    end_us: int

    def __post_init__(self) -> None:
        if self.start_us % QUARTER_US or self.end_us % QUARTER_US:
            raise ValueError("a period starts and ends on a quarter hour")
        if not 0 <= self.end_us - self.start_us <= PERIOD_LIMIT_DAYS * 86_400_000_000:
            raise ValueError(f"a period runs forward, for at most {PERIOD_LIMIT_DAYS} days")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBucket:
    """A local hour, day or month within a period; cut where the period begins or ends in it."""

    label: str  # 2026-11-29T14:00+05:30, 2026-11-29 or 2026-11
    start_us: int
    end_us: int


@lru_cache(maxsize=256)
def parse_zone(name: str) -> tzinfo:
    """The zone of a name ("Asia/Kolkata"), an offset ("+05:30", "-0330") or "UTC".

    ValueError, saying what can be written, for anything else and for an offset that is no whole
    number of quarter hours.
    """
    if len(name) <= ZONE_NAME_LIMIT:
        if name in {"UTC", "Z"}:
            return UTC
        offset = _OFFSET.fullmatch(name)
        if offset is not None:
            minutes = int(offset[2]) * 60 + int(offset[3])
            if minutes % 15 == 0:
                return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
        elif name.split("/")[0].lower() not in _HOST_ZONES and re.fullmatch(
            r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", name
        ):
            try:
                return ZoneInfo(name)
            except (ZoneInfoNotFoundError, OSError, ValueError):
                pass
    raise ValueError(
        f"{name[:ZONE_NAME_LIMIT]!r} is no time zone; write UTC, +05:30 or a name as Asia/Kolkata"
    )


def to_us(moment: datetime) -> int:
    """Microseconds since the epoch of an aware time."""
    return (moment - _EPOCH) // _MICROSECOND


def to_local(at_us: int, zone: tzinfo) -> datetime:
    """The aware local time of microseconds since the epoch."""
    return (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone)


def day_start_us(day: date, zone: tzinfo) -> int:
    """When the local day begins: its first instant, also where midnight is skipped or twice."""
    return to_us(datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC))


def days(first: date, last: date, zone: tzinfo) -> Period:
    """The period of the local days first..last, both inclusive."""
    start_us = day_start_us(first, zone)
    return Period(start_us=start_us, end_us=day_start_us(last + timedelta(days=1), zone))


def recent(now_us: int, length_us: int) -> Period:
    """The period of this length that ends with the quarter hour in which `now_us` lies."""
    end_us = now_us - now_us % QUARTER_US + QUARTER_US
    return Period(start_us=end_us - length_us, end_us=end_us)


def buckets(period: Period, unit: Unit, zone: tzinfo) -> tuple[LocalBucket, ...]:
    """The local hours, days or months of a period, in order: they cover it without gap or overlap.

    ValueError where there would be more than BUCKETS_LIMIT.
    """
    found: list[LocalBucket] = []
    start_us = period.start_us
    while start_us < period.end_us:
        if len(found) == BUCKETS_LIMIT:
            raise ValueError(f"more than {BUCKETS_LIMIT} {unit}s: choose a shorter period")
        local = to_local(start_us, zone)
        end_us = min(_NEXT[unit](start_us, local, zone), period.end_us)
        found.append(LocalBucket(label=_LABEL[unit](local), start_us=start_us, end_us=end_us))
        start_us = end_us
    return tuple(found)


def _next_hour(start_us: int, local: datetime, zone: tzinfo) -> int:
    # In elapsed time, so that an hour that comes twice at a clock change is two buckets.
    return start_us + (60 - local.minute) * 60_000_000


def _next_day(start_us: int, local: datetime, zone: tzinfo) -> int:
    return day_start_us(local.date() + timedelta(days=1), zone)


def _next_month(start_us: int, local: datetime, zone: tzinfo) -> int:
    return day_start_us((local.date().replace(day=1) + timedelta(days=31)).replace(day=1), zone)


_NEXT: dict[Unit, Callable[[int, datetime, tzinfo], int]] = {
    "hour": _next_hour,
    "day": _next_day,
    "month": _next_month,
}
_LABEL: dict[Unit, Callable[[datetime], str]] = {
    "hour": lambda local: local.replace(minute=0).isoformat(timespec="minutes"),
    "day": lambda local: local.date().isoformat(),
    "month": lambda local: f"{local.year:04}-{local.month:02}",
}
