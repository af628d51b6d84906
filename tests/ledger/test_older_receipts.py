"""A receipt written before its newest fields keeps its hash, its cost and its place (LED-7)."""

import sqlite3

from ledger.chain import Builder, canonical
from ledger.reading import connect_read_only, read_head
from ledger.records import Receipt
from ledger.rows import field_names, stored
from ledger.store import Store
from ledger.verify import verify
from tests import factories


def write_as_version_1(path, receipt):
    """Appends a receipt as the first version of its record was written: without later fields."""
    connection = sqlite3.connect(path, isolation_level=None)
    head = read_head(connection)
    assert head is not None
    names = field_names(Receipt, 1)
    values = [getattr(receipt, name) for name in names]
    builder = Builder(head)
    builder.add(canonical("receipt", 1, head.size + 1, values))
    after = builder.head
    marks = ", ".join("?" * (len(names) + 3))
    connection.execute(
        f"INSERT INTO receipt (seq, v, entry_hash, {', '.join(names)}) VALUES ({marks})",
        (after.size, 1, after.entry_hash, *values),
    )
    connection.execute(
        "UPDATE chain_head SET size = ?, entry_hash = ?, frontier = ?",
        (after.size, after.entry_hash, after.frontier),
    )
    connection.close()
    return after.size


def test_a_receipt_of_the_first_version_is_sound_and_reads_as_without_further_meters(ledger_path):
    with Store.open(ledger_path) as store:
        store.append([factories.rate_table(), factories.receipt(1)]).result()
    seq = write_as_version_1(ledger_path, factories.receipt(2))
    with Store.open(ledger_path) as store:
        store.append([factories.receipt(3)]).result()
    connection = connect_read_only(ledger_path)
    assert verify(connection).faults == ()
    row = connection.execute("SELECT * FROM receipt WHERE seq = ?", (seq,)).fetchone()
    old = stored(Receipt, row).record
    assert (old.usage_convention, old.usage_json, old.cost_other_pico) == (None, None, 0)
    connection.close()


def test_a_cost_of_the_first_version_that_is_wrong_is_named(ledger_path):
    with Store.open(ledger_path) as store:
        store.append([factories.rate_table()]).result()
    seq = write_as_version_1(ledger_path, factories.receipt(2, cost_output_pico=1))
    connection = connect_read_only(ledger_path)
    assert [(fault.kind, fault.seq) for fault in verify(connection).faults] == [("cost", seq)]
    connection.close()
