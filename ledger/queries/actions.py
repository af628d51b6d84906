"""Control actions: who changed what, and why."""

import sqlite3

from ledger.reading import fetch, fetch_one
from ledger.records import ControlAction
from ledger.rows import record_of, select


def latest_action(connection: sqlite3.Connection, action: str) -> ControlAction | None:
    """The last control action of a name; None where there was none."""
    row = fetch_one(
        connection,
        f"{select(ControlAction)} WHERE action = ? ORDER BY seq DESC LIMIT 1",
        (action,),
    )
    return None if row is None else record_of(ControlAction, row)


def drained_routes(connection: sqlite3.Connection) -> frozenset[str]:
    """The routes whose last drain has not been undone: the audit log alone says so."""
    sql = (
        "SELECT subject FROM control_action WHERE action = 'drain_route' AND seq IN "
        "(SELECT max(seq) FROM control_action WHERE action IN ('drain_route', 'undrain_route') "
        "GROUP BY subject)"
    )
    return frozenset(row[0] for row in fetch(connection, sql))
