"""A ledger with the demonstration's fleet, made once, and servers over copies of it."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from gateway.demo.fleet import TENANTS
from gateway.quota import Quota
from ledger.reading import connect_read_only
from ledger.records import Tenant
from tests.server import Server, load_fleet, serving

SMALL_TEAM = "small-team"
SMALL_TEAM_IN_FLIGHT = 4
SLOW = 1.0  # simulated time as fast as real time: an answer of 256 tokens takes seconds
FAST = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A configured ledger file of one test's own, with each tenant's key."""

    ledger: Path
    keys: dict[str, str]

    def serving(self, time_scale: float = FAST) -> AbstractContextManager[Server]:
        """Serve it for as long as the context lasts; afterwards it can be served again."""
        return serving(self.ledger, self.keys, time_scale)

    def reader(self) -> sqlite3.Connection:
        return connect_read_only(self.ledger)

    def copy_to(self, folder: Path) -> "Fleet":
        ledger = folder / self.ledger.name
        shutil.copyfile(self.ledger, ledger)
        return Fleet(ledger=ledger, keys=self.keys)


@pytest.fixture(scope="session")
def fleet_template(ledger_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The demonstration's fleet and a team of four slots; to be copied, never served."""
    ledger = tmp_path_factory.mktemp("fleet") / "ledger.sqlite3"
    shutil.copyfile(ledger_template, ledger)
    small_team = Tenant(
        tenant_id=SMALL_TEAM,
        revision=1,
        body_json=msgspec.json.encode(Quota(in_flight_limit=SMALL_TEAM_IN_FLIGHT)).decode(),
        changed_at_us=0,
        changed_by="tests",
    )
    keys = load_fleet(ledger, tenants=(*TENANTS, SMALL_TEAM), more=(small_team,))
    connection = sqlite3.connect(ledger)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return Fleet(ledger=ledger, keys=keys)


@pytest.fixture
def fleet(fleet_template: Fleet, tmp_path: Path) -> Fleet:
    """A configured ledger of this test's own."""
    return fleet_template.copy_to(tmp_path)


@pytest.fixture(scope="session")
def shared_fleet(fleet_template: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return fleet_template.copy_to(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def server(shared_fleet: Fleet) -> Iterator[Server]:
    """A fast server that many tests share: each leaves it running and holding nothing."""
    with shared_fleet.serving() as running:
        yield running
