"""A copy of the ledger made while it is written, and a copy put back: each proved (LED-8).

The copy is one snapshot, taken by SQLite's backup API in a single step: the main file alone would
lack what is still in the write-ahead log. It counts when it has been opened again, SQLite found
every page sound, and every hash and cost was computed again. Its manifest is written last: a copy
without one is what an interrupted backup left. The console's sessions are no part of it: whoever
logged in logs in again.
"""

import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from ledger.chain import Checkpoint, Head, checkpoint_of
from ledger.errors import LedgerError, LedgerInUse
from ledger.lock import LedgerLock
from ledger.older_schema import as_of_today
from ledger.reading import connect_read_only, entry_hash_at, fetch_one, read_head
from ledger.verify import verify

FORMAT = "weighbridge-backup-1"
LEDGER_NAME = "ledger.sqlite3"
READ_BYTES = 1 << 20
SPARE_BYTES = 64 << 20  # left free beside the copy
MANIFEST_LIMIT_BYTES = 65_536

Code = Literal[
    "LEDGER_UNREADABLE",
    "NOT_ENOUGH_SPACE",
    "CANT_WRITE",
    "PAGES_DAMAGED",
    "CHAIN_BROKEN",
    "TARGET_EXISTS",
    "NO_MANIFEST",
    "MANIFEST_DIFFERS",
    "LEDGER_IN_USE",
    "LEDGER_BEING_READ",
    "TOO_RECENT",
    "NOTHING_OLD_ENOUGH",
    "AUDIT_FAILED",
]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy is, in words that a later reader can check. Hashes in hexadecimal."""

    format: str
    file: str
    size_bytes: int
    sha256: str
    rows: int
    entry_hash: str  # of the last row
    checkpoint: Checkpoint
    made_at_us: int
    sqlite_version: str


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no proved copy; nothing half made is left behind."""

    code: Code
    what: str


class Problem(Exception):
    def __init__(self, code: Code, what: str) -> None:
        super().__init__(what)
        self.refused = Refused(code=code, what=what)


