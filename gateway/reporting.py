"""What the three reports can be asked for: one reading of a query for page, API and CSV (CST-9).

Pure: a query's values and the time in, an ask or a problem that names its parameter out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, tzinfo
from typing import Final

from ledger.queries.costs import (
    DIMENSIONS,
    DIMENSIONS_LIMIT,
    FILTER_VALUES_LIMIT,
    TIME_DIMENSIONS,
    Dimension,
)
from ledger.queries.releases import Side
from ledger.zones import PERIOD_LIMIT_DAYS, Period, days, parse_zone, recent, to_local

Query = Mapping[str, Sequence[str]]  # a parsed query string: name -> values in order

HOUR_US = 3_600_000_000
LAST: Final[Mapping[str, tuple[str, int]]] = {
    "1h": ("Last hour", HOUR_US),
    "6h": ("Last 6 hours", 6 * HOUR_US),
    "24h": ("Last 24 hours", 24 * HOUR_US),
    "7d": ("Last 7 days", 7 * 24 * HOUR_US),
    "30d": ("Last 30 days", 30 * 24 * HOUR_US),
    "90d": ("Last 90 days", 90 * 24 * HOUR_US),
}
DEFAULT_LAST = "24h"
DEFAULT_DIMENSIONS: tuple[Dimension, ...] = ("tenant", "logical_model")
VALUE_LIMIT_CHARS = 200
HOURS_LIMIT = 200  # by hour: eight days
FILTERS: tuple[Dimension, ...] = tuple(name for name in DIMENSIONS if name not in TIME_DIMENSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskProblem:
    """Why a query can't be answered: the parameter at fault, and what can be written."""

    parameter: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAsk:
    """A period, as asked: by `last`, or by local days (`first`..`last_day`, inclusive)."""

    period: Period
    zone: tzinfo
    zone_name: str
    last: str  # "" where days were given
    first: date  # local days that the period touches
    last_day: date


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsAsk:
    when: PeriodAsk
    dimensions: tuple[Dimension, ...]
    filters: Mapping[str, tuple[str, ...]]  # by dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesAsk:
    """None where the query leaves it open: the busiest then stands in."""

    when: PeriodAsk
    logical_model: str | None
    baseline: Side | None
    candidate: Side | None
    priority: str  # "": all


def read_period(query: Query, now_us: int) -> PeriodAsk | AskProblem:
    """The period of `zone`, and of `last` or `from` and `to` (local days, both inclusive).

    By default the last 24 hours, in UTC. `last` ends with the quarter hour that `now_us` lies in.
    """
    zone_name = _one(query, "zone") or "UTC"
    try:
        zone = parse_zone(zone_name)
    except ValueError as error:
        return AskProblem(parameter="zone", detail=str(error))
    first_text, last_text = _one(query, "from"), _one(query, "to")
    if not first_text and not last_text:
        return _last(_one(query, "last") or DEFAULT_LAST, now_us, zone, zone_name)
    today = to_local(now_us, zone).date()
    try:
        last_day = date.fromisoformat(last_text) if last_text else today
    except ValueError:
        return _no_date("to")
    try:
        first = date.fromisoformat(first_text) if first_text else last_day
    except ValueError:
        return _no_date("from")
    if not date(1980, 1, 1) <= first <= last_day <= date(2200, 1, 1):
        return AskProblem(parameter="from", detail="from must not be after to (1980 to 2200)")
    if (last_day - first).days >= PERIOD_LIMIT_DAYS:
        return AskProblem(parameter="from", detail=f"a period has at most {PERIOD_LIMIT_DAYS} days")
    try:
        period = days(first, last_day, zone)
    except ValueError as error:  # a zone whose days then began off the quarter hour
        return AskProblem(parameter="from", detail=str(error))
    return PeriodAsk(
        period=period, zone=zone, zone_name=zone_name, last="", first=first, last_day=last_day
    )


