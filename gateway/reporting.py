"""What the API's three reports can be asked for, in the parameters of the console's pages (CST-9).

Pure: a query's values and the time in, an ask or a problem that names its parameter out. The query
string of a page, given to the API, is the same question. Problems never quote what was sent.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, tzinfo
from typing import Final, get_args

from gateway.policy.values import PRIORITIES, EndState
from ledger.queries.costs import (
    DIMENSIONS,
    DIMENSIONS_LIMIT,
    FILTER_VALUES_LIMIT,
    HOURS_LIMIT,
    TAG_PREFIX,
    TIME_DIMENSIONS,
    Dimension,
    is_dimension,
)
from ledger.queries.releases import Side
from ledger.zones import HOUR_US, Period, days, parse_zone, recent, to_local

Query = Mapping[str, Sequence[str]]  # a parsed query string: name -> values in order

WITHIN_US: Final[Mapping[str, int]] = {
    "1h": HOUR_US,
    "6h": 6 * HOUR_US,
    "24h": 24 * HOUR_US,
    "7d": 7 * 24 * HOUR_US,
    "30d": 30 * 24 * HOUR_US,
    "90d": 90 * 24 * HOUR_US,
}
DEFAULT_WITHIN = "24h"
DEFAULT_BY, DEFAULT_THEN = "tenant", "logical_model"
DAYS_FROM, DAYS_TO = date(1980, 1, 1), date(2200, 1, 1)
VALUE_LIMIT_CHARS = 200
NAME_LIMIT_CHARS = 40
TAG_FILTERS_LIMIT = 8
TAG_FILTER = f"{TAG_PREFIX}{{key}}"  # in documents: as many parameters as requests have tags
PERIOD_PARAMETERS = ("within", "first", "last", "zone")
RELEASES_PARAMETERS = ("model", "baseline", "candidate", "priority", *PERIOD_PARAMETERS)
FILTERS: tuple[Dimension, ...] = tuple(name for name in DIMENSIONS if name not in TIME_DIMENSIONS)


COSTS_PARAMETERS = ("by", "then", *FILTERS, *PERIOD_PARAMETERS)
BRIDGE_PARAMETERS = ("versus_first", "versus_last", *FILTERS, *PERIOD_PARAMETERS)
_CLOSED: Mapping[str, Sequence[str]] = {"priority": PRIORITIES, "status": get_args(EndState)}
_PLUS_LOST = re.compile(r" ([0-9]{2}:?[0-9]{2})")  # "+05:30" as a query reads it unescaped


@dataclass(frozen=True, slots=True, kw_only=True)
class AskProblem:
    """Why a query can't be answered: the parameter at fault, and what can be written."""

    parameter: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAsk:
    """A period and the zone in which it was asked for."""

    period: Period
    zone: tzinfo
    zone_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsAsk:
    when: PeriodAsk
    dimensions: tuple[Dimension, ...]
    filters: Mapping[str, tuple[str, ...]]  # by dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeAsk:
    """Two periods of one zone: from what `before` cost to what `when` did."""

    when: PeriodAsk
    before: Period
    filters: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesAsk:
    """None where the query leaves it open: the busiest then stands in."""

    when: PeriodAsk
    logical_model: str | None
    baseline: Side | None
    candidate: Side | None
    priority: str  # "": all


def unknown_parameter(query: Iterable[str], known: Sequence[str]) -> AskProblem | None:
    """The first parameter of a query that is none of `known`: it would be dropped in silence.

    It is named if it looks like a name, which a value in the wrong place doesn't.
    """
    for name in query:
        if name not in known:
            plain = name.isascii() and name.isidentifier() and len(name) <= NAME_LIMIT_CHARS
            detail = f"there are {', '.join(known)}" if known else "this takes no parameters"
            return AskProblem(
                parameter=name if plain else "query", detail=f"no such parameter; {detail}"
            )
    return None


def read_period(query: Query, now_us: int) -> PeriodAsk | AskProblem:
    """The period of `zone`, and of `within`, or of `first` and `last` (local days, inclusive).

    By default the last 24 hours, in UTC; they end with the quarter hour that `now_us` lies in. Of
    `first` and `last` one alone stands for both.
    """
    zone_name = _PLUS_LOST.sub(r"+\1", (query.get("zone") or ("",))[-1]).strip() or "UTC"
    try:
        zone = parse_zone(zone_name)
    except ValueError:
        detail = "write UTC, an offset such as +05:30, or a name such as Asia/Kolkata"
        return AskProblem(parameter="zone", detail=detail)
    first_text, last_text = _one(query, "first"), _one(query, "last")
    if not first_text and not last_text:
        within = _one(query, "within") or DEFAULT_WITHIN
        if within not in WITHIN_US:
            return AskProblem(parameter="within", detail=f"write one of {', '.join(WITHIN_US)}")
        period = recent(now_us, WITHIN_US[within])
        return PeriodAsk(period=period, zone=zone, zone_name=zone_name)
    found = []
    for parameter, text in (("first", first_text or last_text), ("last", last_text or first_text)):
        try:
            found.append(date.fromisoformat(text))
        except ValueError:
            return AskProblem(parameter=parameter, detail="write a day such as 2026-11-29")
    first, last = found
    if not DAYS_FROM <= first <= last <= DAYS_TO:
        detail = f"days run forward, from {DAYS_FROM} to {DAYS_TO}"
        return AskProblem(parameter="first", detail=detail)
    try:
        period = days(first, last, zone)
    except ValueError as error:  # too long, or in a zone that then kept no quarter hours
        return AskProblem(parameter="first", detail=str(error))
    return PeriodAsk(period=period, zone=zone, zone_name=zone_name)


