"""Our gateway as an operator runs it, and the proof that it kept its accounts meanwhile."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import fleet
from benchmarks.peers.driving import MARK, Door
from benchmarks.peers.processes import COMPILED
from ledger.reading import connect_read_only
from ledger.rollups.rebuild import first_difference
from ledger.store import Store
from ledger.verify import verify

ROOT = Path(__file__).resolve().parents[2]
TIME_SCALE = 1_000.0  # of the simulator: its answers are there at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A configured ledger in a folder of its own, and how it is served."""

    folder: Path
    door: Door

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.sqlite3"

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "manage.py", "serve", "--port", str(self.door.port)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the ledger says once its server has stopped. `rollups`: where they differ; "": nowhere.

    `verified` is what `manage.py verify_ledger --at-rest` finds: every hash and cost again.
    """

    receipts: int
    statuses: Mapping[str, int]
    sound: bool
    verified: str
    rollups: str
    bytes_each: int

    def problem(self, sent: int) -> str:
        """Return why figures of this ledger don't count; "" where they do."""
        if not self.sound:
            return f"the ledger does not prove itself: {self.verified}"
        if self.rollups:
            return f"the rollups differ from the receipts: {self.rollups}"
        if self.receipts != sent:
            return f"{sent:,} requests were sent, and {self.receipts:,} have a receipt"
        return ""


def environment(folder: Path) -> dict[str, str]:
    return {
        "WEIGHBRIDGE_VAR": str(folder),
        "WEIGHBRIDGE_DB": str(folder / "ledger.sqlite3"),
        "WEIGHBRIDGE_CONSOLE_DB": str(folder / "console.sqlite3"),
        "WEIGHBRIDGE_TIME_SCALE": str(TIME_SCALE),
        "DJANGO_SETTINGS_MODULE": "gateway.settings",
    }


def prepare(folder: Path, address: str, port: int) -> Instance:
    """Make a migrated ledger with the benchmark's fleet; return how it is served and asked."""
    folder.mkdir(parents=True, exist_ok=True)
    migrate(folder)
    return configured(folder, address, port)


def configured(folder: Path, address: str, port: int) -> Instance:
    """Enter the fleet into the migrated ledger that is in a folder."""
    rows, key = fleet.records(address, time.time_ns() // 1_000)
    with Store.open(folder / "ledger.sqlite3") as store:
        store.append(rows).result()
    simulated = address == fleet.SIMULATOR
    door = Door(
        port=port,
        headers={"authorization": f"Bearer {key}"},
        mark=None if simulated else MARK,  # its text is another one
    )
    return Instance(folder=folder, door=door)


def account(instance: Instance) -> Account:
    """Check the ledger of a stopped server."""
    with contextlib.closing(connect_read_only(instance.ledger)) as connection:
        report = verify(connection, at_rest=True)
        rollups = first_difference(connection)
        statuses = dict(
            connection.execute("SELECT status, count(*) FROM receipt GROUP BY status").fetchall()
        )
    receipts = sum(statuses.values())
    return Account(
        receipts=receipts,
        statuses=statuses,
        sound=report.sound,
        verified="; ".join(map(str, report.faults[:3])) or f"{report.rows:,} rows, {report.root}",
        rollups=rollups or "",
        bytes_each=instance.ledger.stat().st_size // max(1, receipts),
    )


def migrate(folder: Path) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--database", "ledger", "--skip-checks"],
        cwd=ROOT,
        env={**os.environ, **COMPILED, **environment(folder)},
        capture_output=True,
        check=True,
    )
