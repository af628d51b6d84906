"""Our gateway as an operator runs it, and the proof that it kept its accounts meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import fleet
from benchmarks.peers.driving import MARK, Door
from ledger.reading import connect_read_only
from ledger.store import Store

ROOT = Path(__file__).resolve().parents[2]
TIME_SCALE = 1_000.0  # of the simulator: its answers are there at once
CHECK_SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A configured ledger in a folder of its own, and how it is served."""

    folder: Path
    key: str
    door: Door

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.sqlite3"

    @property
    def command(self) -> list[str]:
        return [sys.executable, "manage.py", "serve", "--port", str(self.door.port)]

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the ledger says once its server has stopped. `problem` "": every check passed."""

    receipts: int
    statuses: Mapping[str, int]
    sound: bool  # verify_ledger at rest: every hash and cost computed again
    rollups_equal: bool  # rebuild_rollups --check
    verified: str  # what verify_ledger said
    bytes_each: int

    def problem(self, sent: int) -> str:
        """Return why figures of this ledger don't count; "" where they do."""
        if not self.sound:
            return f"verify_ledger: {self.verified}"
        if not self.rollups_equal:
            return "the rollups differ from the receipts"
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
    manage(folder, "migrate", "--database", "ledger", "--skip-checks", check=True)
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
    return Instance(folder=folder, key=key, door=door)


def account(instance: Instance) -> Account:
    """Check the ledger of a stopped server."""
    verified = manage(instance.folder, "verify_ledger", "--at-rest")
    rollups = manage(instance.folder, "rebuild_rollups", "--check")
    connection = connect_read_only(instance.ledger)
    statuses = dict(
        connection.execute("SELECT status, count(*) FROM receipt GROUP BY status").fetchall()
    )
    connection.close()
    receipts = sum(statuses.values())
    said = " ".join((verified.stdout + verified.stderr).decode(errors="replace").split())
    return Account(
        receipts=receipts,
        statuses=statuses,
        sound=verified.returncode == 0,
        rollups_equal=rollups.returncode == 0,
        verified=said.replace(str(instance.folder), "").lstrip("/"),
        bytes_each=instance.ledger.stat().st_size // max(1, receipts),
    )


def manage(
    folder: Path, *arguments: str, check: bool = False
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment(folder)},
        capture_output=True,
        check=check,
        timeout=CHECK_SECONDS,
    )
