"""Health as data: each signal has a stable code, a state and, where it is bad, what to do."""

import json
import sqlite3

import pytest

from ledger import health as health_module
from ledger.backup import back_up
from ledger.errors import WRITE_FAULTS
from ledger.health import HOUR_US, health
from ledger.store import Store
from tests import factories
from tests.factories import NOW_US
from tests.ledger.commands import run

LIVE = ["WRITER", "WRITER_QUEUE", "LAST_CHECKPOINT"]
CODES = [
    "WAL_SIZE", "FREE_DISK", "SQLITE_VERSION", "JOURNAL_MODE", "SYNCHRONOUS", "FILE_SIZE",
    "CHAIN_HEAD", "ARCHIVES", "TRIGGERS", "OPEN_UNKNOWNS", "LAST_BACKUP",
]  # fmt: skip


def signals(path, **options):
    found = health(path, now_us=NOW_US, **options)
    return {signal.code: signal for signal in found.signals}


def test_every_signal_of_a_ledger_at_rest_and_of_a_running_one(ledger_path):
    assert list(signals(ledger_path)) == CODES
    with Store.open(ledger_path) as store:
        store.append([factories.receipt(1)]).result()
        found = signals(ledger_path, live=store.status())
        assert list(found) == LIVE + CODES
        assert found["CHAIN_HEAD"].number == 1
        assert found["CHAIN_HEAD"].value.endswith(store.head.entry_hash.hex())
    assert found["WRITER"].state == found["TRIGGERS"].state == found["JOURNAL_MODE"].state == "ok"
    assert found["WRITER_QUEUE"].value == "0 of 65,536"
    assert (found["LAST_BACKUP"].state, found["LAST_BACKUP"].value) == ("watch", "none is known")


def test_open_unknowns_and_their_money_are_counted_and_what_runs_is_not(ledger_path):
    with Store.open(ledger_path) as store:
        for number in (1, 2, 3):
            store.append(factories.request_records(number)[0]).result()
        store.append([factories.receipt(1, status="unknown")]).result()
        store.append(factories.request_records(2)[1]).result()
    found = signals(ledger_path)["OPEN_UNKNOWNS"]
    assert (found.number, found.state) == (1, "watch")
    assert found.value == "1 holding 0.0036 units"


@pytest.mark.parametrize(("hours", "state"), [(25, "ok"), (26, "watch"), (24 * 7, "bad")])
def test_a_backup_grows_old(ledger_path, tmp_path, hours, state):
    back_up(ledger_path, tmp_path / "copies", now_us=NOW_US - hours * HOUR_US)
    found = signals(ledger_path)["LAST_BACKUP"]
    assert found.state == state
    assert found.value == f"{found.value.split(',')[0]}, 0 rows, {hours} h ago"


def test_a_missing_trigger_a_lost_head_and_a_missing_file_are_bad(ledger_path, tmp_path):
    with sqlite3.connect(ledger_path) as other:
        other.execute("DROP TRIGGER receipt_no_update")
        other.execute("DELETE FROM chain_head")
    found = signals(ledger_path)
    assert found["TRIGGERS"].value == "receipt_no_update is missing"
    assert (found["TRIGGERS"].state, found["CHAIN_HEAD"].state) == ("bad", "bad")
    assert signals(tmp_path / "none.sqlite3")["LEDGER_UNREADABLE"].state == "bad"
    assert health(tmp_path / "none.sqlite3", now_us=NOW_US).state == "bad"


def test_thresholds_of_log_and_disk(ledger_path, monkeypatch):
    monkeypatch.setattr(health_module, "FREE_WATCH_BYTES", 1 << 60)
    assert signals(ledger_path)["FREE_DISK"].state == "watch"
    monkeypatch.setattr(health_module, "FREE_BAD_BYTES", 1 << 60)
    assert signals(ledger_path)["FREE_DISK"].state == "bad"
    log = ledger_path.with_name(ledger_path.name + "-wal")
    monkeypatch.setattr(health_module, "WAL_WATCH_BYTES", 1)
    with Store.open(ledger_path) as store:
        store.append([factories.receipt(1)]).result()
        assert signals(ledger_path)["WAL_SIZE"].number == log.stat().st_size > 1
        assert signals(ledger_path)["WAL_SIZE"].state == "watch"


def test_every_fault_of_writing_has_an_advice():
    assert all(WRITE_FAULTS.values())


def test_the_command_shows_every_signal_and_exits_1_where_one_is_bad(ledger_path):
    status, out, _ = run("ledger_health", "--ledger", str(ledger_path))
    assert status == 0
    assert [line.split()[1] for line in out.splitlines()] == CODES
    with sqlite3.connect(ledger_path) as other:
        other.execute("DROP TRIGGER receipt_no_update")
    status, out, _ = run("ledger_health", "--ledger", str(ledger_path), "--json")
    assert status == 1
    assert json.loads(out)["state"] == "bad"
