"""What is not at its end yet, and what tenants have spent: kept with every commit (LED-6).

Three small tables beside the records, written in the records' own transaction: requests without a
receipt, reservations without a settlement, and what was posted by tenant and quarter hour. So a
start reads what is open and not the whole ledger. They are projections: `rebuild` makes them again
from the records, and the audit compares.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ledger.money import split
from ledger.records import Receipt, Record, Reservation, RouteDecision, Settlement
from ledger.statements import Appended

QUARTER_US = 900_000_000
KEYS_PER_STATEMENT = 64

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
    "SELECT reservation_id, seq, tenant_id, cost_pico FROM reservation AS r WHERE NOT EXISTS "
    "(SELECT 1 FROM settlement WHERE reservation_id = r.reservation_id)"
)
POSTED = (
    f"SELECT r.tenant_id, s.settled_at_us - s.settled_at_us % {QUARTER_US} AS bucket_us, "  # noqa: S608
    "sum(s.cost_pico >> 32), sum(s.cost_pico & 4294967295) FROM settlement AS s "
    "JOIN reservation AS r ON r.reservation_id = s.reservation_id "
    "WHERE s.kind = 'posted' GROUP BY 1, 2"
)
# With what archived settlements posted: the records alone don't say it any more.
POSTED_WHOLE = (
    "SELECT tenant_id, bucket_us, sum(high), sum(low) FROM (SELECT tenant_id, bucket_us, high, low "  # noqa: S608 - own names
    "FROM archived_posted UNION ALL SELECT * FROM "
    f"({POSTED})) GROUP BY 1, 2"
)
FILL: tuple[str, ...] = (
    f"INSERT INTO open_request {OPEN_REQUESTS}",
    f"INSERT INTO open_hold {OPEN_HOLDS}",
    f"INSERT INTO tenant_posted {POSTED}",
)
FILL_WHOLE = (*FILL[:-1], f"INSERT INTO tenant_posted {POSTED_WHOLE}")
"""FILL of a ledger that can have archives; FILL is that of the migration that made the tables."""

# What has its end already, in whatever order the two were written, isn't open.
_ENTER_REQUEST = (
    "INSERT OR REPLACE INTO open_request SELECT ?1, ?2 "
    "WHERE NOT EXISTS (SELECT 1 FROM receipt WHERE request_id = ?1)"
)
_ENTER_HOLD = (
    "INSERT OR REPLACE INTO open_hold SELECT ?1, ?2, ?3, ?4 "
    "WHERE NOT EXISTS (SELECT 1 FROM settlement WHERE reservation_id = ?1)"
)
_ADD_POSTED = (
    "INSERT INTO tenant_posted VALUES (?, ?, ?, ?) ON CONFLICT (tenant_id, bucket_us) "
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
        requests: dict[str, int] = {}
        holds: dict[str, tuple[int, str, int]] = {}
        ended: list[str] = []
        settled: dict[str, Settlement] = {}
        posted: list[tuple[str, Settlement]] = []
        for record, place in rows:
            if isinstance(record, RouteDecision):
                requests[record.request_id] = place.seq
            elif isinstance(record, Receipt):
                if requests.pop(record.request_id, None) is None and record.revision == 0:
                    ended.append(record.request_id)
            elif isinstance(record, Reservation):
                holds[record.reservation_id] = (place.seq, record.tenant_id, record.cost_pico)
            elif isinstance(record, Settlement):
                hold = holds.pop(record.reservation_id, None)
                if hold is None:
                    settled[record.reservation_id] = record
                else:
                    posted.append((hold[1], record))
        _execute(connection, _ENTER_REQUEST, list(requests.items()))
        _execute(connection, _ENTER_HOLD, [(key, *value) for key, value in holds.items()])
        for keys in _parts(ended):
            connection.execute(_delete_requests(len(keys)), keys)
        for keys in _parts(list(settled)):
            for reservation_id, tenant_id in connection.execute(_delete_holds(len(keys)), keys):
                posted.append((tenant_id, settled[reservation_id]))
        _execute(connection, _ADD_POSTED, _sums(posted))


def rebuild(connection: sqlite3.Connection) -> None:
    """Makes the three tables again from the records, in one transaction of a sole writer."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in (*DROP, *CREATE, *FILL_WHOLE):
            connection.execute(statement)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _sums(posted: Sequence[tuple[str, Settlement]]) -> list[tuple[str, int, int, int]]:
    """What a commit posts by tenant and quarter hour, in two limbs (LED-3)."""
    sums: dict[tuple[str, int], int] = {}
    for tenant_id, settlement in posted:
        if settlement.kind == "posted":
            at_us = settlement.settled_at_us
            key = (tenant_id, at_us - at_us % QUARTER_US)
            sums[key] = sums.get(key, 0) + settlement.cost_pico
    return [(*key, *split(pico)) for key, pico in sums.items()]


def _parts(keys: list[str]) -> Iterator[list[str]]:
    """The keys in parts of 64, 32 … 1, so that few statements are ever prepared."""
    start, size = 0, KEYS_PER_STATEMENT
    while start < len(keys):
        while size > len(keys) - start:
            size //= 2
        yield keys[start : start + size]
        start += size


def _execute(connection: sqlite3.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        connection.executemany(sql, rows)


@cache
def _delete_requests(count: int) -> str:
    marks = ", ".join("?" * count)
    return f"DELETE FROM open_request WHERE request_id IN ({marks})"  # noqa: S608 - only marks


@cache
def _delete_holds(count: int) -> str:
    marks = ", ".join("?" * count)
    return (
        f"DELETE FROM open_hold WHERE reservation_id IN ({marks}) "  # noqa: S608 - only marks
        "RETURNING reservation_id, tenant_id"
    )
