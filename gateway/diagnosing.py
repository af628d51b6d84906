"""Which window is asked about: of the page Now and of GET /api/v1/diagnosis (DIA-1). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.reporting import AskProblem, unknown_parameter

MINUTE_US = 60_000_000
WITHIN_US: Final[Mapping[str, int]] = {
    "5m": 5 * MINUTE_US,
    "15m": 15 * MINUTE_US,
    "1h": 60 * MINUTE_US,
}
LABELS: Final[Mapping[str, str]] = {
    name: f"{us // MINUTE_US} min" for name, us in WITHIN_US.items()
}
DEFAULT_WITHIN = "15m"
PARAMETERS = ("within", "at")
VALUE_LIMIT_CHARS = 40
_YEARS = range(1980, 2200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A window [start_us, end_us) that ends now or at `at`; `at` is "" for now."""

    start_us: int
    end_us: int
    within: str
    at: str


def read_moment(
    query: Mapping[str, Sequence[str]], now_us: int, more: tuple[str, ...] = ()
) -> Moment | AskProblem:
    """The window of `within`, by default 15m, that ends at `at` (ISO 8601, UTC), by default now.

    `more` are parameters of whoever asks, which are read elsewhere.
    """
    unknown = unknown_parameter(query, (*PARAMETERS, *more))
    if unknown is not None:
        return unknown
    within = (query.get("within") or ("",))[-1].strip() or DEFAULT_WITHIN
    if within not in WITHIN_US:
        return AskProblem(parameter="within", detail=f"write one of {', '.join(WITHIN_US)}")
    at = (query.get("at") or ("",))[-1].strip()
    end_us = now_us if not at else _instant_us(at)
    if end_us is None:
        detail = "write a time in UTC such as 2026-11-29T22:40"
        return AskProblem(parameter="at", detail=detail)
    return Moment(start_us=end_us - WITHIN_US[within], end_us=end_us, within=within, at=at)


def _instant_us(text: str) -> int | None:
    """Microseconds of an ISO 8601 time, read as UTC where it names no zone; None for no time."""
    try:
        found = datetime.fromisoformat(text[: VALUE_LIMIT_CHARS + 1])
    except ValueError:
        return None
    if found.year not in _YEARS:
        return None
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    whole = int(aware.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + aware.microsecond
