"""The chain names what was altered, removed, reordered or cut, in every table (LED-2, LED-7)."""

import shutil
import sqlite3

import msgspec
import pytest

from ledger.chain import checkpoint_of
from ledger.records import RECORDS, Receipt
from ledger.rows import columns
from ledger.store import Store
from ledger.walk import FAULTS_LIMIT
from tests import factories
from tests.ledger.prebuilt import prebuilt
from tests.ledger.tampering import (
    TABLES,
    UNRELATED,
    fill,
    row_faults,
    seqs,
    tamper,
    text_field,
    verified,
)


@pytest.fixture(scope="module")
def filled_once(ledger_template, tmp_path_factory):
    return prebuilt(ledger_template, tmp_path_factory.mktemp("filled"), fill)


@pytest.fixture
def filled(filled_once, tmp_path):
    return shutil.copyfile(filled_once, tmp_path / "ledger.sqlite3")


def test_an_untouched_ledger_is_sound_and_its_root_is_the_heads(filled):
    with Store.open(filled) as store:
        head = store.head
    report = verified(filled, at_rest=True, checkpoint=checkpoint_of(head))
    assert report.faults == ()
    assert report.rows == head.size == 18 + 2 * len(UNRELATED) + 3 * 7
    assert report.root == checkpoint_of(head).root
    assert report.unfinished == 0


@pytest.mark.parametrize("record_type", RECORDS)
def test_one_byte_changed_in_one_row_names_that_row(filled, record_type):
    table, field = record_type.TABLE, text_field(record_type)
    seq = seqs(filled, table)[0]
    tamper(filled, f"UPDATE {table} SET {field} = 'z' || substr({field}, 2) WHERE seq = {seq}")
    faults = row_faults(verified(filled))
    assert faults[0] == ("altered", table, seq)
    assert {fault[2] for fault in faults if fault[0] == "altered"} == {seq}


@pytest.mark.parametrize("column", columns(Receipt), ids=lambda column: column.name)
def test_a_change_of_any_field_of_a_receipt_names_it(filled, column):
    seq = seqs(filled, "receipt")[1]
    new = {int: f"coalesce({column.name}, 0) + 1", str: "'other'", bytes: "x'00'"}[column.kind]
    tamper(filled, f"UPDATE receipt SET {column.name} = {new} WHERE seq = {seq}")
    assert ("altered", "receipt", seq) in row_faults(verified(filled))


@pytest.mark.parametrize("table", TABLES)
def test_a_removed_row_is_named_by_its_place(filled, table):
    seq = seqs(filled, table)[-1]
    tamper(filled, f"DELETE FROM {table} WHERE seq = {seq}")
    assert row_faults(verified(filled))[0] == ("missing", "", seq)


@pytest.mark.parametrize("table", TABLES)
def test_two_swapped_rows_are_both_named(filled, table):
    first, second = seqs(filled, table)[:2]
    tamper(
        filled,
        f"UPDATE {table} SET seq = -1 WHERE seq = {first}",
        f"UPDATE {table} SET seq = {first} WHERE seq = {second}",
        f"UPDATE {table} SET seq = {second} WHERE seq = -1",
    )
    altered = {fault[1:] for fault in row_faults(verified(filled)) if fault[0] == "altered"}
    assert {(table, first), (table, second)} <= altered


@pytest.mark.parametrize("record_type", RECORDS)
def test_a_row_cut_from_the_tail_is_named(filled, record_type):
    with Store.open(filled) as store:
        tail = store.append([factories.any_record(record_type, 99)]).result()[0].seq
    tamper(filled, f"DELETE FROM {record_type.TABLE} WHERE seq = {tail}")
    assert ("missing", "", tail) in row_faults(verified(filled))


