"""How the ledger is, as signals with stable codes: for a page, a command and whoever is on call.

Each signal has a value, a state and, where something is to be done, what. What only the writing
process knows (its queue, its last checkpoint, why it can't write) is there when that process asks.
"""

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Literal

import msgspec

from ledger.backup import note_of, read_manifest
from ledger.carrying import source
from ledger.errors import WRITE_FAULTS, LedgerError
from ledger.money import join, units_text
from ledger.queries.archives import archives
from ledger.reading import connect_read_only, fetch_one, read_head
from ledger.records import Reservation
from ledger.rollups.sums import snapshot
from ledger.store import StoreStatus
from ledger.triggers import trigger_differences

State = Literal["ok", "watch", "bad"]

MIB, GIB = 1 << 20, 1 << 30
HOUR_US = 3_600_000_000
WAL_WATCH_BYTES, WAL_BAD_BYTES = 256 * MIB, 2 * GIB
FREE_WATCH_BYTES, FREE_BAD_BYTES = 10 * GIB, GIB
BACKUP_WATCH_US, BACKUP_BAD_US = 26 * HOUR_US, 7 * 24 * HOUR_US
CHECKPOINT_WATCH_S = 3_600.0
# What is held, but by requests that run.
_UNKNOWNS = (
    "SELECT count(*), sum(cost_pico >> 32), sum(cost_pico & 4294967295) FROM open_hold "
    f"WHERE seq NOT IN (SELECT v.seq FROM open_request AS o JOIN {source(Reservation)} AS v "
    "ON v.request_id = o.request_id)"
)
ARCHIVES_SHOWN = 24
QUEUE_WATCH_SHARE = 2  # above one part in so many of the queue's limit
SQLITE_LEAST = (3, 35, 0)  # RETURNING


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `value` is text for a person; `number` the same to plot."""

    code: str
    title: str
    value: str
    state: State
    number: int | None = None
    advice: str = ""  # what to do, where something is


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """All signals, in order; the worst of their states."""

    state: State
    signals: tuple[Signal, ...]


def health(path: Path, *, now_us: int, live: StoreStatus | None = None) -> Health:
    """Every signal of the ledger at `path`; `live` from the process that writes it, if it asks."""
    path = path.resolve()  # its log and its disk are where the file is, not where a link is
    signals = [*_writer(live), *_files(path), *_contents(path), _backup(path, now_us)]
    ranks: tuple[State, ...] = ("ok", "watch", "bad")
    worst = max((ranks.index(signal.state) for signal in signals), default=0)
    return Health(state=ranks[worst], signals=tuple(signals))


def _writer(live: StoreStatus | None) -> list[Signal]:
    if live is None:
        return []
    signals = [
        Signal(
            code="WRITER",
            title="Writing",
            value="the last write was durable" if live.healthy else str(live.last_error),
            state="ok" if live.healthy else "bad",
            advice="" if live.healthy else WRITE_FAULTS.get(live.fault or "", "restart the server"),
        ),
        Signal(
            code="WRITER_QUEUE",
            title="Rows that wait to be written",
            value=f"{live.queued_rows:,} of {live.queue_limit_rows:,}",
            number=live.queued_rows,
            state="watch" if live.queued_rows * QUEUE_WATCH_SHARE > live.queue_limit_rows else "ok",
        ),
    ]
    if live.fault is not None:
        signals.insert(
            0,
            Signal(
                code=live.fault,
                title="The ledger can't be written: new requests get 503",
                value=str(live.last_error),
                state="bad",
                advice=WRITE_FAULTS.get(live.fault, ""),
            ),
        )
    since_s = live.since_checkpoint_s
    signals.append(
        Signal(
            code="LAST_CHECKPOINT",
            title="Last checkpoint",
            value="none since the start" if since_s is None else f"{since_s:,.0f} s ago",
            number=None if since_s is None else int(since_s),
            state="ok" if since_s is None or since_s < CHECKPOINT_WATCH_S else "watch",
        )
    )
    return signals


def _files(path: Path) -> list[Signal]:
    """The file, its log and its disk, without opening it."""
    log = path.with_name(path.name + "-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    signals = [
        Signal(
            code="WAL_SIZE",
            title="Write-ahead log",
            value=_size(log_bytes),
            number=log_bytes,
            state=_above(log_bytes, WAL_WATCH_BYTES, WAL_BAD_BYTES),
            advice="end the program that keeps a read transaction open"
            if log_bytes >= WAL_WATCH_BYTES
            else "",
        )
    ]
    if path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        signals.append(
            Signal(
                code="FILE_READ_ONLY",
                title="File permissions",
                value=f"{path} or its folder can't be written",
                state="bad",
                advice=WRITE_FAULTS["FILE_READ_ONLY"],
            )
        )
    if path.parent.exists():
        free = shutil.disk_usage(path.parent).free
        signals.append(
            Signal(
                code="FREE_DISK",
                title="Free space on the ledger's disk",
                value=_size(free),
                number=free,
                state=_above(-free, -FREE_WATCH_BYTES, -FREE_BAD_BYTES),
                advice="free space, or archive old months" if free <= FREE_WATCH_BYTES else "",
            )
        )
    return signals


def _contents(path: Path) -> list[Signal]:
    """What the file says of itself; one signal that is bad where it can't be read."""
    try:
        connection = connect_read_only(path)
        try:
            with snapshot(connection):
                return _read(connection)
        finally:
            connection.close()
    except (LedgerError, sqlite3.DatabaseError) as error:
        advice = "run verify_ledger; restore the last backup where the file is damaged"
        if isinstance(error, LedgerError):
            advice = ""  # it says itself what to do
        elif str(error).startswith("no such "):  # table or column: of an older version
            advice = "run migrate --database ledger"
        return [
            Signal(
                code="LEDGER_UNREADABLE",
                title="Reading",
                value=str(error),
                state="bad",
                advice=advice,
            )
        ]


