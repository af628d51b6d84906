"""The mean over everybody beside the tail of a slice, and what its bad requests are (SLO-2)."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ledger.slo import LATENCY_INDICATORS, Selector, SloDefinition, judge_for, valid_completion

_ALL = Selector()
SAMPLE_LIMIT = 2_000  # receipts, the newest of the window


class Measured(NamedTuple):
    """What is read of a receipt to judge it."""

    tenant_id: str
    logical_model: str
    identity_id: str | None
    route_id: str | None
    priority: str
    user_path: str
    arm: str | None
    status: str
    degraded_from: str | None
    first_token_us: int | None
    queue_us: int | None
    itl_mean_us: int | None
    e2e_us: int
    deadline_us: int
    output_tokens: int
    schema_valid: int | None
    terminal_error_code: str | None
    input_tokens: int
    cancel_ack_us: int | None
    cost_total_pico: int


_SQL = (
    f"SELECT {', '.join(Measured._fields)} FROM receipt AS found INDEXED BY receipt_time "
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND NOT EXISTS (SELECT 1 "
    "FROM receipt AS later WHERE later.request_id = found.request_id "
    "AND later.revision > found.revision) ORDER BY accepted_at_us DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean over `count` measured requests, rounded half up to the microsecond."""

    count: int
    mean_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The p99 of `count` measured requests by nearest rank, exact."""

    count: int
    p99_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What an objective's requests met in a window; None where nothing was measured."""

    mean: Mean | None  # over all traffic, every slice together
    tail: Tail | None  # of the objective's slice
    bad: tuple[tuple[str, int], ...]  # what the bad ones are, the most frequent first
    newest_only: bool  # there were more than SAMPLE_LIMIT: the newest stand for them


def experiences(
    connection: sqlite3.Connection,
    start_us: int,
    end_us: int,
    definitions: Sequence[SloDefinition],
) -> dict[str, Experience]:
    """By the definitions' keys, of the current receipts accepted in [start_us, end_us)."""
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples: thousands of rows
    rows = cursor.execute(_SQL, (start_us, end_us, SAMPLE_LIMIT + 1)).fetchall()
    sample = [Measured._make(row) for row in rows[:SAMPLE_LIMIT]]
    return {
        one.key: _experience(one, sample, newest_only=len(rows) > SAMPLE_LIMIT)
        for one in definitions
    }


def _experience(
    definition: SloDefinition, sample: Sequence[Measured], *, newest_only: bool
) -> Experience:
    chosen, judged = definition.selector, judge_for(definition)
    covered = sample if chosen == _ALL else [one for one in sample if chosen.covers(one)]
    bad = Counter(_why(definition, one) for one in covered if judged(definition, one) == "bad")
    return Experience(
        mean=_mean(_durations(definition, sample)),
        tail=_tail(_durations(definition, covered)),
        bad=tuple(sorted(bad.items(), key=lambda item: (-item[1], item[0]))),
        newest_only=newest_only,
    )


def _durations(definition: SloDefinition, sample: Sequence[Measured]) -> list[int]:
    """What the indicator measures, of those that have it; end to end of completed ones alone."""
    indicator = definition.indicator
    found: list[int | None] = []
    if indicator == "queue":
        found = [one.queue_us for one in sample]
    elif indicator == "ttft":
        found = [one.first_token_us for one in sample]
    elif indicator == "itl":
        found = [one.itl_mean_us for one in sample]
    elif indicator == "e2e":
        found = [one.e2e_us for one in sample if one.status == "completed"]
    elif indicator == "cancel_ack":
        found = [one.cancel_ack_us for one in sample]
    return [us for us in found if us is not None]


def _mean(durations: Sequence[int]) -> Mean | None:
    count, total = len(durations), sum(durations)
    return Mean(count=count, mean_us=(2 * total + count) // (2 * count)) if count else None


def _tail(durations: Sequence[int]) -> Tail | None:
    count = len(durations)
    rank = -(-99 * count // 100)
    return Tail(count=count, p99_us=sorted(durations)[rank - 1]) if count else None


def _valid(definition: SloDefinition, one: Measured) -> bool:
    return valid_completion(one, degraded_is_valid=definition.degraded_is_valid)


def _why(definition: SloDefinition, one: Measured) -> str:
    """What a bad request is, in a word or two."""
    if definition.indicator == "capacity":
        return one.terminal_error_code or one.status
    if one.status != "completed":
        return one.status
    if definition.indicator == "cost" and _valid(definition, one):
        return "over the threshold"
    if definition.indicator in LATENCY_INDICATORS:
        return "over the threshold"
    if one.degraded_from is not None and not definition.degraded_is_valid:
        return "degraded"
    return "against their schema" if one.schema_valid == 0 else "past their deadline"
