"""SLO burn over closed minutes, from counts kept in the receipts' transaction (SLO-3, SLO-5)."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ledger.queries.objectives import objectives
from ledger.reading import fetch, fetch_one
from ledger.rollups.projection import read_state
from ledger.rollups.sums import snapshot
from ledger.rollups.tables import HOUR, LIVE, MINUTE, MINUTE_US, grain_us
from ledger.slo import DAY_US, HOUR_US, OpenRequest, SloDefinition, judge_open
from ledger.slo_burn import (
    SloStatus,
    Tally,
    WindowBurn,
    burn_rate,
    evaluate_rule,
    status_of,
)

POINTS_LIMIT = 400

_SLI = LIVE.name("sli")
_RANGE = "slo_key = ? AND grain_min = ? AND bucket_us >= ? AND bucket_us < ?"
_TALLY = f"SELECT COALESCE(SUM(good), 0), COALESCE(SUM(valid), 0) FROM {_SLI} WHERE {_RANGE}"
_STEPS = (
    "SELECT (bucket_us - ?) / ? AS step, SUM(good), SUM(valid) "
    f"FROM {_SLI} WHERE {_RANGE} GROUP BY step"
)
_SINCE = f"SELECT MIN(bucket_us) FROM {_SLI} WHERE slo_key = ? AND grain_min = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnPoint:
    """One step of the history: its counts, and the burn rate in it (None: no valid request)."""

    start_us: int
    end_us: int
    tally: Tally
    burn: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloReport:
    """An objective's status, and its recent history for the chart."""

    status: SloStatus
    history: tuple[BurnPoint, ...]  # oldest first, without gaps
    counted_since_us: int | None  # the first minute that has a count; None: NO_DATA


def slo_reports(
    connection: sqlite3.Connection,
    now_us: int,
    definitions: Sequence[SloDefinition] | None = None,
    *,
    open_requests: Sequence[OpenRequest] = (),
    history_us: int = DAY_US,
    step_us: int = HOUR_US // 4,
) -> tuple[SloReport, ...]:
    """Every objective, by default those in force, at the end of the last whole minute.

    A window is [end - length, end); a request belongs to the minute in which it was accepted
    (SLO-7). `open_requests` have no first token yet; those past their deadline are bad at once.
    A definition without counts is NO_DATA, never OK. ValueError for a history of more than
    POINTS_LIMIT steps or of steps that are no whole minutes.
    """
    if step_us <= 0 or step_us % MINUTE_US or history_us > POINTS_LIMIT * step_us:
        raise ValueError(f"a history has at most {POINTS_LIMIT} steps of whole minutes")
    end_us = now_us - now_us % MINUTE_US
    reports = []
    with snapshot(connection):
        for definition in objectives(connection) if definitions is None else definitions:
            late_us = [
                request.accepted_at_us
                for request in open_requests
                if judge_open(definition, request, now_us) == "bad"
            ]
            reports.append(_report(connection, definition, end_us, late_us, history_us, step_us))
    return tuple(reports)


def _report(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    end_us: int,
    late_us: Sequence[int],
    history_us: int,
    step_us: int,
) -> SloReport:
    status = slo_status(connection, definition, end_us, late_us)
    since = fetch_one(connection, _SINCE, (definition.key, MINUTE))
    return SloReport(
        status=status,
        history=_history(connection, definition, end_us, history_us, step_us),
        counted_since_us=since[0],
    )


def slo_status(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    end_us: int,
    late_us: Sequence[int] = (),
) -> SloStatus:
    """The objective at the end of a minute; `late_us`: when the open, late requests came in."""
    lengths_us = sorted(
        {definition.period_us}
        | {rule.long_us for rule in definition.rules}
        | {rule.short_us for rule in definition.rules}
    )
    tallies = tally_windows(connection, definition.key, end_us, lengths_us)
    windows = {}
    for length_us, tally in zip(lengths_us, tallies, strict=True):
        late = sum(end_us - length_us <= at_us < end_us for at_us in late_us)
        counted = Tally(good=tally.good, valid=tally.valid + late)
        windows[length_us] = WindowBurn(
            length_us=length_us,
            start_us=end_us - length_us,
            end_us=end_us,
            tally=counted,
            burn=burn_rate(counted, definition.budget),
        )
    rules = tuple(
        evaluate_rule(definition, rule, windows[rule.long_us], windows[rule.short_us])
        for rule in definition.rules
    )
    return status_of(definition, end_us, windows[definition.period_us], rules)


def tally_windows(
    connection: sqlite3.Connection, slo_key: str, end_us: int, lengths_us: Sequence[int]
) -> tuple[Tally, ...]:
    """The counts of windows of these lengths that all end at `end_us`, a whole minute.

    Hours that are closed and whole in a window come from one row, the minutes around them singly.
    """
    hour_us = grain_us(HOUR)
    closed_us = read_state(connection).until(HOUR)
    tallies = []
    for length_us in lengths_us:
        start_us = end_us - length_us
        first_us = -(-start_us // hour_us) * hour_us
        last_us = max(first_us, min(end_us, closed_us) // hour_us * hour_us)
        if first_us >= end_us:  # within one hour
            first_us = last_us = start_us
        spans = ((MINUTE, start_us, first_us), (HOUR, first_us, last_us), (MINUTE, last_us, end_us))
        good = valid = 0
        for span in spans:
            row = fetch_one(connection, _TALLY, (slo_key, *span))
            good, valid = good + row[0], valid + row[1]
        tallies.append(Tally(good=good, valid=valid))
    return tuple(tallies)


def _history(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    end_us: int,
    history_us: int,
    step_us: int,
) -> tuple[BurnPoint, ...]:
    start_us = end_us - history_us // step_us * step_us
    values = (start_us, step_us, definition.key, MINUTE, start_us, end_us)
    counted = {row[0]: (row[1], row[2]) for row in fetch(connection, _STEPS, values)}
    points = []
    for step in range(history_us // step_us):
        good, valid = counted.get(step, (0, 0))
        tally = Tally(good=good, valid=valid)
        points.append(
            BurnPoint(
                start_us=start_us + step * step_us,
                end_us=start_us + (step + 1) * step_us,
                tally=tally,
                burn=burn_rate(tally, definition.budget),
            )
        )
    return tuple(points)
