"""Closed requests of old months moved to a file of their own, the chain left whole (LED-8).

A new ledger is built beside the old one: the requests' rows are in the archive, their hashes in
their place, and a control action names the archive and its SHA-256. The new ledger is verified
whole, as a continuation of the old; then it takes the old one's name. Until that moment the old
ledger is as it was, whatever happens.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from ledger.archive_check import archive_faults
from ledger.archive_tables import ADD_POSTED, CHOOSE, MOVED
from ledger.backup import (
    Problem,
    Refused,
    check_space,
    making,
    manifest_of,
    pages_damaged,
    sha256_of,
    sync,
    write_whole,
)
from ledger.chain import Checkpoint
from ledger.errors import LedgerError, LedgerInUse, LedgerNotReady, RecordRefused
from ledger.invariants import audit
from ledger.lock import LedgerLock
from ledger.queries.archives import ACTION, Archive, Stayed, stayed_behind
from ledger.reading import connect_read_only, fetch_one, read_head
from ledger.records import ArchivedRow, ControlAction, Record
from ledger.rollups.rebuild import add_archived
from ledger.rows import select
from ledger.triggers import install_statements
from ledger.verify import verify
from ledger.walk import fault_at, leaf_of
from ledger.writer import Writer

FORMAT = "weighbridge-archive-1"
SUFFIXES = ("", "-journal", "-wal", "-shm")
WAIT_MS = 2_000  # for readers that are about to end

Step = Callable[[str], None]


class ArchiveManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive is; `checkpoint` is of the ledger from which it was taken."""

    format: str
    archive: Archive
    checkpoint: Checkpoint
    made_at_us: int
    sqlite_version: str
    stayed: tuple[Stayed, ...] = ()  # what was asked for and is in the ledger still


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: requests accepted before `before_us`, by whom and why."""

    before_us: int
    now_us: int
    actor: str
    reason: str = ""


def latest_cut_us(now_us: int) -> int:
    """The first moment of last month, UTC: this month and the last one always stay."""
    first = datetime.fromtimestamp(now_us // 1_000_000, tz=UTC).replace(day=1)
    last_month = (first - timedelta(days=1)).replace(day=1)
    return int(datetime(last_month.year, last_month.month, 1, tzinfo=UTC).timestamp()) * 1_000_000


def archive(
    ledger: Path, folder: Path, asked: Request, step: Step = lambda name: None
) -> ArchiveManifest | Refused:
    """The manifest of the new archive in `folder`; `step` is told what is done next.

    Refused, with nothing changed, where a server or a reader has the ledger, where nothing is old
    enough, and where the ledger before or after would not verify.
    """
    if asked.before_us > latest_cut_us(asked.now_us):
        what = "this month and the last one stay in the ledger: name an earlier month"
        return Refused(code="TOO_RECENT", what=what)
    ledger = ledger.resolve()  # a link stays a link to it
    try:
        _rolled_back(ledger)
        connect_read_only(ledger).close()
        lock = LedgerLock.take(ledger)
    except LedgerInUse as error:
        return Refused(code="LEDGER_IN_USE", what=str(error))
    except (LedgerError, sqlite3.DatabaseError) as error:
        return Refused(code="LEDGER_UNREADABLE", what=str(error))
    try:
        with _alone(ledger):
            return _archive(ledger, folder, asked, step)
    except Problem as problem:
        return problem.refused
    except OSError as error:
        return Refused(code="CANT_WRITE", what=f"{error.filename}: {error.strerror}")
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such "):  # table or column: of an older version
            return Refused(
                code="LEDGER_UNREADABLE", what=str(LedgerNotReady(str(ledger), str(error)))
            )
        return Refused(code="CANT_WRITE", what=str(error))
    except sqlite3.DatabaseError as error:
        return pages_damaged(ledger.name, str(error)).refused
    finally:
        lock.release()


def _archive(ledger: Path, folder: Path, asked: Request, step: Step) -> ArchiveManifest:
    at = datetime.fromtimestamp(asked.now_us // 1_000_000, tz=UTC)
    before = datetime.fromtimestamp(asked.before_us // 1_000_000, tz=UTC)
    target = folder / f"archive-before-{before:%Y-%m}-made-{at:%Y%m%dT%H%M%SZ}.sqlite3"
    step("verify the ledger")
    checkpoint = _verified(ledger, None)
    with _beside(ledger) as new:
        with making(target) as partial:
            check_space(folder, ledger.stat().st_size)
            check_space(ledger.parent, 2 * ledger.stat().st_size)  # the new one, and its VACUUM
            step("copy the ledger")
            shutil.copyfile(ledger, new)
            made, stayed = _split(new, partial, asked, target.name, step)
            step("verify the new ledger")
            _verified(new, checkpoint)
            _audited(new)
            _archive_agrees(new, partial, made.file)
        try:
            manifest = ArchiveManifest(
                format=FORMAT,
                archive=made,
                checkpoint=checkpoint,
                made_at_us=asked.now_us,
                sqlite_version=sqlite3.sqlite_version,
                stayed=stayed,
            )
            step("write the manifest")
            told = msgspec.json.format(msgspec.json.encode(manifest))
            write_whole(manifest_of(target), told)
            step("put the new ledger in place")
            sync(new)
            new.replace(ledger)
        except OSError:
            target.unlink(missing_ok=True)
            manifest_of(target).unlink(missing_ok=True)
            raise
    sync(ledger.parent)
    step("done")
    return manifest


def _split(
    new: Path, file: Path, asked: Request, name: str, step: Step
) -> tuple[Archive, tuple[Stayed, ...]]:
    """Moves rows from the copy `new` to `file`, and appends to `new` the action that says so."""
    with closing(_scratch(new)) as connection:
        for sql in CHOOSE:
            connection.execute(sql, {"before_us": asked.before_us} if ":before" in sql else {})
        requests, oldest_us, newest_us = fetch_one(
            connection, "SELECT count(*), min(accepted_at_us), max(accepted_at_us) FROM moved"
        )
        stayed = stayed_behind(connection, asked.before_us)
        if not requests:
            whole = sum(one.requests for one in stayed)
            what = "no request was accepted before that time"
            if whole:
                what = f"none of {whole:,} request(s) accepted before that time is closed: "
            raise Problem("NOTHING_OLD_ENOUGH", what + "; ".join(map(str, stayed)))
        step("fill the archive")
        _fill(connection, new, file)
        told = Archive(
            file=name,
            sha256=sha256_of(file),
            size_bytes=file.stat().st_size,
            requests=requests,
            before_us=asked.before_us,
            first_accepted_us=oldest_us,
            last_accepted_us=newest_us,
            ended_before=True,
            **_extent(file),
        )
        head = read_head(connection)
        archive_seq = (head.size if head else 0) + 1
        step("leave hashes in place of rows")
        _leave_hashes(connection, file, archive_seq)
        step("make the new ledger small")
        connection.execute("VACUUM")
    step("record the archive")
    _record(new, told, asked, archive_seq)
    return told, stayed


def _fill(connection: sqlite3.Connection, new: Path, file: Path) -> None:
    """The archive: the ledger's schema with its triggers, its head, and the moved rows."""
    with closing(_scratch(file)) as target:
        schema = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL "
            "AND tbl_name != 'moved' AND name NOT GLOB 'sqlite_*' "
            "ORDER BY type = 'trigger', type = 'index'"
        ).fetchall()
        target.execute("ATTACH ? AS ledger", (str(new),))
        target.execute("BEGIN")
        for kind, _, sql in schema:
            if kind != "trigger":
                target.execute(sql)
        target.execute("INSERT INTO chain_head SELECT * FROM ledger.chain_head")
        for record_type in MOVED:
            target.execute(
                f"INSERT INTO main.{record_type.TABLE} SELECT * FROM "
                f"ledger.{record_type.TABLE} WHERE request_id IN "
                "(SELECT request_id FROM ledger.moved) ORDER BY seq"
            )
        for kind, _, sql in schema:
            if kind == "trigger":
                target.execute(sql)
        target.execute("COMMIT")