def test_a_cut_tail_with_a_head_to_match_is_found_by_a_checkpoint(filled, ledger_template):
    with Store.open(filled) as store:
        checkpoint = checkpoint_of(store.head)
    tail = seqs(filled, "receipt")[-1]
    assert tail == checkpoint.size
    # A ledger that was never longer has the very head that a careful forger would write.
    shorter = filled.with_name("shorter.sqlite3")
    shorter.write_bytes(ledger_template.read_bytes())
    with Store.open(shorter) as store:
        fill_but_last(store, filled)
    assert row_faults(verified(shorter)) == []
    report = verified(shorter, checkpoint=checkpoint)
    assert [fault.kind for fault in report.faults] == ["checkpoint"]
    assert "its tail was cut" in report.faults[0].what


def fill_but_last(store, path):
    """The same rows but the last, written anew: hashes and head as if it had never been."""
    every = []
    connection = sqlite3.connect(path)
    for record_type in RECORDS:
        names = ", ".join(record_type.__struct_fields__)
        for row in connection.execute(f"SELECT seq, {names} FROM {record_type.TABLE}"):
            record = record_type(**dict(zip(record_type.__struct_fields__, row[1:], strict=True)))
            every.append((row[0], record))
    connection.close()
    ordered = [record for _, record in sorted(every, key=lambda pair: pair[0])]
    store.append(ordered[:-1]).result()


def test_a_ledger_rewritten_with_every_hash_recomputed_is_found_by_a_checkpoint(
    filled, ledger_template
):
    with Store.open(filled) as store:
        checkpoint = checkpoint_of(store.head)
    forged = filled.with_name("forged.sqlite3")
    forged.write_bytes(ledger_template.read_bytes())
    with Store.open(forged) as store:
        fill_but_last(store, filled)
        store.append([factories.receipt(3, task_type="other")]).result()
    assert verified(forged).faults == ()
    report = verified(forged, checkpoint=checkpoint)
    assert [fault.kind for fault in report.faults] == ["checkpoint"]
    assert "rewritten" in report.faults[0].what


def test_a_checkpoint_holds_for_a_ledger_that_has_grown(filled):
    with Store.open(filled) as store:
        checkpoint = checkpoint_of(store.head)
        store.append([factories.trace_event(50)]).result()
    assert verified(filled, checkpoint=checkpoint).faults == ()


def test_an_altered_hash_names_its_own_row_alone(filled):
    seq = seqs(filled, "receipt")[0]
    tamper(filled, f"UPDATE receipt SET entry_hash = zeroblob(32) WHERE seq = {seq}")
    assert row_faults(verified(filled)) == [("altered", "receipt", seq)]


@pytest.mark.parametrize(
    "change",
    [
        "v = 9",
        "v = 'x'",
        "entry_hash = NULL",
        "entry_hash = 'text'",
        "tenant_id = CAST(x'ff' AS TEXT)",
        "cost_total_pico = 0.5",
        "cost_total_pico = 'x'",
    ],
)
def test_a_row_that_can_not_even_be_read_as_a_record_is_named(filled, change):
    seq = seqs(filled, "receipt")[0]
    column = change.split()[0]
    with sqlite3.connect(filled) as other:  # NOT NULL is in the tamperer's way, too
        other.execute("PRAGMA writable_schema = ON")
        other.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'receipt'",
            (f'"{column}" BLOB NOT NULL', f'"{column}" BLOB'),
        )
    tamper(filled, f"UPDATE receipt SET {change} WHERE seq = {seq}")
    assert row_faults(verified(filled))[0] == ("altered", "receipt", seq)


def test_a_row_that_the_store_never_wrote_is_named(filled):
    tamper(
        filled,
        "INSERT INTO api_key_revocation VALUES (99, 1, x'00', 'key_9', 1, 'x', 'y')",
        "INSERT INTO api_key_revocation VALUES (7, 1, x'00', 'key_8', 1, 'x', 'y')",
    )
    found = row_faults(verified(filled))
    assert ("doubled", "api_key_revocation", 99) in found
    assert any(kind == "doubled" and seq == 7 for kind, _, seq in found)


