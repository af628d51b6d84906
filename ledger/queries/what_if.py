"""The receipts of a period as a rate table prices them, streamed (CST-5)."""

import sqlite3
from collections.abc import Iterator

from ledger.reading import fetch
from ledger.what_if import Served

PAGE_ROWS = 2_000

_SQL = (
    f"SELECT seq, {', '.join(Served._fields)} "
    "FROM receipt AS found INDEXED BY receipt_time "
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND (accepted_at_us, seq) > (?, ?) "
    "AND status <> 'rejected' AND NOT EXISTS (SELECT 1 FROM receipt AS later "
    "WHERE later.request_id = found.request_id AND later.revision > found.revision) "
    "ORDER BY accepted_at_us, seq LIMIT ?"
)


def served(
    connection: sqlite3.Connection, since_us: int, until_us: int, *, page_rows: int = PAGE_ROWS
) -> Iterator[Served]:
    """Every request that was accepted from since_us on and before until_us, in order of time.

    The current receipt of each; rejected ones cost nothing and are left out. Read page by page:
    memory is bounded and no transaction stays open.
    """
    at_us, seq = since_us, -1
    while True:
        rows = fetch(connection, _SQL, (at_us, until_us, at_us, seq, page_rows))
        for row in rows:
            yield Served(*tuple(row)[1:])
        if len(rows) < page_rows:
            return
        seq, at_us = rows[-1]["seq"], rows[-1]["accepted_at_us"]
