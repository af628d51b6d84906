"""UPDATE, DELETE and REPLACE are refused on every table and on any connection (LED-7)."""

import sqlite3

import pytest

from ledger.records import CHAINED, RECORDS
from ledger.rows import HEAD_COLUMNS
from ledger.store import Store
from ledger.triggers import check_triggers, expected_triggers, trigger_differences
from tests.ledger.tampering import fill, seqs, verified
from tests.ledger_fixtures import migrate_ledger


@pytest.fixture
def filled(ledger_path):
    with Store.open(ledger_path) as store:
        fill(store)
    return ledger_path


@pytest.fixture
def other(filled):
    connection = sqlite3.connect(filled, isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.parametrize("record_type", RECORDS)
def test_what_is_written_can_be_neither_changed_nor_removed(other, filled, record_type):
    table = record_type.TABLE
    seq = seqs(filled, table)[0]
    names = [*HEAD_COLUMNS, *record_type.__struct_fields__]
    copied = f"SELECT {', '.join(names)} FROM {table} WHERE seq = {seq}"
    moved = f"SELECT {', '.join(['seq + 1000', *names[1:]])} FROM {table} WHERE seq = {seq}"
    into = f"INTO {table} ({', '.join(names)})"
    refused = [
        f"UPDATE {table} SET v = v",
        f"UPDATE OR REPLACE {table} SET seq = {seq} WHERE seq != {seq}",
        f"DELETE FROM {table}",
        f"INSERT OR REPLACE {into} {copied}",
        f"REPLACE {into} {copied}",
        f"INSERT OR IGNORE {into} {copied}",
        f"INSERT {into} {copied} ON CONFLICT DO UPDATE SET v = 9",
    ]
    if record_type.UNIQUE:
        refused.append(f"INSERT OR REPLACE {into} {moved}")
    for recursive in ("OFF", "ON"):
        other.execute(f"PRAGMA recursive_triggers = {recursive}")
        for statement in refused:
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                other.execute(statement)
    assert verified(filled).faults == ()


def test_the_installed_triggers_are_exactly_the_expected(other):
    check_triggers(other)
    assert len(expected_triggers()) == 3 * len(CHAINED)


def test_an_altered_and_a_foreign_trigger_are_named(other):
    other.execute("DROP TRIGGER receipt_no_update")
    other.execute(
        "CREATE TRIGGER receipt_no_update BEFORE UPDATE OF tenant_id ON receipt BEGIN "
        "SELECT RAISE(ABORT, 'no'); END"
    )
    other.execute("CREATE TRIGGER mine AFTER INSERT ON receipt BEGIN SELECT 1; END")
    assert trigger_differences(other) == (
        "receipt_no_update was altered",
        "mine does not belong here",
    )


def test_a_migration_installs_the_triggers_again(filled):
    with sqlite3.connect(filled) as other:
        other.execute("DROP TRIGGER receipt_no_delete")
    migrate_ledger(filled)
    Store.open(filled).close()
