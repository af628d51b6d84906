"""The write-ahead log: how many pages wait in it, and their copying while commits go on (LED-7).

Copied between two commits, the whole log stops every caller for as long as its pages take to be
durable. So most of it is copied beside them, by another thread and connection; what came meanwhile
is then copied between two of them, for only a log that is copied whole begins anew.
"""

import contextlib
import sqlite3
from pathlib import Path

from ledger.errors import LedgerUnavailable, write_fault_of
from ledger.reading import fetch_one

PAGES_IDLE = 1_000  # copied when there is nothing else to do, or to see that the log began anew
PAGES_BUSY = 8_000  # copied beside the commits: 32 MiB
PAGES_LIMIT = 32_000  # commits wait for the copy: 128 MiB
PAGES_PER_ROW_GUESS = 4.0  # until the first copy has said


class LogPages:
    """How many pages the log has got since it was last copied: a guess, told right by each copy.

    SQLite says so only when it copies. A commit of one row writes many pages for it, one of five
    hundred few: of what the rows and what the commits would make the more is taken, so that a load
    that changes is copied too early and never too late.

    A log that was copied whole begins anew with the next commit, but not where somebody reads it
    at that moment; and only the next copy tells. So after a long log that copy comes soon.
    """

    def __init__(self) -> None:
        self._rows = self._commits = 0
        self._pages, self._busy = 0, PAGES_BUSY
        self._per_row, self._per_commit = PAGES_PER_ROW_GUESS, 0.0

    def committed(self, rows: int) -> None:
        self._rows += rows
        self._commits += 1

    def due(self, *, idle: bool) -> bool:
        """Whether it is time for a copy: while commits wait, or where none does."""
        return self._waiting() >= (PAGES_IDLE if idle else self._busy)

    def overdue(self) -> bool:
        """Whether the log has more than it may: the disk copies more slowly than commits write."""
        return self._waiting() >= PAGES_LIMIT

    def copied(self, pages: int) -> None:
        """From now on nothing waits; the log has `pages` in all (0 or less: not known)."""
        if self._rows and pages > 0:
            came = pages - self._pages if pages > self._pages else pages  # else it began anew
            self._per_row, self._per_commit = came / self._rows, came / self._commits
            self._pages = pages
        self._rows = self._commits = 0
        self._busy = PAGES_BUSY if pages < PAGES_BUSY else PAGES_IDLE

    def _waiting(self) -> float:
        return max(self._rows * self._per_row, self._commits * self._per_commit)


def copy_log(path: Path) -> int:
    """The pages that the log held, copied into the file at `path` while commits go on.

    For another thread than the writer's. Raises LedgerUnavailable as a commit does.
    """
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)
        ) as connection:
            connection.execute("PRAGMA synchronous=FULL").fetchall()
            return checkpoint(connection)
    except (sqlite3.Error, OSError) as error:
        raise not_copied(error) from error


def checkpoint(connection: sqlite3.Connection) -> int:
    """The pages that the log held, copied as far as readers allow, without waiting."""
    return int(fetch_one(connection, "PRAGMA wal_checkpoint(PASSIVE)")[1])


def not_copied(error: Exception) -> LedgerUnavailable:
    """What a copy that failed tells, with a code of `errors.WRITE_FAULTS`."""
    code = write_fault_of(error)
    return LedgerUnavailable(f"the ledger can't be checkpointed: {error}", code)