def _extent(file: Path) -> dict[str, int]:
    with closing(connect_read_only(file)) as connection:
        counted = [
            fetch_one(connection, f"SELECT count(*), min(seq), max(seq) FROM {kind.TABLE}")
            for kind in MOVED
        ]
    held = [row for row in counted if row[0]]
    return {
        "rows": sum(row[0] for row in held),
        "first_seq": min(row[1] for row in held),
        "last_seq": max(row[2] for row in held),
    }


def _leave_hashes(connection: sqlite3.Connection, file: Path, archive_seq: int) -> None:
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    names = [row[0] for row in triggers.fetchall()]
    connection.execute("BEGIN")
    for name in names:
        connection.execute(f'DROP TRIGGER "{name}"')
    with closing(connect_read_only(file)) as source:
        add_archived(connection, source)
        for record_type in MOVED:
            connection.executemany(
                f"INSERT INTO {ArchivedRow.TABLE} (seq, v, entry_hash, leaf, archive_seq) "
                f"VALUES (?, {ArchivedRow.VERSION}, ?, ?, {archive_seq})",
                _hashes(source, record_type),
            )
    connection.execute(ADD_POSTED)
    connection.execute(
        "INSERT INTO archived_request SELECT request_id, tenant_id, ? FROM moved", (archive_seq,)
    )
    for record_type in MOVED:
        connection.execute(
            f"DELETE FROM {record_type.TABLE} WHERE request_id IN (SELECT request_id FROM moved)"
        )
    connection.execute("DROP TABLE moved")
    for statement in install_statements(()):
        connection.execute(statement)
    connection.execute("COMMIT")


