"""What is reserved and what was spent: from this the admission book is rebuilt (LED-6).

Read from the tables that `ledger.open_work` keeps, so that it takes as long as there is open work,
however long the ledger has grown.
"""

import sqlite3

from ledger.carrying import every, source
from ledger.money import INT64_MAX, join
from ledger.open_work import QUARTER_US
from ledger.reading import fetch, fetch_one
from ledger.records import Reservation
from ledger.rows import record_of

RECENT_LIMIT = 100_000  # reservations of a minute
RECENT_PAGE = 512
# What a receipt settles was settled at its end, which no index is on: it was accepted before.
_POSTED_BETWEEN = (
    "SELECT sum(cost_pico >> 32), sum(cost_pico & 4294967295) FROM ("
    f"SELECT s.cost_pico FROM settlement AS s JOIN {source(Reservation)} AS r "
    "ON r.reservation_id = s.reservation_id WHERE s.settled_at_us >= :since "
    "AND s.settled_at_us < :until AND s.kind = 'posted' AND r.tenant_id = :tenant UNION ALL "
    "SELECT cost_total_pico FROM receipt WHERE tenant_id = :tenant AND accepted_at_us < :until "
    "AND ended_at_us >= :since AND ended_at_us < :until AND closes = 1)"
)


def open_reservations(connection: sqlite3.Connection) -> list[Reservation]:
    """The reservations without a settlement, in chain order: at rest, those of open unknowns."""
    open_seqs = "SELECT seq FROM open_hold"
    sql = f"{every(Reservation)} WHERE seq IN ({open_seqs}) ORDER BY seq"
    return [record_of(Reservation, row) for row in fetch(connection, sql)]


def reservation(connection: sqlite3.Connection, reservation_id: str) -> Reservation | None:
    """The reservation of an id; None where there is none."""
    row = fetch_one(connection, f"{every(Reservation)} WHERE reservation_id = ?", (reservation_id,))
    return None if row is None else record_of(Reservation, row)


def reservations_since(connection: sqlite3.Connection, since_us: int) -> list[Reservation]:
    """The reservations made from `since_us` on, the oldest first; at most RECENT_LIMIT of them.

    Read from the end of the table, where the newest are: as long as it takes to find an older one.
    """
    found: list[Reservation] = []
    before = INT64_MAX
    sql = f"{every(Reservation)} WHERE seq < ? ORDER BY seq DESC LIMIT {RECENT_PAGE}"
    while len(found) < RECENT_LIMIT:
        rows = fetch(connection, sql, (before,))
        page = [record_of(Reservation, row) for row in rows]
        found += [each for each in page if each.reserved_at_us >= since_us]
        if len(rows) < RECENT_PAGE or page[-1].reserved_at_us < since_us:
            break
        before = rows[-1]["seq"]
    return found[::-1]


def posted_pico_since(connection: sqlite3.Connection, tenant_id: str, since_us: int) -> int:
    """What a tenant's settlements posted from `since_us` on, exactly, in pico units.

    Whole quarter hours are summed already; a time inside one, which no month of a real time zone
    begins at, costs a walk over the rest of it. In two limbs: SQLite's SUM raises above int64.
    """
    whole_us = -(-since_us // QUARTER_US) * QUARTER_US
    sums = fetch_one(
        connection,
        "SELECT sum(high), sum(low) FROM tenant_posted WHERE tenant_id = ? AND bucket_us >= ?",
        (tenant_id, whole_us),
    )
    total = join(sums[0] or 0, sums[1] or 0)
    if whole_us > since_us:
        part = fetch_one(
            connection,
            _POSTED_BETWEEN,
            {"since": since_us, "until": whole_us, "tenant": tenant_id},
        )
        total += join(part[0] or 0, part[1] or 0)
    return total
