"""Control actions: who changed what, and why."""

import sqlite3

from ledger.reading import fetch_one
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
