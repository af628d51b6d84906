"""Rollups made again from the receipts, and the proof that the kept ones equal them."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ledger.errors import ArchivesNeeded
from ledger.queries.objectives import revisions
from ledger.records import OutcomeReport, Receipt
from ledger.rollups.contents import CONTENTS, Row
from ledger.rollups.projection import Placement, Rollups, read_state
from ledger.rollups.tables import ARCHIVED, KINDS, LIVE, SHADOW, Tables
from ledger.rows import record_of, select
from ledger.slo import SloDefinition

ROWS_PER_STEP = 5_000  # receipts read and added in one transaction
Progress = Callable[[int], None]  # told how many receipts were read

_PAGE = f"WHERE seq > ? ORDER BY seq LIMIT {ROWS_PER_STEP}"
_NEXT_RECEIPTS = f"{select(Receipt)} {_PAGE}"
_NEXT_REPORTS = f"{select(OutcomeReport)} {_PAGE}"


def _silent(rows: int) -> None:
    """Reports nothing."""


def rebuild(connection: sqlite3.Connection, progress: Progress = _silent) -> int:
    """The chain position at which new rollups took the place of the old.

    They grow in shadow tables, a step a transaction; what was appended meanwhile is added in the
    transaction that swaps them. The connection is the ledger's only writer, in autocommit mode.
    A rebuild that was interrupted leaves shadow tables, which the next one drops.
    """
    with _immediate(connection):
        _execute(connection, SHADOW.drop + SHADOW.create)
        _begin_with_archived(connection, connection, SHADOW)
    shadow = Rollups(tables=SHADOW)
    position = rows = 0
    while step := _next_rows(connection, position):
        with _immediate(connection):
            position = _add(connection, shadow, step)
        rows += len(step)
        progress(rows)
    with _immediate(connection):
        while step := _next_rows(connection, position):
            position = _add(connection, shadow, step)
        _execute(connection, LIVE.drop)
        for kind in KINDS:
            connection.execute(f"ALTER TABLE {SHADOW.name(kind)} RENAME TO {LIVE.name(kind)}")
    return position


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the rollups' tables have the columns that this code keeps."""
    return _has_columns(connection, LIVE)


def add_archived(
    connection: sqlite3.Connection, archive: sqlite3.Connection, progress: Progress = _silent
) -> None:
    """Adds the receipts of an archive to the sums of archived months, which are made if need be.

    The ledger's only writer calls it once for each archive; `renew_archived` begins anew.
    """
    if not _has_archived(connection):
        _execute(connection, ARCHIVED.create)
    _add_archive(connection, _Recount(archive, revisions(connection), ARCHIVED), archive, progress)


def _add_archive(
    target: sqlite3.Connection, sums: Rollups, archive: sqlite3.Connection, progress: Progress
) -> None:
    position = rows = 0
    while step := _next_rows(archive, position):
        position = _add(target, sums, step)
        rows += len(step)
        progress(rows)


def renew_archived(
    connection: sqlite3.Connection,
    archives: Sequence[sqlite3.Connection],
    progress: Progress = _silent,
) -> None:
    """Makes the sums of archived months again, from all the archives that the ledger has."""
    with _immediate(connection):
        _execute(connection, ARCHIVED.drop)
        for archive in archives:
            add_archived(connection, archive, progress)


def first_difference(
    connection: sqlite3.Connection,
    progress: Progress = _silent,
    archives: Sequence[sqlite3.Connection] = (),
) -> str | None:
    """A sentence that names the first row in which the rollups differ from the receipts, or None.

    The kept sums stand for what is in archives; with `archives`, which have to be all, in their
    order, these receipts are added up as well.

    The receipts are added up in a database in memory; the connection, in autocommit mode, may be
    read-only. Both sides are read in one snapshot, so the check holds while the ledger grows.
    """
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("BEGIN")
    try:
        _recount(connection, scratch, archives, progress)
        kept, counted = read_state(connection), read_state(scratch)
        if kept != counted:
            return f"{LIVE.name('state')}: kept {kept}, but the receipts give {counted}"
        for name, rows_of in CONTENTS.items():
            difference = _compare(name, rows_of(connection), rows_of(scratch))
            if difference is not None:
                return difference
        return None
    finally:
        connection.execute("ROLLBACK")
        scratch.close()