def _read(connection: sqlite3.Connection) -> list[Signal]:
    journal = str(fetch_one(connection, "PRAGMA journal_mode")[0])
    pages = fetch_one(connection, "PRAGMA page_count")[0]
    size_bytes = pages * fetch_one(connection, "PRAGMA page_size")[0]
    head = read_head(connection)
    differences = trigger_differences(connection)
    row = fetch_one(connection, _UNKNOWNS)
    unknowns, at_risk_pico = row[0], join(row[1] or 0, row[2] or 0)
    return [
        Signal(
            code="SQLITE_VERSION",
            title="SQLite",
            value=sqlite3.sqlite_version,
            state="ok" if sqlite3.sqlite_version_info >= SQLITE_LEAST else "bad",
            advice="" if sqlite3.sqlite_version_info >= SQLITE_LEAST else "install 3.35 or newer",
        ),
        Signal(
            code="JOURNAL_MODE",
            title="Journal mode",
            value=journal,
            state="ok" if journal == "wal" else "watch",
            advice="" if journal == "wal" else "the server's start makes it wal",
        ),
        Signal(
            code="SYNCHRONOUS",
            title="Durability of a commit",
            value="FULL: the writer sets it on every connection that it opens",
            state="ok",
        ),
        Signal(code="FILE_SIZE", title="File", value=_size(size_bytes), number=size_bytes,
               state="ok"),
        Signal(
            code="CHAIN_HEAD",
            title="Chain",
            value="its row is gone or was altered" if head is None else f"{head.size:,} rows, last "
            f"{head.entry_hash.hex()}",
            number=None if head is None else head.size,
            state="bad" if head is None else "ok",
            advice="run verify_ledger" if head is None else "",
        ),
        _archives(connection),
        Signal(
            code="TRIGGERS",
            title="Append-only tables",
            value="; ".join(differences[:3]) or "every table refuses UPDATE, DELETE and REPLACE",
            number=len(differences),
            state="bad" if differences else "ok",
            advice="run verify_ledger, then migrate --database ledger" if differences else "",
        ),
        Signal(
            code="OPEN_UNKNOWNS",
            title="Open unknowns and the money that they hold",
            value=f"{unknowns:,} holding {units_text(at_risk_pico)} units",
            number=unknowns,
            state="watch" if unknowns else "ok",
            advice="settle them by evidence, or write them off" if unknowns else "",
        ),
    ]  # fmt: skip


def _archives(connection: sqlite3.Connection) -> Signal:
    found = archives(connection)
    if not found:
        return Signal(code="ARCHIVES", title="Archives", value="none", number=0, state="ok")
    rows, names = sum(one.rows for one in found), [one.file for one in found]
    shown = ", ".join(names[-ARCHIVES_SHOWN:])
    return Signal(
        code="ARCHIVES",
        title="Archives: files that hold old requests",
        value=f"{len(found):,} with {rows:,} rows: "
        f"{'…, ' if len(found) > ARCHIVES_SHOWN else ''}{shown}",
        number=len(found),
        state="ok",
    )


def _backup(path: Path, now_us: int) -> Signal:
    note = read_manifest(note_of(path))
    if note is None:
        return Signal(
            code="LAST_BACKUP",
            title="Last backup",
            value="none is known",
            state="watch",
            advice="run backup, to another disk",
        )
    age_us = now_us - note.made_at_us
    state = _above(age_us, BACKUP_WATCH_US, BACKUP_BAD_US)
    return Signal(
        code="LAST_BACKUP",
        title="Last backup",
        value=f"{note.file}, {note.rows:,} rows, {age_us // HOUR_US:,} h ago",
        number=age_us // 1_000_000,
        state=state,
        advice="" if state == "ok" else "run backup, to another disk",
    )


def _above(value: int, watch: int, bad: int) -> State:
    if value >= bad:
        return "bad"
    return "watch" if value >= watch else "ok"


def _size(count: int) -> str:
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / MIB:,.1f} MiB"
