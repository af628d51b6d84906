"""What backends last said of their room, of the snapshots that decisions used (SCH-2)."""

import sqlite3
from collections.abc import Iterable

from ledger.reading import fetch_one
from ledger.records import CapacitySnapshotRecord
from ledger.rows import record_of, select


def last_snapshots(
    connection: sqlite3.Connection, route_ids: Iterable[str]
) -> dict[str, CapacitySnapshotRecord]:
    """Each route's newest kept snapshot; a route of which none was kept is left out."""
    sql = f"{select(CapacitySnapshotRecord)} WHERE route_id = ? ORDER BY revision DESC LIMIT 1"
    rows = {route_id: fetch_one(connection, sql, (route_id,)) for route_id in route_ids}
    return {
        route_id: record_of(CapacitySnapshotRecord, row)
        for route_id, row in rows.items()
        if row is not None
    }
