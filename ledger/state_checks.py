"""The audit's checks of what stands beside the records: head, triggers, projections."""

import sqlite3
from collections.abc import Iterator
from typing import Any

from ledger.chain import BadHead, checkpoint_of
from ledger.errors import LedgerError
from ledger.findings import Finding, Scope
from ledger.money import join
from ledger.open_work import OPEN_HOLDS, OPEN_REQUESTS, POSTED_WHOLE
from ledger.queries.violations import FOUND_LIMIT, rows_beyond_and_within
from ledger.reading import entry_hash_at, fetch, read_head
from ledger.rollups.rebuild import first_difference
from ledger.rollups.sums import snapshot
from ledger.triggers import trigger_differences

HEAD = "chain_head"


def head_is_rows(scope: Scope) -> Iterator[Finding]:
    """Findings where the head, the number of rows and the last row don't agree."""
    with snapshot(scope.connection):
        head = read_head(scope.connection)
        if head is None:
            yield Finding(table=HEAD, what="its row is gone or was altered")
            return
        try:
            checkpoint_of(head)
        except BadHead as error:
            yield Finding(table=HEAD, what=f"it has {error}")
        count, last = rows_beyond_and_within(scope.connection, head.size)
        if count != head.size:
            yield Finding(table=HEAD, what=f"it counts {head.size} rows; the tables have {count}")
        if last > head.size:
            yield Finding(table=HEAD, seq=last, what=f"a row stands after the end, {head.size}")
        if entry_hash_at(scope.connection, head.size) != head.entry_hash:
            what = "its hash is not that of the last row"
            yield Finding(table=HEAD, seq=head.size, what=what)


def triggers_in_place(scope: Scope) -> Iterator[Finding]:
    for difference in trigger_differences(scope.connection):
        yield Finding(table="sqlite_master", what=difference)


def open_work_is_rows(scope: Scope) -> Iterator[Finding]:
    """Findings for what is listed as open and isn't, for what is open and not listed, and sums."""
    with snapshot(scope.connection):
        for table, sql in (("open_request", OPEN_REQUESTS), ("open_hold", OPEN_HOLDS)):
            kept = f"SELECT * FROM {table}"
            for minuend, subtrahend, what in (
                (kept, sql, "it is listed as open, and is not"),
                (sql, kept, "it is open, and not listed"),
            ):
                differing = f"{minuend} EXCEPT {subtrahend} LIMIT {FOUND_LIMIT}"
                for row in fetch(scope.connection, differing):
                    yield Finding(table=table, seq=row[1], label=str(row[0]), what=what)
        kept_sums = _posted(scope.connection, "SELECT * FROM tenant_posted")
        counted = _posted(scope.connection, POSTED_WHOLE)
    for key in sorted(kept_sums.keys() | counted.keys()):
        if kept_sums.get(key, 0) != counted.get(key, 0):
            what = f"the quarter hour {key[1]} posts another sum than its settlements"
            yield Finding(table="tenant_posted", label=f"tenant {key[0]}", what=what)


def _posted(connection: sqlite3.Connection, sql: str) -> dict[tuple[Any, Any], int]:
    return {(row[0], row[1]): join(row[2], row[3]) for row in fetch(connection, sql)}


def rollups_equal_receipts(scope: Scope) -> Iterator[Finding]:
    """The first row in which the rollups differ from receipts added up again."""
    try:
        difference = first_difference(scope.connection)
    except (sqlite3.OperationalError, LookupError, ValueError, LedgerError) as error:
        difference = f"they can't be read: {error}"
    if difference is not None:
        yield Finding(table="rollups", what=difference)