def _hashes(
    source: sqlite3.Connection, record_type: type[Record]
) -> Iterator[tuple[int, bytes, bytes]]:
    for row in source.execute(select(record_type)):
        leaf = leaf_of(record_type, tuple(row))
        if isinstance(leaf, str):
            raise Problem("CHAIN_BROKEN", str(fault_at("altered", record_type, tuple(row), leaf)))
        yield row[0], row[2], leaf


def _record(new: Path, told: Archive, asked: Request, archive_seq: int) -> None:
    writer = Writer(new)
    try:
        action = ControlAction(
            action=ACTION,
            subject=told.file,
            actor=asked.actor,
            acted_at_us=asked.now_us,
            reason=asked.reason,
            before_json="{}",
            after_json=msgspec.json.encode(told, order="deterministic").decode(),
        )
        placed = writer.commit([[action]])[0]
    finally:
        writer.close()
    if isinstance(placed, RecordRefused) or placed[0].seq != archive_seq:
        raise Problem("CHAIN_BROKEN", f"the archive can't be recorded: {placed}")
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()


def _verified(path: Path, checkpoint: Checkpoint | None) -> Checkpoint:
    """The checkpoint of a ledger without fault."""
    with closing(connect_read_only(path)) as connection:
        said = fetch_one(connection, "PRAGMA integrity_check(1)")[0]
        if said != "ok":
            raise pages_damaged(path.name, said)
        report = verify(connection, checkpoint=checkpoint)
    if report.root is None or not report.sound:
        what = f"{len(report.faults)} fault(s), the first: {report.faults[0]}"
        raise Problem("CHAIN_BROKEN", what)
    return Checkpoint(size=report.rows, root=report.root)


def _audited(path: Path) -> None:
    with closing(connect_read_only(path)) as connection:
        for result in audit(connection):
            if not result.holds:
                what = f"{result.code}: {result.findings[0]}"
                raise Problem("AUDIT_FAILED", f"in the new ledger, {what}")


def _archive_agrees(new: Path, file: Path, name: str) -> None:
    with closing(connect_read_only(new)) as connection:
        faults = archive_faults(connection, file, name)
    if faults:
        raise Problem("CHAIN_BROKEN", f"the archive: {faults[0]}")


@contextmanager
def _alone(ledger: Path) -> Iterator[None]:
    """Nobody has the file open, and no log is left beside it that a new file could be taken for."""

    def journal(mode: str) -> str:
        with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA busy_timeout={WAIT_MS}")
            try:
                return str(fetch_one(connection, f"PRAGMA journal_mode={mode}")[0])
            except sqlite3.OperationalError as error:
                return str(error)

    said = journal("DELETE")
    if said != "delete" and "locked" not in said:
        raise Problem("CANT_WRITE", f"{ledger} or its folder: {said}")
    if said != "delete":
        what = f"another program has {ledger} open ({said}): end it first"
        raise Problem("LEDGER_BEING_READ", what)
    try:
        yield
    finally:
        journal("WAL")


@contextmanager
def _beside(ledger: Path) -> Iterator[Path]:
    """Where the new ledger is built; whatever an interrupted run left there is removed."""
    new = ledger.with_name(ledger.name + ".archiving")

    def clean() -> None:
        for suffix in SUFFIXES:
            new.with_name(new.name + suffix).unlink(missing_ok=True)

    clean()
    try:
        os.close(os.open(new, os.O_CREAT | os.O_WRONLY, 0o600))
        yield new
    finally:
        clean()


def _rolled_back(ledger: Path) -> None:
    """Undoes what a run that was killed had begun to change in the file's header, if there was."""
    if ledger.with_name(ledger.name + "-journal").exists():
        with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=rw", uri=True)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()


def _scratch(path: Path) -> sqlite3.Connection:
    """A connection to a file that counts only when it is complete and synchronised."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=OFF").fetchall()
    connection.execute("PRAGMA synchronous=OFF")
    return connection
