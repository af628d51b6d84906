"""Decisions as they were recorded, and the snapshots they name: what a replay reads (RTE-3)."""

import sqlite3
from collections.abc import Iterator

from ledger.reading import fetch, fetch_one, pages
from ledger.records import AttemptDecision, CapacitySnapshotRecord, RouteDecision
from ledger.rows import Stored, record_of, select, stored


def decision_of(connection: sqlite3.Connection, request_id: str) -> Stored[RouteDecision] | None:
    """The decision of a request; None where it has none."""
    row = fetch_one(connection, f"{select(RouteDecision)} WHERE request_id = ?", (request_id,))
    return None if row is None else stored(RouteDecision, row)


def decisions(
    connection: sqlite3.Connection,
    *,
    after_seq: int = 0,
    since_us: int | None = None,
    until_us: int | None = None,
) -> Iterator[Stored[RouteDecision]]:
    """All decisions in chain order, in bounded memory; those of since_us <= t < until_us."""
    sql = f"{select(RouteDecision)} WHERE decided_at_us >= ? AND decided_at_us < ?"
    bounds = (
        -(2**63) if since_us is None else since_us,
        2**63 - 1 if until_us is None else until_us,
    )
    for row in pages(connection, sql, bounds, after_seq=after_seq):
        yield stored(RouteDecision, row)


def attempt_decisions(
    connection: sqlite3.Connection, *, request_id: str | None = None, after_seq: int = 0
) -> Iterator[Stored[AttemptDecision]]:
    """The decisions about what follows an attempt, of one request or all, in chain order."""
    if request_id is None:
        sql, values = f"{select(AttemptDecision)} WHERE number >= ?", (0,)
        for row in pages(connection, sql, values, after_seq=after_seq):
            yield stored(AttemptDecision, row)
        return
    sql = f"{select(AttemptDecision)} WHERE request_id = ? ORDER BY seq"
    for row in fetch(connection, sql, (request_id,)):
        yield stored(AttemptDecision, row)


def snapshot(
    connection: sqlite3.Connection, route_id: str, revision: int
) -> CapacitySnapshotRecord | None:
    """The capacity snapshot of a route that has this revision; None where none is kept."""
    sql = f"{select(CapacitySnapshotRecord)} WHERE route_id = ? AND revision = ?"
    row = fetch_one(connection, sql, (route_id, revision))
    return None if row is None else record_of(CapacitySnapshotRecord, row)
