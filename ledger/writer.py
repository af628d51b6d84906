"""Batches of records made durable over one connection: the part of the store that knows SQLite.

Used by one thread. A batch is one transaction: rows, projections and the chain's head stand in it
together or not at all, and the head in memory moves only when it is durable.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from itertools import chain as flatten
from pathlib import Path
from typing import Protocol, cast

from ledger import write_ahead
from ledger.chain import BadHead, Builder, Head
from ledger.errors import (
    LedgerDamaged,
    LedgerNotReady,
    LedgerUnavailable,
    RecordRefused,
    write_fault_of,
)
from ledger.open_work import OpenWork
from ledger.reading import entry_hash_at, fetch_one, read_head
from ledger.records import CHAINED, Record
from ledger.rollups.tables import LIVE
from ledger.rows import select
from ledger.statements import Appended, inserts
from ledger.triggers import check_triggers

BUSY_TIMEOUT_MS = 5_000
CACHE_KIB = 65_536
CACHED_STATEMENTS = 512

Outcome = tuple[Appended, ...] | RecordRefused

# Python's module looks for an adapter of each None and each bytes that it binds, and raises and
# drops an AttributeError inside when there is none: a microsecond for nothing. These are the
# identity, in C; they are shared by every connection of the process and change nothing.
sqlite3.register_adapter(bytes, bytes.__bytes__)
sqlite3.register_adapter(type(None), cast("Callable[[None], None]", dict[None, None]().get))


class Projection(Protocol):
    """State kept beside the records, in their transaction (rollups, open holds).

    `apply` writes over the connection alone, and keeps nothing: its transaction may be undone.
    """

    def apply(
        self, connection: sqlite3.Connection, rows: Sequence[tuple[Record, Appended]]
    ) -> None: ...


class Writer:
    """Commits batches, checkpoints, and reopens its connection after a fault of the disk."""

    def __init__(self, path: Path, projections: Sequence[Projection] = ()) -> None:
        self._path = path
        self._projections = (OpenWork(), *projections)
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._log = write_ahead.LogPages(path)
        self.checkpointed_at_s: float | None = None  # by the monotonic clock
        self.head = Head()
        self.open()

    def open(self) -> None:
        """Opens the file, checks schema, triggers and head. LedgerNotReady, TriggersDiffer, …"""
        if not self._path.exists():
            # What to do depends on who asks: a store that had it open says that it was moved.
            raise LedgerNotReady(str(self._path), "there is no such file", do="")
        connection = sqlite3.connect(
            self._path,
            isolation_level=None,
            check_same_thread=False,  # opened by the caller, then used by the writer's thread
            cached_statements=CACHED_STATEMENTS,
        )
        try:
            for pragma in (
                f"busy_timeout={BUSY_TIMEOUT_MS}",
                "journal_mode=WAL",
                "synchronous=FULL",
                "wal_autocheckpoint=0",
                "temp_store=MEMORY",
                f"cache_size=-{CACHE_KIB}",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            _check_schema(connection, self._path)
            check_triggers(connection)
            self.head = _checked_head(connection, self._path)
        except BaseException:
            connection.close()
            raise
        self._connection, self._file = connection, _file_of(self._path)

    def commit(self, batch: Sequence[Sequence[Record]]) -> list[Outcome]:
        """For each caller's records their places, or why they were refused; all of it durable.

        Raises LedgerUnavailable where the disk, not a record, is at fault: then nothing is written.
        """
        try:
            connection = self._connected()
            self._check_in_place()
            try:
                return self._together(connection, batch)
            except Exception as error:
                if _of_the_environment(error):
                    raise
                _roll_back(connection)
            return self._one_by_one(connection, batch)
        except Exception as error:
            self._abandon()
            if isinstance(error, LedgerUnavailable):
                raise
            code = write_fault_of(error)
            raise LedgerUnavailable(f"nothing was recorded: {error}", code) from error

    def probe(self) -> None:
        """Returns when a transaction can be made durable; LedgerUnavailable when not."""
        try:
            connection = self._connected()
            self._check_in_place()
            connection.execute("BEGIN IMMEDIATE")
            _write_head(connection, self.head)
            connection.execute("COMMIT")
        except Exception as error:
            self._abandon()
            code = write_fault_of(error)
            raise LedgerUnavailable(f"the ledger's disk is still failing: {error}", code) from error

    def checkpoint_due(self, *, idle: bool) -> bool:
        return self._log.due(idle=idle)

    def checkpoint_overdue(self) -> bool:
        return self._log.overdue()

    def checkpoint(self, copied_pages: int = 0) -> None:
        """Copies the write-ahead log into the file as far as readers allow, without waiting.

        `copied_pages`: what the log held when most of it was copied beside the commits.
        """
        try:
            pages = write_ahead.checkpoint(self._connected())
        except sqlite3.Error as error:
            self._abandon()
            raise write_ahead.not_copied(error) from error
        self.checkpointed_at_s = time.monotonic()
        self._log.copied(pages, copied_pages)

    def close(self) -> None:
        """Closes the connection, the write-ahead log copied into the file and cut to nothing.

        A reader that is still there keeps the log as it is: it is whole all the same.
        """
        if self._connection is not None:
            try:
                self._connection.execute("PRAGMA busy_timeout=0").fetchall()
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._connection.close()
                self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self.open()
        if self._connection is None:
            raise LedgerUnavailable("the ledger's connection is closed")
        return self._connection

    def _check_in_place(self) -> None:
        """Returns while the path leads to the open file.

        A file that was moved or removed takes commits all the same, and nobody would find them.
        """
        if _file_of(self._path) != self._file:
            what = f"{self._path} is another file than the one that was opened"
            raise LedgerUnavailable(what, "FILE_MOVED")

    def _abandon(self) -> None:
        """Drops a connection whose state is in doubt: the next use reads the head from the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                return  # the fault that brought us here is the one that is reported

    def _together(
        self, connection: sqlite3.Connection, batch: Sequence[Sequence[Record]]
    ) -> list[Outcome]:
        """The whole batch in one go: the common case."""
        builder = Builder(self.head)
        connection.execute("BEGIN IMMEDIATE")
        outcomes = _write(connection, builder, batch)
        placed = _placed(batch, outcomes)
        for projection in self._projections:
            projection.apply(connection, placed)
        self._finish(connection, builder.head, builder.closed)
        return [*outcomes]

    def _one_by_one(
        self, connection: sqlite3.Connection, batch: Sequence[Sequence[Record]]
    ) -> list[Outcome]:
        """Each caller in a savepoint, so that a bad record fails its own caller alone."""
        head = self.head
        closed: list[tuple[int, bytes]] = []
        outcomes: list[Outcome] = []
        connection.execute("BEGIN IMMEDIATE")
        for records in batch:
            builder = Builder(head)
            connection.execute("SAVEPOINT caller")
            try:
                (outcome,) = _write(connection, builder, (records,))
                placed = _placed((records,), (outcome,))
                for projection in self._projections:
                    projection.apply(connection, placed)
            except Exception as error:
                if _of_the_environment(error):
                    raise
                connection.execute("ROLLBACK TO caller")
                outcomes.append(_refusal(error))
            else:
                head = builder.head
                closed += builder.closed
                outcomes.append(outcome)
            connection.execute("RELEASE caller")
        self._finish(connection, head, closed)
        return outcomes

    def _finish(
        self, connection: sqlite3.Connection, head: Head, closed: Sequence[tuple[int, bytes]]
    ) -> None:
        _write_head(connection, head)
        if closed:
            connection.executemany("INSERT OR REPLACE INTO chain_block VALUES (?, ?)", closed)
        connection.execute("COMMIT")
        self._log.committed(head.size - self.head.size)
        self.head = head