def test_a_head_that_was_altered_or_removed_is_named(filled):
    tamper(filled, "UPDATE chain_head SET entry_hash = zeroblob(32)")
    assert row_faults(verified(filled)) == [("head", "chain_head", None)]
    tamper(filled, "DELETE FROM chain_head")
    assert row_faults(verified(filled)) == [("head", "chain_head", None)]


def test_missing_triggers_are_named(filled):
    tamper(filled)
    report = verified(filled)
    assert len(report.faults) == min(FAULTS_LIMIT, 3 * len(RECORDS))
    assert "receipt_no_delete is missing" in {fault.what for fault in report.faults}


def test_a_damaged_ledger_ends_the_verification_at_a_limit_and_not_in_a_flood(ledger_path):
    with Store.open(ledger_path) as store:
        store.append([factories.trace_event(number) for number in range(300)]).result()
    tamper(ledger_path, "UPDATE trace_event SET event = 'x'")
    assert len(verified(ledger_path).faults) == 100


def test_a_cost_that_usage_and_rate_table_do_not_give_is_named(store, ledger_path):
    store.append(
        [
            factories.rate_table(),
            factories.receipt(1),
            factories.receipt(2, cost_output_pico=1_600_000_001, cost_total_pico=3_600_000_001),
            factories.receipt(3, rate_table_version="rates-9"),
            factories.receipt(4, rate_key="route-z"),
            factories.receipt(5, rate_key=None),
            factories.receipt(
                6, cost_retry_and_hedge_pico=5, cost_total_pico=3_600_000_005, attempts=2
            ),
            factories.rejected_receipt(7),
        ]
    ).result()
    faults = verified(ledger_path).faults
    assert [(fault.kind, fault.seq) for fault in faults] == [("cost", seq) for seq in (3, 4, 5, 6)]
    assert faults[0].what == (
        "output is 0.001600000001, computed 0.0016; total is 0.003600000001, computed 0.0036"
    )
    assert "rates-9 is not in the ledger" in faults[1].what
    assert "no rate route-z" in faults[2].what


def test_a_request_has_one_current_receipt_and_an_unknown_is_resolved_by_name(store, ledger_path):
    unpriced = {
        "rate_key": None,
        "cost_input_pico": 0,
        "cost_output_pico": 0,
        "cost_total_pico": 0,
    }
    place = store.append([factories.receipt(1, status="unknown", **unpriced)]).result()[0]
    resolved = {"revision": 1, "resolves_hash": place.entry_hash, **unpriced}
    store.append([factories.receipt(1, **resolved)]).result()
    assert verified(ledger_path).faults == ()
    store.append(
        [
            factories.receipt(2, revision=1, **unpriced),  # resolves nothing
            factories.receipt(1, **(resolved | {"revision": 2})),  # resolves no unknown
            factories.receipt(3, resolves_hash=place.entry_hash, **unpriced),
        ]
    ).result()
    found = {(fault.kind, fault.seq) for fault in verified(ledger_path).faults}
    assert found == {("receipt", 3), ("receipt", 4), ("receipt", 5)}


def test_a_decision_without_a_receipt_is_counted_and_at_rest_a_fault(store, ledger_path):
    store.append(factories.request_records(1)[0]).result()
    assert verified(ledger_path).unfinished == 1
    assert verified(ledger_path).faults == ()
    at_rest = verified(ledger_path, at_rest=True).faults
    assert [(fault.kind, fault.table, fault.seq) for fault in at_rest] == [
        ("receipt", "route_decision", 1)
    ]


def test_a_settlement_without_a_reservation_is_named(store, ledger_path):
    store.append([factories.settlement(1)]).result()
    assert [(fault.kind, fault.seq) for fault in verified(ledger_path).faults] == [
        ("settlement", 1)
    ]


def test_a_checkpoint_is_a_small_json_document(filled):
    with Store.open(filled) as store:
        text = msgspec.json.encode(checkpoint_of(store.head))
    assert msgspec.json.decode(text) == {
        "size": store.head.size,
        "root": checkpoint_of(store.head).root,
    }
