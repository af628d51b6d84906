"""What is reserved and what was spent: from this the admission book is rebuilt (LED-6)."""

import sqlite3

from ledger.money import join
from ledger.reading import fetch, fetch_one
from ledger.records import Reservation
from ledger.rows import record_of, select


def open_reservations(connection: sqlite3.Connection) -> list[Reservation]:
    """The reservations without a settlement, in chain order: at rest, those of open unknowns."""
    sql = (
        f"{select(Reservation)} AS r WHERE NOT EXISTS "  # noqa: S608 - no input
        "(SELECT 1 FROM settlement WHERE reservation_id = r.reservation_id) ORDER BY seq"
    )
    return [record_of(Reservation, row) for row in fetch(connection, sql)]


def posted_pico_since(connection: sqlite3.Connection, tenant_id: str, since_us: int) -> int:
    """What a tenant's settlements posted from `since_us` on, exactly, in pico units.

    Summed in two limbs, because SQLite's SUM raises above int64 (LED-3).
    """
    sql = (
        "SELECT sum(s.cost_pico >> 32), sum(s.cost_pico & 4294967295) "
        "FROM settlement AS s JOIN reservation AS r ON r.reservation_id = s.reservation_id "
        "WHERE s.settled_at_us >= ? AND s.kind = 'posted' AND r.tenant_id = ?"
    )
    row = fetch_one(connection, sql, (since_us, tenant_id))
    return join(row[0] or 0, row[1] or 0)