def _file_of(path: Path) -> tuple[int, int]:
    """What the file system knows a file by, whatever its name."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _write(
    connection: sqlite3.Connection, builder: Builder, batch: Sequence[Sequence[Record]]
) -> list[tuple[Appended, ...]]:
    """Each caller's records' places, their rows written."""
    outcomes: list[tuple[Appended, ...]] = []
    for sql, values in inserts(builder, batch, outcomes):
        connection.execute(sql, values)
    return outcomes


def _placed(
    batch: Sequence[Sequence[Record]], outcomes: Sequence[tuple[Appended, ...]]
) -> list[tuple[Record, Appended]]:
    """Every record of the batch with its place, in order."""
    return list(zip(flatten.from_iterable(batch), flatten.from_iterable(outcomes), strict=True))


def _of_the_environment(error: Exception) -> bool:
    """Whether the disk, the memory or the file is at fault, and not the records."""
    kinds = (sqlite3.OperationalError, sqlite3.InternalError, MemoryError, OSError)
    return isinstance(error, kinds) or type(error) is sqlite3.DatabaseError


def _refusal(error: Exception) -> RecordRefused:
    if isinstance(error, RecordRefused):
        return error
    refusal = RecordRefused(f"{type(error).__name__}: {error}")
    refusal.__cause__ = error
    return refusal


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # SQLite may have rolled back by itself
        connection.execute("ROLLBACK")


def _write_head(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute(
        "UPDATE chain_head SET size = ?, entry_hash = ?, frontier = ? WHERE id = 1",
        (head.size, head.entry_hash, head.frontier),
    )


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    try:
        connection.execute("SELECT size FROM chain_head LIMIT 0")
        for table in ("open_request", "open_hold", "tenant_posted", "chain_block"):
            connection.execute(f"SELECT 1 FROM {table} LIMIT 0")
        for record_type in CHAINED:
            connection.execute(f"{select(record_type)} LIMIT 0")
        connection.execute(LIVE.columns)
    except sqlite3.OperationalError as error:
        raise LedgerNotReady(str(path), str(error)) from error


def _checked_head(connection: sqlite3.Connection, path: Path) -> Head:
    """The head, when the last row is the one that it names and none comes after it."""
    head = read_head(connection)
    if head is None:
        raise LedgerDamaged(str(path), "its chain_head row is gone")
    try:
        Builder(head)
    except BadHead as error:
        raise LedgerDamaged(str(path), f"its chain_head is broken: {error}") from error
    if entry_hash_at(connection, head.size) != head.entry_hash:
        raise LedgerDamaged(str(path), f"row {head.size}, its last, is missing or was altered")
    for record_type in CHAINED:
        last = fetch_one(connection, f"SELECT max(seq) FROM {record_type.TABLE}")[0]
        if last is not None and last > head.size:
            raise LedgerDamaged(
                str(path), f"{record_type.TABLE} has row {last}, after the chain's end {head.size}"
            )
    return head