def read_costs(query: Query, now_us: int) -> CostsAsk | AskProblem:
    """The costs asked for: `by`, `then` name one to three dimensions; filters have their names.

    By default by tenant, then by logical model; an empty `then` takes one dimension alone.
    """
    when = unknown_parameter(_plain(query), COSTS_PARAMETERS) or read_period(query, now_us)
    if isinstance(when, AskProblem):
        return when
    named = [name for text in query.get("by", ()) for name in text.split(",") if name]
    named = named or [DEFAULT_BY]
    if "then" in query or "by" not in query:
        named += [name for name in query.get("then", (DEFAULT_THEN,)) if name]
    if not all(is_dimension(name) for name in named):
        detail = f"there are {', '.join(DIMENSIONS)} and {TAG_PREFIX}<key>"
        return AskProblem(parameter="by", detail=detail)
    dimensions = tuple(dict.fromkeys(named))
    if len(dimensions) > DIMENSIONS_LIMIT:
        return AskProblem(parameter="by", detail=f"at most {DIMENSIONS_LIMIT} dimensions")
    if sum(name in TIME_DIMENSIONS for name in dimensions) > 1:
        return AskProblem(parameter="by", detail="choose one of hour, day and month")
    length_us = when.period.end_us - when.period.start_us
    if "hour" in dimensions and length_us > HOURS_LIMIT * HOUR_US:
        detail = f"by hour for at most {HOURS_LIMIT} hours; choose a shorter period, or by day"
        return AskProblem(parameter="by", detail=detail)
    filters = read_filters(query)
    if isinstance(filters, AskProblem):
        return filters
    return CostsAsk(when=when, dimensions=dimensions, filters=filters)


def read_bridge(query: Query, now_us: int) -> BridgeAsk | AskProblem:
    """Two periods: that of the query, and `versus_first` to `versus_last`, local days.

    By default the second is as long and ends where the first begins.
    """
    when = unknown_parameter(_plain(query), BRIDGE_PARAMETERS) or read_period(query, now_us)
    if isinstance(when, AskProblem):
        return when
    filters = read_filters(query)
    if isinstance(filters, AskProblem):
        return filters
    start_us = when.period.start_us
    before = Period(start_us=2 * start_us - when.period.end_us, end_us=start_us)
    if _one(query, "versus_first") or _one(query, "versus_last"):
        versus = {"first": query.get("versus_first", ()), "last": query.get("versus_last", ()),
                  "zone": query.get("zone", ())}  # fmt: skip
        found = read_period(versus, now_us)
        if isinstance(found, AskProblem):
            return AskProblem(parameter=f"versus_{found.parameter}", detail=found.detail)
        before = found.period
    return BridgeAsk(when=when, before=before, filters=filters)


def _plain(query: Query) -> Iterable[str]:
    """The parameters that are no filter by a tag, of which there are as many as keys."""
    return (name for name in query if not is_tag(name))


def is_tag(name: str) -> bool:
    """Whether a parameter is a filter by the value of a tag."""
    return name.startswith(TAG_PREFIX) and is_dimension(name)


def read_filters(query: Query) -> dict[str, tuple[str, ...]] | AskProblem:
    """The values asked for, by dimension; several values of one mean any of them."""
    filters: dict[str, tuple[str, ...]] = {}
    tags = sorted(name for name in query if name.startswith(TAG_PREFIX))
    if len(tags) > TAG_FILTERS_LIMIT:
        return AskProblem(parameter=tags[0], detail=f"at most {TAG_FILTERS_LIMIT} tags")
    for name in (*FILTERS, *tags):
        values = tuple(dict.fromkeys(value for value in query.get(name, ()) if value))
        if len(values) > FILTER_VALUES_LIMIT or any(len(v) > VALUE_LIMIT_CHARS for v in values):
            detail = f"at most {FILTER_VALUES_LIMIT} values of {VALUE_LIMIT_CHARS} characters"
            return AskProblem(parameter=name, detail=detail)
        if values and name in _CLOSED and not set(values) <= set(_CLOSED[name]):
            return AskProblem(parameter=name, detail=f"there are {', '.join(_CLOSED[name])}")
        if values:
            filters[name] = values
    return filters


def read_releases(query: Query, now_us: int) -> ReleasesAsk | AskProblem:
    """The comparison asked for: `model`, `baseline`, `candidate` (identity, or release/arm)."""
    when = unknown_parameter(query, RELEASES_PARAMETERS) or read_period(query, now_us)
    if isinstance(when, AskProblem):
        return when
    priority = _one(query, "priority")
    if priority not in ("", *PRIORITIES):
        return AskProblem(parameter="priority", detail=f"there are {', '.join(PRIORITIES)}")
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
        priority=priority,
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


def _one(query: Query, name: str) -> str:
    """The last value of a parameter, "" where it has none; over-long ones are cut to be refused."""
    values = query.get(name, ())
    return values[-1].strip()[: VALUE_LIMIT_CHARS + 1] if values else ""


def iso(at_us: int, zone: tzinfo = UTC) -> str:
    """ISO 8601 of microseconds since the epoch, in a zone."""
    return to_local(at_us, zone).isoformat()