def back_up(ledger: Path, folder: Path, *, now_us: int) -> Manifest | Refused:
    """The manifest of a proved copy of the ledger in `folder`; the server may run meanwhile."""
    at = datetime.fromtimestamp(now_us // 1_000_000, tz=UTC)
    target = folder / f"ledger-{at:%Y%m%dT%H%M%SZ}.sqlite3"
    try:
        with making(target) as partial:
            _copy(ledger, partial)
            head = _proved(partial)
            _check_continued(ledger, head)
        manifest = Manifest(
            format=FORMAT,
            file=target.name,
            size_bytes=target.stat().st_size,
            sha256=sha256_of(target),
            rows=head.size,
            entry_hash=head.entry_hash.hex(),
            checkpoint=checkpoint_of(head),
            made_at_us=now_us,
            sqlite_version=sqlite3.sqlite_version,
        )
        write_whole(manifest_of(target), msgspec.json.format(msgspec.json.encode(manifest)))
        _note(ledger, target, manifest)
    except Problem as problem:
        return problem.refused
    except OSError as error:
        return Refused(code="CANT_WRITE", what=f"{error.filename}: {error.strerror}")
    return manifest


def restore(file: Path, folder: Path) -> Manifest | Refused:
    """The manifest of the backup `file`, now the ledger in `folder`, proved before it counts."""
    target = folder / LEDGER_NAME
    try:
        manifest = read_manifest(manifest_of(file))
        if manifest is None or manifest.format != FORMAT:
            raise Problem("NO_MANIFEST", f"{manifest_of(file)} is no manifest of a backup")
        if file.stat().st_size != manifest.size_bytes or sha256_of(file) != manifest.sha256:
            raise Problem("MANIFEST_DIFFERS", f"{file} isn't the file that was backed up")
        folder.mkdir(exist_ok=True)
        lock = LedgerLock.take(target)
        try:
            with making(target) as partial:
                check_space(folder, manifest.size_bytes)
                shutil.copyfile(file, partial)
                head = _proved(partial, manifest.checkpoint)
                if head.size != manifest.rows or head.entry_hash.hex() != manifest.entry_hash:
                    raise Problem("MANIFEST_DIFFERS", "the chain ends elsewhere than it says")
        finally:
            lock.release()
    except Problem as problem:
        return problem.refused
    except LedgerInUse as error:
        return Refused(code="TARGET_EXISTS", what=str(error))
    except OSError as error:
        return Refused(code="CANT_WRITE", what=f"{error.filename}: {error.strerror}")
    return manifest


def manifest_of(file: Path) -> Path:
    """Where the manifest of a backup's file is."""
    return file.with_name(file.name + ".json")


def note_of(ledger: Path) -> Path:
    """Where the last backup's manifest is noted beside the ledger, for health."""
    file = ledger.resolve()  # beside it, also for who has a link
    return file.with_name(file.name + ".last-backup.json")


def read_manifest(path: Path) -> Manifest | None:
    """The manifest in a file; None where there is none that can be read."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MANIFEST_LIMIT_BYTES), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def making(target: Path) -> Iterator[Path]:
    """A file that takes the name `target`, durably, when all went well, and is gone when not."""
    if not target.parent.parent.is_dir():  # a disk that isn't mounted, or a name mistyped
        raise Problem("CANT_WRITE", f"there is no folder {target.parent.parent} to make one in")
    partial = target.with_name(target.name + ".partial")
    with _folder(target.parent), _alone_at(partial):
        try:
            # Looked at by whoever is alone here: a run that began in the same second may be over.
            # A log or a journal of an earlier file would be taken for the new one's; a link that
            # leads nowhere is a disk that isn't mounted.
            for suffix in ("", "-wal", "-journal"):
                taken = target.with_name(target.name + suffix)
                if os.path.lexists(taken):
                    raise Problem("TARGET_EXISTS", f"{taken} exists; nothing is ever overwritten")
            yield partial
            sync(partial)
            partial.rename(target)
            sync(target.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """The folder, made where it wasn't there, and gone again where nothing came to be in it."""
    made = not path.exists()
    path.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something is in it
            if made:
                path.rmdir()
        raise


@contextmanager
def _alone_at(partial: Path) -> Iterator[None]:
    """The file, empty, is this process's alone; what a killed run left there is taken over."""
    descriptor = os.open(partial, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            what = f"another run is making {partial.with_suffix('')}"
            raise Problem("TARGET_EXISTS", what) from error
        except OSError:  # a disk without locks: the file's name has the second
            pass
        os.ftruncate(descriptor, 0)
        yield
    finally:
        os.close(descriptor)


def _copy(ledger: Path, partial: Path) -> None:
    """Copies one snapshot in a single step: in several, each commit would begin it again."""
    check_space(partial.parent, ledger.stat().st_size if ledger.exists() else 0)
    try:
        source = connect_read_only(ledger)
    except LedgerError as error:
        raise Problem("LEDGER_UNREADABLE", str(error)) from error
    target = sqlite3.connect(partial, isolation_level=None)
    try:
        source.backup(target, pages=-1)
        # One file that anybody can open read-only, without a log beside it.
        target.execute("PRAGMA journal_mode=DELETE").fetchall()
    except sqlite3.DatabaseError as error:
        raise Problem("LEDGER_UNREADABLE", f"{ledger} can't be copied: {error}") from error
    finally:
        target.close()
        source.close()


def _proved(copy: Path, checkpoint: Checkpoint | None = None) -> Head:
    """The copy's head, when SQLite finds its pages sound and the whole chain verifies.

    A copy of an older version lacks what `migrate` will add, triggers too; its rows say no less.
    """
    try:
        connection = connect_read_only(copy)
    except (LedgerError, sqlite3.DatabaseError) as error:
        raise pages_damaged("the copy", str(error.__cause__ or error)) from error
    try:
        said = fetch_one(connection, "PRAGMA integrity_check(1)")[0]
        if said != "ok":
            raise pages_damaged("the copy", said)
        older = as_of_today(connection)
        report = verify(connection, checkpoint=checkpoint)
        head = read_head(connection)
    except sqlite3.DatabaseError as error:
        raise pages_damaged("the copy", str(error)) from error
    finally:
        connection.close()
    faults = [fault for fault in report.faults if not (older and fault.kind == "trigger")]
    if faults or head is None:
        first = faults[0] if faults else "its chain_head row is gone or was altered"
        raise Problem("CHAIN_BROKEN", f"{len(faults)} fault(s), the first: {first}")
    return head


def pages_damaged(which: str, said: str) -> Problem:
    """What SQLite says of a file, in one line, and what to do."""
    told = " ".join(said.removeprefix("*** in database main ***").split())
    what = f"SQLite finds {which} damaged: {told}; run verify_ledger, then restore the last backup"
    return Problem("PAGES_DAMAGED", what)


def _note(ledger: Path, target: Path, manifest: Manifest) -> None:
    """Beside the ledger, for health. Where that can't be written the copy is whole all the same."""
    try:
        write_whole(note_of(ledger), msgspec.json.encode(manifest))
    except OSError as error:
        what = f"{target} is whole, but {note_of(ledger)} can't be written: {error.strerror}"
        raise Problem("CANT_WRITE", what) from error


def _check_continued(ledger: Path, head: Head) -> None:
    connection = connect_read_only(ledger)
    try:
        as_of_today(connection)
        if entry_hash_at(connection, head.size) != head.entry_hash:
            raise Problem("CHAIN_BROKEN", "the ledger is no continuation of its copy")
    finally:
        connection.close()


def check_space(folder: Path, size_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size_bytes + SPARE_BYTES:
        what = f"{folder} has {free >> 20} MiB free; the copy takes {size_bytes >> 20} MiB"
        raise Problem("NOT_ENOUGH_SPACE", what)


def write_whole(path: Path, content: bytes) -> None:
    """The file has the old content or the new one, whenever the power goes."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
