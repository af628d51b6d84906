"""The ledger's health as its page orders it; the audit, check by check, within a time."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger import health
from ledger.health import Health, Signal
from ledger.invariants import CHECKS, Check, Result, audit
from ledger.reading import connect_read_only

AUDIT_SECONDS = 20.0  # of one audit on a page; the command has no limit
STEPS_A_LOOK = 100_000  # of SQLite's machine, between two looks at the clock
FINDINGS_SHOWN = 20
CHIPS: Final = {"ok": "ok", "watch": "watch", "bad": "alert"}
_RANK: Final = {"bad": 0, "watch": 1, "ok": 2}
_HOUR_US = health.HOUR_US

THRESHOLDS: Final = {
    "WRITER_QUEUE": "watch above half of its limit",
    "LAST_CHECKPOINT": f"watch from {health.CHECKPOINT_WATCH_S / 60:g} min",
    "WAL_SIZE": f"watch from {health.WAL_WATCH_BYTES >> 20} MiB, bad from "
    f"{health.WAL_BAD_BYTES >> 30} GiB",
    "FREE_DISK": f"watch at {health.FREE_WATCH_BYTES >> 30} GiB, bad at "
    f"{health.FREE_BAD_BYTES >> 30} GiB",
    "SQLITE_VERSION": f"bad below {'.'.join(map(str, health.SQLITE_LEAST))}",
    "JOURNAL_MODE": "watch where it isn't wal",
    "CHAIN_HEAD": "bad where its row is gone",
    "TRIGGERS": "bad where any differs",
    "OPEN_UNKNOWNS": "watch from the first",
    "LAST_BACKUP": f"watch from {health.BACKUP_WATCH_US // _HOUR_US} h or where none is known, "
    f"bad from {health.BACKUP_BAD_US // _HOUR_US} h",
}

_auditing = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One check: its result, or why it has none."""

    check: Check
    result: Result | None
    why_not: str = ""

    @property
    def chip(self) -> str:
        if self.result is None:
            return "no_data"
        if self.result.holds:
            return "ok"
        return "alert" if self.result.severity == "fault" else "watch"


def wrong(found: Health) -> tuple[Signal, ...]:
    """The signals that ask for something, the worst first."""
    asking = [signal for signal in found.signals if signal.state != "ok"]
    return tuple(sorted(asking, key=lambda signal: _RANK[signal.state]))


def shown(found: Health) -> list[tuple[Signal, str, str]]:
    """(signal, its chip, its threshold) of every signal, in their order."""
    return [
        (signal, CHIPS[signal.state], THRESHOLDS.get(signal.code, "")) for signal in found.signals
    ]


def run_audit(path: Path, seconds: float = AUDIT_SECONDS) -> tuple[Ran, ...] | None:
    """Every quick check of the audit within the time; None while another audit runs here.

    What the time didn't suffice for says so: no check is reported as holding that wasn't run.
    """
    if not _auditing.acquire(blocking=False):
        return None
    try:
        connection = connect_read_only(path)
        try:
            with _deadline(connection, seconds):
                return tuple(_ran(connection, check) for check in CHECKS)
        finally:
            connection.close()
    finally:
        _auditing.release()


def _ran(connection: sqlite3.Connection, check: Check) -> Ran:
    if check.slow:
        return Ran(check=check, result=None, why_not="reads every receipt: the command runs it")
    try:
        (result,) = audit(connection, checks=(check,))
    except sqlite3.OperationalError as problem:
        if "interrupted" not in str(problem):
            raise
        return Ran(check=check, result=None, why_not="no time was left: the command has no limit")
    return Ran(check=check, result=result)


@contextmanager
def _deadline(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Have statements of the connection end as interrupted once the time is over."""
    until_s = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > until_s, STEPS_A_LOOK)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
