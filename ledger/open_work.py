"""What is not at its end yet, and what tenants have spent: kept with every commit (LED-6).

Three small tables beside the records, written in the records' own transaction: requests without a
receipt, reservations without a settlement, and what was posted by tenant and quarter hour. So a
start reads what is open and not the whole ledger. They are projections: `rebuild` makes them again
from the records, and the audit compares.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache

from ledger.carrying import source
from ledger.records import Receipt, Record, Reservation, RouteDecision, Settlement
from ledger.statements import Appended

QUARTER_US = 900_000_000
_HOLD = frozenset((RouteDecision, Reservation))
_CONCERNED = _HOLD | {Receipt, Settlement}

CREATE: tuple[str, ...] = (
    "CREATE TABLE open_request (request_id TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL) "
    "WITHOUT ROWID",
    "CREATE TABLE open_hold (reservation_id TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL, "
    "tenant_id TEXT NOT NULL, cost_pico INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE tenant_posted (tenant_id TEXT NOT NULL, bucket_us INTEGER NOT NULL, "
    "high INTEGER NOT NULL, low INTEGER NOT NULL, PRIMARY KEY (tenant_id, bucket_us)) "
    "WITHOUT ROWID",
)
DROP: tuple[str, ...] = tuple(
    f"DROP TABLE IF EXISTS {table}" for table in ("open_request", "open_hold", "tenant_posted")
)

OPEN_REQUESTS = (
    "SELECT request_id, seq FROM route_decision AS d WHERE NOT EXISTS "
    "(SELECT 1 FROM receipt WHERE request_id = d.request_id)"
)
OPEN_HOLDS = (
    f"SELECT reservation_id, seq, tenant_id, cost_pico FROM {source(Reservation)} AS r "
    f"WHERE NOT EXISTS (SELECT 1 FROM {source(Settlement)} WHERE reservation_id = r.reservation_id)"
)


def posted(which: str) -> str:
    """(tenant, quarter hour, high, low) of what settlements posted: rows of their own, s, and those
    that receipts carry, c. `which`: a condition on either's seq and request_id."""
    return (
        f"SELECT tenant_id, settled_at_us - settled_at_us % {QUARTER_US} AS bucket_us, "
        "sum(cost_pico >> 32) AS high, sum(cost_pico & 4294967295) AS low FROM "
        "(SELECT r.tenant_id, s.settled_at_us, s.cost_pico FROM "
        f"(SELECT * FROM settlement WHERE kind = 'posted' AND {which}) AS s "
        f"JOIN {source(Reservation)} AS r ON r.reservation_id = s.reservation_id UNION ALL "
        "SELECT tenant_id, ended_at_us, cost_total_pico FROM receipt "
        f"WHERE closes = 1 AND cost_total_pico != 0 AND {which}) GROUP BY 1, 2"
    )


# With what archived settlements posted: the records alone don't say it any more.
POSTED_WHOLE = (
    "SELECT tenant_id, bucket_us, sum(high), sum(low) FROM (SELECT tenant_id, bucket_us, high, low "
    "FROM archived_posted UNION ALL SELECT * FROM "
    f"({posted('true')})) GROUP BY 1, 2"
)
FILL: tuple[str, ...] = (
    f"INSERT INTO open_request {OPEN_REQUESTS}",
    f"INSERT INTO open_hold {OPEN_HOLDS}",
    f"INSERT INTO tenant_posted {POSTED_WHOLE}",
)
FILL_FIRST: tuple[str, ...] = (
    FILL[0],
    "INSERT INTO open_hold SELECT reservation_id, seq, tenant_id, cost_pico FROM reservation AS r "
    "WHERE NOT EXISTS (SELECT 1 FROM settlement WHERE reservation_id = r.reservation_id)",
    "INSERT INTO tenant_posted SELECT r.tenant_id, "
    f"s.settled_at_us - s.settled_at_us % {QUARTER_US}, sum(s.cost_pico >> 32), "
    "sum(s.cost_pico & 4294967295) FROM settlement AS s "
    "JOIN reservation AS r ON r.reservation_id = s.reservation_id "
    "WHERE s.kind = 'posted' GROUP BY 1, 2",
)
"""FILL of the migration that made the tables: before archives, and before rows were shared."""

# What has its end already, in whatever order the two were written, isn't open. What began is read
# back from the commit's own pages, so that its values don't go through Python a second time; of
# what ended the keys alone are needed.
_COMMITTED = "seq BETWEEN :first AND :last"
_ENTER_REQUESTS = f"INSERT OR REPLACE INTO open_request {OPEN_REQUESTS} AND {_COMMITTED}"
_ENTER_HOLDS = f"INSERT OR REPLACE INTO open_hold {OPEN_HOLDS} AND {_COMMITTED}"
_END_REQUESTS = "DELETE FROM open_request WHERE request_id IN "
_END_HOLDS = "DELETE FROM open_hold WHERE reservation_id IN "
KEYS_PER_STATEMENT = 64
_ADD_POSTED = (
    f"INSERT INTO tenant_posted {posted(_COMMITTED)} ON CONFLICT (tenant_id, bucket_us) "
    "DO UPDATE SET high = high + excluded.high, low = low + excluded.low"
)


class OpenWork:
    """The projection that the writer always keeps. It remembers nothing between commits."""

    def apply(
        self, connection: sqlite3.Connection, rows: Sequence[tuple[Record, Appended]]
    ) -> None:
        """Enters what began and takes out what ended; what did both in one commit leaves no trace.

        What a settlement posts is entered under the tenant of its reservation, which comes first.
        """
        kinds = {type(record) for record, _ in rows}
        if kinds.isdisjoint(_CONCERNED):
            return
        seqs = [place.seq for _, place in rows]
        committed = {"first": min(seqs), "last": max(seqs)}
        if RouteDecision in kinds:
            connection.execute(_ENTER_REQUESTS, committed)
        if not kinds.isdisjoint(_HOLD):
            connection.execute(_ENTER_HOLDS, committed)
        receipts = [one for one, _ in rows if type(one) is Receipt] if Receipt in kinds else []
        if receipts:
            _delete(connection, _END_REQUESTS, [one.request_id for one in receipts])
        settled = [one.request_id for one in receipts if one.closes]
        if Settlement in kinds:
            settled += [one.reservation_id for one, _ in rows if type(one) is Settlement]
        if settled:
            connection.execute(_ADD_POSTED, committed)
            _delete(connection, _END_HOLDS, settled)


def _delete(connection: sqlite3.Connection, sql: str, keys: Sequence[str]) -> None:
    """Takes rows out by key, by statements of 64, 32 … 1 keys, so that their texts are few."""
    done = 0
    while done < len(keys):
        size = min(KEYS_PER_STATEMENT, 1 << (len(keys) - done).bit_length() - 1)
        connection.execute(_of_keys(sql, size), keys[done : done + size])
        done += size


@cache
def _of_keys(sql: str, size: int) -> str:
    return f"{sql} ({', '.join('?' * size)})"


def rebuild(connection: sqlite3.Connection) -> None:
    """Makes the three tables again from the records, in one transaction of a sole writer."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in (*DROP, *CREATE, *FILL):
            connection.execute(statement)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