def read_costs(query: Query, now_us: int) -> CostsAsk | AskProblem:
    """The costs asked for: `by` one to three dimensions, filters named as the dimensions."""
    when = read_period(query, now_us)
    if isinstance(when, AskProblem):
        return when
    named = [name for text in query.get("by", ()) for name in text.split(",") if name]
    known: dict[str, Dimension] = {name: name for name in DIMENSIONS}
    unknown = [name for name in named if name not in known]
    if unknown:
        detail = f"no dimension {unknown[0][:50]!r}; there are {', '.join(DIMENSIONS)}"
        return AskProblem(parameter="by", detail=detail)
    dimensions = tuple(dict.fromkeys(known[name] for name in named)) or DEFAULT_DIMENSIONS
    if len(dimensions) > DIMENSIONS_LIMIT:
        return AskProblem(parameter="by", detail=f"at most {DIMENSIONS_LIMIT} dimensions")
    if sum(name in TIME_DIMENSIONS for name in dimensions) > 1:
        return AskProblem(parameter="by", detail="choose one of hour, day and month")
    length_us = when.period.end_us - when.period.start_us
    if "hour" in dimensions and length_us > HOURS_LIMIT * HOUR_US:
        detail = f"by hour for at most {HOURS_LIMIT} hours; choose a shorter period, or by day"
        return AskProblem(parameter="by", detail=detail)
    filters: dict[str, tuple[str, ...]] = {}
    for name in FILTERS:
        values = tuple(dict.fromkeys(value for value in query.get(name, ()) if value))
        if len(values) > FILTER_VALUES_LIMIT or any(len(v) > VALUE_LIMIT_CHARS for v in values):
            detail = f"at most {FILTER_VALUES_LIMIT} values of {VALUE_LIMIT_CHARS} characters"
            return AskProblem(parameter=name, detail=detail)
        if values:
            filters[name] = values
    return CostsAsk(when=when, dimensions=dimensions, filters=filters)


def read_releases(query: Query, now_us: int) -> ReleasesAsk | AskProblem:
    """The comparison asked for: `model`, `baseline`, `candidate` (identity, or release/arm)."""
    when = read_period(query, now_us)
    if isinstance(when, AskProblem):
        return when
    found: dict[str, Side | None] = {}
    for name in ("baseline", "candidate"):
        side = read_side(_one(query, name))
        if isinstance(side, AskProblem):
            return AskProblem(parameter=name, detail=side.detail)
        found[name] = side
    return ReleasesAsk(
        when=when,
        logical_model=_one(query, "model") or None,
        baseline=found["baseline"],
        candidate=found["candidate"],
        priority=_one(query, "priority"),
    )


def read_side(text: str) -> Side | AskProblem | None:
    """The side of "identity" or "release/arm" (`Side.label`); None for no text."""
    if not text:
        return None
    release_id, slash, arm = text.rpartition("/")
    if not slash:
        return Side(identity_id=text)
    if not release_id or not arm:
        return AskProblem(parameter="side", detail="write an identity, or release/arm")
    return Side(release_id=release_id, arm=arm)


def _last(last: str, now_us: int, zone: tzinfo, zone_name: str) -> PeriodAsk | AskProblem:
    if last not in LAST:
        return AskProblem(parameter="last", detail=f"last is one of {', '.join(LAST)}")
    period = recent(now_us, LAST[last][1])
    return PeriodAsk(
        period=period,
        zone=zone,
        zone_name=zone_name,
        last=last,
        first=to_local(period.start_us, zone).date(),
        last_day=to_local(period.end_us - 1, zone).date(),
    )


def _no_date(parameter: str) -> AskProblem:
    return AskProblem(parameter=parameter, detail=f"{parameter} is a day such as 2026-11-29")


def _one(query: Query, name: str) -> str:
    """The last value of a parameter, "" where it has none; over-long ones are cut to be refused."""
    values = query.get(name, ())
    return values[-1].strip()[: VALUE_LIMIT_CHARS + 1] if values else ""


def iso(at_us: int, zone: tzinfo = UTC) -> str:
    """ISO 8601 of microseconds since the epoch, in a zone."""
    return to_local(at_us, zone).isoformat()
