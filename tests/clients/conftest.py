"""A server with a key for everything, for clients that walk over the whole API."""

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.api.auth import KEY_RANDOM_BYTES, KNOWN_SCOPES, mint_key
from gateway.demo.fleet import TENANTS
from tests.server import Server, load_fleet, serving

EVERYTHING = "everything"


@pytest.fixture(scope="session")
def open_server(
    ledger_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A fast server; `keys[EVERYTHING]` has every scope."""
    ledger = tmp_path_factory.mktemp("clients") / "ledger.sqlite3"
    ledger.write_bytes(ledger_template.read_bytes())
    key, record = mint_key(
        os.urandom(KEY_RANDOM_BYTES),
        tenant_id=next(iter(TENANTS)),
        created_at_us=time.time_ns() // 1_000,
        created_by="tests",
        scopes=KNOWN_SCOPES,
    )
    keys = load_fleet(ledger, more=(record,))
    connection = sqlite3.connect(ledger)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with serving(ledger, {**keys, EVERYTHING: key}, time_scale=50.0) as running:
        running.call("/readyz")  # clients have less patience than the first start may need
        yield running