class _Recount(Rollups):
    """Rollups in one database of receipts in another."""

    def __init__(
        self,
        source: sqlite3.Connection,
        definitions: Sequence[SloDefinition] | None = None,
        tables: Tables = LIVE,
    ) -> None:
        super().__init__(definitions, tables)
        self._source = source

    def source(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        return self._source


def _recount(
    connection: sqlite3.Connection,
    scratch: sqlite3.Connection,
    archives: Sequence[sqlite3.Connection],
    progress: Progress,
) -> None:
    _execute(scratch, LIVE.create)
    for archive in archives:
        with _immediate(scratch):
            _add_archive(scratch, _Recount(archive, revisions(connection)), archive, progress)
    if not archives:
        _begin_with_archived(connection, scratch, LIVE)
    recount = _Recount(connection)
    position = rows = 0
    while step := _next_rows(connection, position):
        with _immediate(scratch):
            position = _add(scratch, recount, step)
        rows += len(step)
        progress(rows)


def _add(connection: sqlite3.Connection, rollups: Rollups, step: list[Placement]) -> int:
    rollups.add(connection, step)
    return step[-1][0]


def _next_rows(connection: sqlite3.Connection, position: int) -> list[Placement]:
    """The receipts and outcome reports that follow in the chain, in order; a step of them."""
    receipts = connection.execute(_NEXT_RECEIPTS, (position,)).fetchall()
    reports = connection.execute(_NEXT_REPORTS, (position,)).fetchall()
    found: list[Placement] = [(row[0], record_of(Receipt, row)) for row in receipts]
    found += [(row[0], record_of(OutcomeReport, row)) for row in reports]
    # The first of both together: of a kind whose page is full, more may follow in between.
    return sorted(found, key=lambda one: one[0])[:ROWS_PER_STEP]


def _begin_with_archived(
    source: sqlite3.Connection, target: sqlite3.Connection, tables: Tables
) -> None:
    """Fills empty tables with the sums of archived months, where the ledger has any."""
    if not _has_archived(source):
        return
    if not _has_columns(source, ARCHIVED):
        raise ArchivesNeeded
    target.execute(f"DELETE FROM {tables.name('state')}")
    for kind in KINDS:
        rows = source.execute(f"SELECT * FROM {ARCHIVED.name(kind)}").fetchall()
        marks = ", ".join("?" * len(_columns(source, ARCHIVED, kind)))
        target.executemany(
            f"INSERT INTO {tables.name(kind)} VALUES ({marks})",
            (tuple(row) for row in rows),
        )


def _has_archived(connection: sqlite3.Connection) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(sql, (ARCHIVED.name("state"),)).fetchone() is not None


def _has_columns(connection: sqlite3.Connection, tables: Tables) -> bool:
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    _execute(scratch, LIVE.create)
    try:
        return all(
            _columns(connection, tables, kind) == _columns(scratch, LIVE, kind) for kind in KINDS
        )
    finally:
        scratch.close()


def _columns(connection: sqlite3.Connection, tables: Tables, kind: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({tables.name(kind)})")]


def _execute(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    for statement in statements:
        connection.execute(statement)


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: committed at its end, rolled back where it is left by an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _compare(name: str, kept: Iterator[Row], counted: Iterator[Row]) -> str | None:
    for mine, theirs in itertools.zip_longest(kept, counted):
        if mine != theirs:
            return (
                f"{name}: kept {_short(mine, theirs)}, but the receipts give {_short(theirs, mine)}"
            )
    return None


def _short(row: Row | None, other: Row | None) -> str:
    """The row, without the measures in which both agree."""
    if row is None:
        return "no more rows"
    if other is None:
        return str(row)
    keys = ("grain_min", "bucket_us", "slo_key")
    return str({k: v for k, v in row.items() if k in keys or other.get(k) != v})
