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

PAGES_IDLE = 1_000  # copied when there is nothing else to do, or where a log doesn't begin anew
PAGES_BUSY = 8_000  # copied beside the commits: 32 MiB
PAGES_LONG = 4_000  # in all: from here on a log that doesn't begin anew is tried again soon
PAGES_LIMIT = 32_000  # commits wait for the copy: 128 MiB
PAGES_PER_ROW_GUESS = 4.0  # until the first copy has said


class LogPages:
    """How many pages the log has got since it was last copied: a guess, told right by each copy.

    SQLite says so only when it copies. A commit of one row writes many pages for it, one of five
    hundred few: of what the rows and what the commits would make the more is taken, so that a load
    that changes is copied too early and never too late.

    A log that was copied whole begins anew with the next commit, but not where somebody reads it
    at that moment: then it goes on, and it is tried again after a few pages.
    """

    def __init__(self, ledger: Path) -> None:
        file = ledger.resolve()
        self._log = file.with_name(f"{file.name}-wal")
        self._rows = self._commits = 0
        self._per_row, self._per_commit = PAGES_PER_ROW_GUESS, 0.0
        self._pages = self._turn = 0  # in all, when it was last copied, and in which of its turns

    def committed(self, rows: int) -> None:
        self._rows += rows
        self._commits += 1

    def due(self, *, idle: bool) -> bool:
        """Whether it is time for a copy: while commits wait, or where none does."""
        waiting = self._waiting()
        if waiting < PAGES_IDLE:
            return False
        return idle or waiting >= PAGES_BUSY or (self._pages >= PAGES_LONG and self._goes_on())

    def overdue(self) -> bool:
        """Whether the log has more than it may: the disk copies more slowly than commits write."""
        return self._waiting() >= PAGES_LIMIT

    def copied(self, pages: int, beside: int = 0) -> None:
        """From now on nothing waits; the log has `pages` in all (0 or less: not known).

        `beside`: what it had when most of it was copied beside the commits; more than `pages`
        where it has begun anew since.
        """
        turn = self._turn_now()
        turns, came = turn - self._turn, pages
        if pages < beside:
            turns, came = turns - 1, beside + pages
        if turns == 0:
            came -= self._pages
        if self._commits and came > 0:
            self._per_row, self._per_commit = came / max(1, self._rows), came / self._commits
        self._rows = self._commits = 0
        self._pages, self._turn = pages, turn

    def _waiting(self) -> float:
        return max(self._rows * self._per_row, self._commits * self._per_commit)

    def _goes_on(self) -> bool:
        """Whether it hasn't begun anew since it was copied."""
        if self._turn_now() == self._turn:
            return True
        self._pages = 0  # so that it isn't asked again
        return False

    def _turn_now(self) -> int:
        """How often it has begun anew, by its header.

        https://sqlite.org/fileformat2.html#the_write_ahead_log: the checkpoint sequence number.
        """
        try:
            with self._log.open("rb") as log:
                return int.from_bytes(log.read(16)[12:])
        except OSError:  # the next commit says what is wrong with the file
            return self._turn


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
