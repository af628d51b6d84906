"""Ledger files for tests: copies of one migrated template, never the ORM's test database."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.reading import connect_read_only
from ledger.store import Store
from tests import forked

ROOT = forked.ROOT


def migrate_ledger(path: Path) -> None:
    """Migrates the ledger at `path` in a process of its own, as an operator would."""
    environment = {
        **os.environ,
        "WEIGHBRIDGE_VAR": str(path.parent),
        "WEIGHBRIDGE_DB": str(path),
        "WEIGHBRIDGE_CONSOLE_DB": str(path.with_name("console.sqlite3")),
    }
    command = ("manage.py", "migrate", "--database", "ledger", "--skip-checks")
    forked.run(command, env=environment, check=True)


def without_log(path: Path) -> None:
    """Makes it one file, without a log beside it, that can be copied; its journal stays a WAL."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.fixture(scope="session")
def ledger_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A freshly migrated ledger file, to be copied and never opened for writing."""
    path = tmp_path_factory.mktemp("template") / "ledger.sqlite3"
    migrate_ledger(path)
    without_log(path)
    return path


@pytest.fixture
def ledger_path(ledger_template: Path, tmp_path: Path) -> Path:
    """An empty migrated ledger of this test's own: a real file, in WAL."""
    path = tmp_path / "ledger.sqlite3"
    shutil.copyfile(ledger_template, path)
    return path


@pytest.fixture
def store(ledger_path: Path) -> Iterator[Store]:
    """The open store of `ledger_path`, closed after the test."""
    with Store.open(ledger_path) as opened:
        yield opened


@pytest.fixture
def reader(ledger_path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection to `ledger_path`."""
    connection = connect_read_only(ledger_path)
    yield connection
    connection.close()


@contextmanager
def copy_of(template: Path) -> Iterator[Path]:
    """A ledger of one example's own, where a test has many examples."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite3"
        shutil.copyfile(template, path)
        yield path
