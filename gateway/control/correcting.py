"""Windows that count otherwise later: their evaluations' next revision, which acts on nothing.

An unknown that is resolved, or a request that outlived every declared deadline, is counted in the
window in which it was accepted, after that was evaluated (SLO-7). Reads, and returns rows.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from gateway.control.objectives import evaluated_until_us, rules_json
from ledger.queries import objectives as stored
from ledger.queries.slo import slo_status
from ledger.records import SloEvaluation
from ledger.rollups.projection import read_state
from ledger.slo import SloDefinition
from ledger.slo_control import STEP_US

WINDOWS_LIMIT = 288
"""Corrected at once, of each objective: a day of them."""
_OF_ACTIONS = ("SHED", "ROLLBACK")


def late(connection: sqlite3.Connection, *, now_us: int) -> list[SloEvaluation]:
    """The corrections that requests give rise to which are counted since the last evaluation.

    Only the window in which such a request was accepted is corrected: a later window's rules had
    counted what was known when it was evaluated, and its row says so.
    """
    since_seq, until_us = stored.counted_to(connection), evaluated_until_us(connection)
    ends = stored.windows_of_late(connection, since_seq, until_us, STEP_US, WINDOWS_LIMIT)
    if not ends:
        return []
    found = []
    for definition in stored.objectives(connection):
        rows = stored.evaluations_of(connection, definition.slo_id, ends)
        found += corrected(connection, definition, rows, now_us=now_us)
    return found


def all_of_the_day(
    connection: sqlite3.Connection, definitions: Sequence[SloDefinition], *, now_us: int
) -> list[SloEvaluation]:
    """The corrections of the newest WINDOWS_LIMIT windows of each objective, whatever changed."""
    found = []
    for definition in definitions:
        newest: dict[int, SloEvaluation] = {}
        for one in stored.evaluations(connection, definition.slo_id, limit=WINDOWS_LIMIT):
            newest.setdefault(one.end_us, one)
        rows = [newest[end_us] for end_us in sorted(newest)]
        found += corrected(connection, definition, rows, now_us=now_us)
    return found


def corrected(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    rows: Iterable[SloEvaluation],
    *,
    now_us: int,
) -> list[SloEvaluation]:
    """The next revision of each row whose windows hold other counts now.

    What an action made of the state stays: it was in force. Rows of another revision of the
    objective are left out: their counts are another's.
    """
    found = []
    counted_to_seq = read_state(connection).position
    for one in rows:
        if one.slo_revision != definition.revision:
            continue
        status = slo_status(connection, definition, one.end_us)
        counted = rules_json(status)
        if counted != one.rules_json:
            found.append(
                msgspec.structs.replace(
                    one,
                    revision=one.revision + 1,
                    state=one.state if one.state in _OF_ACTIONS else status.state,
                    good=status.period.tally.good,
                    valid=status.period.tally.valid,
                    rules_json=counted,
                    evaluated_at_us=now_us,
                    counted_to_seq=counted_to_seq,
                )
            )
    return found
