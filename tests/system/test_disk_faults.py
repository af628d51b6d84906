"""A disk that fails under a running server: 503, no backend called, nothing acknowledged lost.

The faults are real: a limit on the size of files (as a full disk), a lock that another program
holds, a file that was moved away, a damaged page.
"""

import contextlib
import json
import resource
import sqlite3
from pathlib import Path

import pytest

from ledger.carrying import source
from ledger.invariants import audit
from ledger.records import Attempt
from tests.server import Server
from tests.server_fixtures import Fleet
from tests.system.watching import held, one, until

TENANT = "support-desk"


@contextlib.contextmanager
def full(server: Server):
    log_bytes = server.ledger.with_name(server.ledger.name + "-wal").stat().st_size
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (log_bytes, hard))
    yield
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextlib.contextmanager
def locked(server: Server):
    with contextlib.closing(sqlite3.connect(server.ledger, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def moved(server: Server):
    away = server.ledger.with_name("away.sqlite3")
    server.ledger.rename(away)
    yield
    away.rename(server.ledger)


def visit(console: Path) -> None:
    """What a page does with the console's sessions."""
    with contextlib.closing(sqlite3.connect(console)) as connection:
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.execute("CREATE TABLE IF NOT EXISTS visits (number INTEGER)")
        connection.execute("SELECT count(*) FROM visits").fetchall()


def chat(server: Server):
    status, headers, body = server.chat("Hello", key=server.keys[TENANT], max_tokens=2)
    return status, headers, json.loads(body)


def problems(server: Server) -> str:
    status, _, body = server.call("/readyz")
    return f"{status} {' '.join(json.loads(body)['problems'])}"


def assert_turned_away(server: Server) -> None:
    status, headers, body = chat(server)
    assert (status, body["error"]["code"]) == (503, "LEDGER_UNAVAILABLE")
    assert headers["retry-after"]
    until(lambda: held(server) == (0, 0, 0), "no slot, no KV, no money: no backend was called")


def assert_kept(fleet: Fleet, told: list[dict]) -> None:
    """The ledger has what was acknowledged, nothing more, and every rule holds."""
    with contextlib.closing(fleet.reader()) as reader:
        rows = {row["request_id"]: row for row in reader.execute("SELECT * FROM receipt")}
        assert set(rows) == {receipt["request_id"] for receipt in told}
        assert one(reader, f"SELECT count(*) FROM {source(Attempt)}") == len(told)
        for receipt in told:
            assert rows[receipt["request_id"]]["entry_hash"].hex() == receipt["entry_hash"]
        assert [one.code for one in audit(reader, at_rest=True) if not one.holds] == []


@pytest.mark.parametrize(
    ("fault", "code"), [(full, "DISK_"), (locked, "FILE_LOCKED"), (moved, "FILE_MOVED")]
)
def test_a_failing_disk_is_said_got_over_and_costs_nothing_acknowledged(fleet: Fleet, fault, code):
    console = fleet.ledger.with_name("console.sqlite3")
    visit(console)
    with fleet.serving() as server:
        told = [chat(server)[2]["receipt"] for _ in range(3)]
        with fault(server):
            for _ in range(2):
                assert_turned_away(server)
            assert problems(server).startswith("503 ")
            assert f"the ledger can't be written: {code}" in problems(server)
            assert str(fleet.ledger.parent) not in problems(server)  # anybody may ask
            # A page's connection doesn't take the console's log away: on a full disk the next one
            # couldn't make it, and the health page would be a fault of its own.
            visit(console)
            assert console.with_name("console.sqlite3-wal").exists()
        until(lambda: problems(server) == "200 ", "the server takes requests again")
        told.append(chat(server)[2]["receipt"])
        server.stop()
    assert_kept(fleet, told)


def test_a_damaged_page_is_said_and_nothing_is_written_over_it(fleet: Fleet):
    with fleet.serving() as server:
        told = [chat(server)[2]["receipt"] for _ in range(3)]
        server.stop()
    with contextlib.closing(sqlite3.connect(fleet.ledger)) as connection:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_route_decision_1'"
        page = one(connection, sql)
    content = fleet.ledger.read_bytes()
    with fleet.ledger.open("r+b") as file:
        file.seek((page - 1) * 4_096)
        file.write(b"\xff" * 64)
    with fleet.serving() as server:
        assert_turned_away(server)
        assert "the ledger can't be written: FILE_CORRUPT" in problems(server)
        assert "restore the last backup" in problems(server)
        server.stop()
    with fleet.ledger.open("r+b") as file:  # the disk gives the page back as it was
        file.seek((page - 1) * 4_096)
        file.write(content[(page - 1) * 4_096 : page * 4_096])
    assert_kept(fleet, told)
