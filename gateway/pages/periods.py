"""A page's time range and zone, from the URL: pure, but for the clock's value that it is handed."""

from dataclasses import dataclass
from datetime import date, timedelta, tzinfo

from django.http import QueryDict

from ledger.zones import Period, days, parse_zone, recent, to_local

RANGES = {
    "1h": ("Last hour", 3_600_000_000),
    "6h": ("Last 6 hours", 21_600_000_000),
    "24h": ("Last 24 hours", 86_400_000_000),
    "7d": ("Last 7 days", 7 * 86_400_000_000),
    "30d": ("Last 30 days", 30 * 86_400_000_000),
}
ZONES = ("UTC", "+05:30", "Asia/Kolkata", "Asia/Shanghai", "Europe/Berlin", "America/New_York")
TEXT_LIMIT_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What was asked for, as text for the form, and the period that it stands for."""

    within: str
    first_day: str
    last_day: str
    zone_name: str
    zone: tzinfo
    period: Period

    @property
    def label(self) -> str:
        start = to_local(self.period.start_us, self.zone)
        end = to_local(self.period.end_us, self.zone)
        return f"{start:%d %b %Y %H:%M} to {end:%d %b %Y %H:%M}, {self.zone_name}"


def range_of(query: QueryDict, now_us: int, default: str = "24h") -> Range:
    """The range of `within`, or of `first` and `last` (local days, both included), and `zone`.

    ValueError, saying which part and what can be written, for what can't be read.
    """
    zone_name = query.get("zone", "") or "UTC"
    zone = parse_zone(zone_name)
    first_day, last_day = query.get("first", ""), query.get("last", "")
    within = query.get("within", "") or ("" if first_day or last_day else default)
    if first_day or last_day:
        within = ""
        first = _day(first_day or last_day, "first")
        last = _day(last_day or first_day, "last")
        if last < first:
            raise ValueError(f"the last day, {last}, is before the first, {first}")
        period = days(first, last, zone)
    elif within in RANGES:
        period = recent(now_us, RANGES[within][1])
    else:
        raise ValueError(f"no range {within[:TEXT_LIMIT_CHARS]!r}; there are {', '.join(RANGES)}")
    return Range(
        within=within,
        first_day=first_day,
        last_day=last_day,
        zone_name=zone_name,
        zone=zone,
        period=period,
    )


def _day(text: str, name: str) -> date:
    try:
        day = date.fromisoformat(text[:TEXT_LIMIT_CHARS])
    except ValueError as problem:
        raise ValueError(f"{name} is no day; write it as 2026-01-31") from problem
    if not date(1970, 1, 2) <= day <= date(9999, 1, 1) - timedelta(days=2):
        raise ValueError(f"{name} is out of reach: {day}")
    return day
