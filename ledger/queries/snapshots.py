"""Capacity snapshots that decisions used, newest first."""

import sqlite3

from ledger.reading import fetch
from ledger.records import CapacitySnapshotRecord
from ledger.rows import Stored, select, stored

LIMIT = 200


def snapshots(
    connection: sqlite3.Connection,
    route_id: str | None = None,
    *,
    before_seq: int | None = None,
    limit: int = 50,
) -> list[Stored[CapacitySnapshotRecord]]:
    """The snapshots of a route, or of all, from before a row on; by the chain's order.

    Of one route the walk is along its revisions, which rise with the chain. ValueError above LIMIT.
    """
    if not 1 <= limit <= LIMIT:
        raise ValueError(f"a page has 1 to {LIMIT} snapshots, not {limit}")
    conditions, values = [], list[str | int]()
    if route_id is not None:
        conditions.append("route_id = ?")
        values.append(route_id)
    if before_seq is not None:
        conditions.append("seq < ?")
        values.append(before_seq)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    order = "seq" if route_id is None else "revision"
    rows = fetch(
        connection,
        f"{select(CapacitySnapshotRecord)} {where}ORDER BY {order} DESC LIMIT ?",
        (*values, limit),
    )
    return [stored(CapacitySnapshotRecord, row) for row in rows]
