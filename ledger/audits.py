"""What must hold between records: one current receipt, one settlement (LED-1, LED-6)."""

import sqlite3
from collections.abc import Iterator

from ledger.faults import Fault, Kind
from ledger.reading import fetch, fetch_one

FOUND_LIMIT = 100


def audit(
    connection: sqlite3.Connection, size: int, *, at_rest: bool
) -> tuple[int, tuple[Fault, ...]]:
    """(decided requests without a receipt, the faults) among the first `size` rows.

    Requests without a receipt are faults when the ledger is `at_rest`: nothing runs, and what a
    crash left open was filed as unknown.
    """
    sql = (
        "SELECT count(*) FROM route_decision AS d WHERE seq <= ? AND NOT EXISTS "
        "(SELECT 1 FROM receipt WHERE request_id = d.request_id)"
    )
    unfinished = int(fetch_one(connection, sql, (size,))[0])
    faults = [*_receipts(connection, size), *_settlements(connection, size)]
    if at_rest and unfinished:
        faults += _rows(
            connection,
            size,
            "receipt",
            "route_decision",
            "the request has no receipt",
            "SELECT seq, request_id FROM route_decision AS d WHERE seq <= ? AND NOT EXISTS "
            "(SELECT 1 FROM receipt WHERE request_id = d.request_id) ORDER BY seq",
        )
    return unfinished, tuple(faults)


def _receipts(connection: sqlite3.Connection, size: int) -> Iterator[Fault]:
    yield from _rows(
        connection,
        size,
        "receipt",
        "receipt",
        "its request's revisions are not 0, 1, 2 … once each",
        "SELECT min(seq), request_id FROM receipt WHERE seq <= ? GROUP BY request_id "
        "HAVING min(revision) != 0 OR max(revision) != count(*) - 1 "
        "OR count(DISTINCT revision) != count(*) ORDER BY 1",
    )
    yield from _rows(
        connection,
        size,
        "receipt",
        "receipt",
        "it doesn't resolve its request's receipt before it, or that was no unknown",
        "SELECT r.seq, r.request_id FROM receipt AS r LEFT JOIN receipt AS p "
        "ON p.request_id = r.request_id AND p.revision = r.revision - 1 "
        "WHERE r.seq <= ? AND r.revision > 0 AND (p.entry_hash IS NOT r.resolves_hash "
        "OR p.status IS NOT 'unknown') ORDER BY r.seq",
    )


def _settlements(connection: sqlite3.Connection, size: int) -> Iterator[Fault]:
    yield from _rows(
        connection,
        size,
        "settlement",
        "settlement",
        "its reservation was settled before",
        "SELECT max(seq), reservation_id FROM settlement WHERE seq <= ? "
        "GROUP BY reservation_id HAVING count(*) > 1 ORDER BY 1",
    )
    yield from _rows(
        connection,
        size,
        "settlement",
        "settlement",
        "there is no such reservation",
        "SELECT seq, reservation_id FROM settlement AS s WHERE seq <= ? AND NOT EXISTS "
        "(SELECT 1 FROM reservation WHERE reservation_id = s.reservation_id) ORDER BY seq",
    )


def _rows(
    connection: sqlite3.Connection, size: int, kind: Kind, table: str, what: str, sql: str
) -> Iterator[Fault]:
    for seq, label in fetch(connection, f"{sql} LIMIT {FOUND_LIMIT}", (size,)):
        yield Fault(kind=kind, table=table, seq=seq, label=str(label), what=what)
