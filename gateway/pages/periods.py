"""A report page's time range and zone, read as the API reads them, with the text of its form."""

from dataclasses import dataclass
from datetime import tzinfo
from typing import TypeVar

from django.http import QueryDict

from gateway.pages.zone import shown
from gateway.reporting import DEFAULT_WITHIN, WITHIN_US, AskProblem, read_period
from ledger.zones import Period, to_local

Ask = TypeVar("Ask")

_NAMES = {
    "1h": "Last hour",
    "6h": "Last 6 hours",
    "24h": "Last 24 hours",
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    "90d": "Last 90 days",
}
RANGES = {within: _NAMES.get(within, within) for within in WITHIN_US}


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
        return label_of(self.period, self.zone, self.zone_name)


def label_of(period: Period, zone: tzinfo, zone_name: str) -> str:
    """A period in words: "01 Nov 2026 00:00 to 08 Nov 2026 00:00, UTC"."""
    start, end = to_local(period.start_us, zone), to_local(period.end_us, zone)
    return f"{start:%d %b %Y %H:%M} to {end:%d %b %Y %H:%M}, {zone_name}"


def asked(query: QueryDict) -> dict[str, list[str]]:
    """The query as the API reads it: every value of each name, in order."""
    return {name: [str(value) for value in values] for name, values in query.lists()}


def ranged(query: QueryDict) -> dict[str, list[str]]:
    """As `asked`, of a page with a range: without a zone of its own, in that of the page."""
    found = asked(query)
    if not any(found.get("zone", ())):
        found["zone"] = [shown().name]
    return found


def sentence(problem: AskProblem) -> str:
    """The problem as a page shows it."""
    return f"{problem.parameter}: {problem.detail}"


def answerable(ask: Ask | AskProblem) -> Ask:
    """The question itself. ValueError, with the sentence that a page shows, for a problem."""
    if isinstance(ask, AskProblem):
        raise ValueError(sentence(ask))
    return ask


def range_of(query: QueryDict, now_us: int) -> Range:
    """The range of `within`, or of `first` and `last` (local days, both included), and `zone`.

    ValueError, naming the part and what can be written, for what can't be read.
    """
    found = answerable(read_period(ranged(query), now_us))
    first_day, last_day = query.get("first", ""), query.get("last", "")
    by_days = bool(first_day or last_day)
    return Range(
        within="" if by_days else query.get("within", "") or DEFAULT_WITHIN,
        first_day=first_day,
        last_day=last_day,
        zone_name=found.zone_name,
        zone=found.zone,
        period=found.period,
    )


def without(query: QueryDict, *names: str) -> str:
    """The query, encoded, without some of its parameters."""
    kept = query.copy()
    for name in names:
        kept.pop(name, None)
    return kept.urlencode()
