"""Releases, their rollouts and what the arms did, as recorded (SPEC 13)."""

import sqlite3

from ledger.reading import fetch, fetch_one
from ledger.records import ReleaseRecord, RolloutEvaluation, RolloutRecord
from ledger.rollout_window import ArmRow
from ledger.rows import record_of, select

ROWS_LIMIT = 400_000  # receipts of a window that are read one by one
ROLLOUTS_LIMIT = 200

_TAKEN_OVER = (  # of the request, whoever served it: a person's word comes later than the receipt
    "(SELECT o.taken_over FROM outcome_report AS o WHERE o.request_id = found.request_id "
    "AND o.taken_over IS NOT NULL ORDER BY o.seq DESC LIMIT 1)"
)
_ARMS = (
    f"SELECT {', '.join(ArmRow._fields[:-1])}, {_TAKEN_OVER} "
    "FROM receipt AS found INDEXED BY receipt_model "
    "WHERE logical_model = ? AND accepted_at_us >= ? AND accepted_at_us < ? AND release_id = ? "
    "AND arm IN ('baseline', 'canary') AND NOT EXISTS (SELECT 1 FROM receipt AS later "
    "WHERE later.request_id = found.request_id AND later.revision > found.revision) LIMIT ?"
)


def release(connection: sqlite3.Connection, release_id: str) -> ReleaseRecord | None:
    """The release of an id; None where there is none."""
    row = fetch_one(connection, f"{select(ReleaseRecord)} WHERE release_id = ?", (release_id,))
    return None if row is None else record_of(ReleaseRecord, row)


def releases(connection: sqlite3.Connection) -> list[ReleaseRecord]:
    """The newest releases, the newest first."""
    sql = f"{select(ReleaseRecord)} ORDER BY seq DESC LIMIT ?"
    return [record_of(ReleaseRecord, row) for row in fetch(connection, sql, (ROLLOUTS_LIMIT,))]


def rollout(connection: sqlite3.Connection, rollout_id: str) -> RolloutRecord | None:
    """The rollout of an id; None where there is none."""
    row = fetch_one(connection, f"{select(RolloutRecord)} WHERE rollout_id = ?", (rollout_id,))
    return None if row is None else record_of(RolloutRecord, row)


def rollouts(connection: sqlite3.Connection) -> list[RolloutRecord]:
    """The newest rollouts, the newest first."""
    sql = f"{select(RolloutRecord)} ORDER BY seq DESC LIMIT ?"
    return [record_of(RolloutRecord, row) for row in fetch(connection, sql, (ROLLOUTS_LIMIT,))]


def steps(connection: sqlite3.Connection, rollout_id: str) -> list[RolloutEvaluation]:
    """Everything that a rollout went through, in order."""
    sql = f"{select(RolloutEvaluation)} WHERE rollout_id = ? ORDER BY number"
    return [record_of(RolloutEvaluation, row) for row in fetch(connection, sql, (rollout_id,))]


def last_step(connection: sqlite3.Connection, rollout_id: str) -> RolloutEvaluation | None:
    """Where a rollout stands; None before its start."""
    sql = f"{select(RolloutEvaluation)} WHERE rollout_id = ? ORDER BY number DESC LIMIT 1"
    row = fetch_one(connection, sql, (rollout_id,))
    return None if row is None else record_of(RolloutEvaluation, row)


def arm_rows(
    connection: sqlite3.Connection,
    logical_model: str,
    release_id: str,
    start_us: int,
    end_us: int,
) -> list[ArmRow] | None:
    """The current receipts of both arms accepted in [start, end); None where they are too many."""
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples: thousands of rows
    rows = cursor.execute(_ARMS, (logical_model, start_us, end_us, release_id, ROWS_LIMIT + 1))
    found = [ArmRow._make(row) for row in rows.fetchall()]
    return found if len(found) <= ROWS_LIMIT else None
