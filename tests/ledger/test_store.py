"""The single writer: durable, whole transactions, in order, each caller for itself (LED-4)."""

import asyncio
import resource
import sqlite3
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger import store as store_module
from ledger.chain import GENESIS, Builder, canonical
from ledger.errors import (
    LedgerDamaged,
    LedgerInUse,
    LedgerNotReady,
    LedgerUnavailable,
    RecordRefused,
    TriggersDiffer,
)
from ledger.reading import entry_hash_at, fetch, read_head
from ledger.records import RECORDS, Record
from ledger.store import Store
from tests import factories
from tests.ledger_fixtures import migrate_ledger


def count(reader, table):
    return fetch(reader, f"SELECT count(*) FROM {table}")[0][0]


def test_records_of_one_call_stand_in_the_chain_in_order(store, reader):
    records = (factories.route_decision(1), factories.reservation(1), factories.receipt(1))
    places = store.append(records).result()
    assert [place.seq for place in places] == [1, 2, 3]
    assert places[0].prev_hash == GENESIS
    assert places[1].prev_hash == places[0].entry_hash
    assert entry_hash_at(reader, 3) == places[2].entry_hash == store.head.entry_hash
    assert read_head(reader) == store.head


def test_every_record_type_can_be_written_with_every_field_set(store, reader):
    places = store.append([factories.any_record(kind, 7) for kind in RECORDS]).result()
    assert [place.seq for place in places] == list(range(1, len(RECORDS) + 1))
    for record_type in RECORDS:
        assert count(reader, record_type.TABLE) == 1


def test_many_rows_of_one_table_are_split_into_statements_without_loss(store, reader):
    places = store.append([factories.receipt(number) for number in range(203)]).result()
    assert [place.seq for place in places] == list(range(1, 204))
    rows = [tuple(row) for row in fetch(reader, "SELECT seq, request_id FROM receipt")]
    assert rows == [(number + 1, factories.request_id(number)) for number in range(203)]


def test_the_chain_is_the_pure_one(store):
    builder = Builder()
    for number in range(40):
        record = factories.trace_event(number)
        place = store.append([record]).result()[0]
        values = [getattr(record, name) for name in record.__struct_fields__]
        assert (
            builder.add(canonical("trace_event", record.VERSION, number + 1, values))
            == place.entry_hash
        )
    assert store.head == builder.head


def test_a_store_that_is_reopened_continues_the_chain(ledger_path):
    with Store.open(ledger_path) as first:
        last = first.append([factories.receipt(1)]).result()[0]
    with Store.open(ledger_path) as second:
        place = second.append([factories.receipt(2)]).result()[0]
    assert (place.seq, place.prev_hash) == (2, last.entry_hash)


def test_threads_get_their_own_places_and_the_chain_has_no_gap(store):
    def append(number):
        return store.append([factories.attempt(number), factories.trace_event(number)]).result()

    with ThreadPoolExecutor(16) as pool:
        places = list(pool.map(append, range(200)))
    assert all(second.seq == first.seq + 1 for first, second in places)
    assert sorted(place.seq for pair in places for place in pair) == list(range(1, 401))


def test_callers_on_an_event_loop_are_answered_together_and_each_with_its_own(store):
    async def commit_many():
        return await asyncio.gather(
            *(store.commit([factories.receipt(number)]) for number in range(300))
        )

    places = asyncio.run(commit_many())
    assert [pair[0].seq for pair in places] == list(range(1, 301))


class Transactions:
    """A projection that notes how many rows each transaction has."""

    def __init__(self):
        self.rows = []

    def apply(self, connection, rows):
        self.rows.append(len(rows))


def test_what_is_asked_for_in_one_turn_of_an_event_loop_is_one_transaction(ledger_path):
    async def turns():
        for first in (0, 50):
            await asyncio.gather(
                *(store.commit([factories.receipt(first + number)]) for number in range(50))
            )
        await store.commit([factories.receipt(100)])

    transactions = Transactions()
    with Store.open(ledger_path, projections=(transactions,)) as store:
        asyncio.run(turns())
    assert transactions.rows == [50, 50, 1]


def test_callers_of_one_turn_are_refused_each_for_itself(store, monkeypatch):
    async def turn():
        sizes = (2, 3, 1)
        return await asyncio.gather(
            *(
                store.commit([factories.trace_event(10 * place + row) for row in range(size)])
                for place, size in enumerate(sizes)
            ),
            return_exceptions=True,
        )

    monkeypatch.setattr(store_module, "QUEUE_LIMIT_ROWS", 3)
    first, second, third = asyncio.run(turn())
    assert [place.seq for place in (*first, *third)] == [1, 2, 3]
    assert isinstance(second, LedgerUnavailable)
    assert second.code == "QUEUE_FULL"
    store.close()
    closed = asyncio.run(turn())
    assert [str(each) for each in closed] == ["the ledger is closed"] * 3


def test_a_cancelled_caller_has_its_record_written_all_the_same(store, reader):
    async def cancelled():
        task = asyncio.create_task(store.commit([factories.receipt(1)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    store.flush()
    assert count(reader, "receipt") == 1


def test_a_second_row_with_a_taken_key_fails_its_caller_alone(store, reader):
    store.append([factories.settlement(1)]).result()
    futures = [
        store.append([factories.trace_event(1)]),
        store.append([factories.trace_event(2), factories.settlement(1)]),
        store.append([factories.trace_event(3)]),
    ]
    assert futures[0].result()[0].seq == 2
    with pytest.raises(RecordRefused, match="settlement"):
        futures[1].result()
    assert futures[2].result()[0].seq == 3
    assert count(reader, "settlement") == 1
    assert [row[0] for row in fetch(reader, "SELECT request_id FROM trace_event")] == [
        factories.request_id(1),
        factories.request_id(3),
    ]
    assert store.healthy


@pytest.mark.parametrize(
    "overrides",
    [
        {"cost_total_pico": 2**63},
        {"cost_total_pico": 2**64},
        {"cost_total_pico": 1.5},
        {"cost_total_pico": True},
        {"cost_total_pico": None},
        {"tenant_id": "\ud800"},
        {"tenant_id": b"acme"},
        {"resolves_hash": "acme"},
    ],
)
def test_a_value_that_no_column_can_hold_is_refused_and_nothing_is_written(
    store, reader, overrides
):
    good = store.append([factories.trace_event(1)])
    with pytest.raises(RecordRefused):
        store.append([factories.trace_event(2), factories.receipt(1, **overrides)]).result()
    assert good.result()[0].seq == 1
    assert count(reader, "receipt") == 0
    assert count(reader, "trace_event") == 1
    assert store.append([factories.receipt(1)]).result()[0].seq == 2


def test_a_record_without_a_table_is_refused(store):
    class Stranger(Record, frozen=True, kw_only=True):
        TABLE = "stranger"
        name: str

    with pytest.raises(RecordRefused, match="Stranger is no record"):
        store.append([Stranger(name="x")]).result()


def test_text_with_a_nul_comes_back_whole(store, reader):
    store.append([factories.trace_event(1, reasons="a\x00b")]).result()
    assert fetch(reader, "SELECT reasons FROM trace_event")[0][0] == "a\x00b"


def test_a_second_store_on_the_same_ledger_is_refused_and_the_owner_named(store, ledger_path):
    with pytest.raises(LedgerInUse, match=r"in use by process [0-9]+"):
        Store.open(ledger_path)
    assert store.append([factories.receipt(1)]).result()[0].seq == 1


def test_a_closed_store_gives_the_ledger_up_and_takes_nothing_more(ledger_path):
    first = Store.open(ledger_path)
    pending = first.append([factories.receipt(1)])
    first.close()
    first.close()
    assert pending.result()[0].seq == 1
    with pytest.raises(LedgerUnavailable, match="closed"):
        first.append([factories.receipt(2)]).result()
    assert not first.healthy
    Store.open(ledger_path).close()


def test_a_file_that_is_missing_or_no_ledger_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(LedgerNotReady, match="migrate --database ledger"):
        Store.open(tmp_path / "none.sqlite3")
    empty = tmp_path / "empty.sqlite3"
    sqlite3.connect(empty).close()
    empty.touch()
    with pytest.raises(LedgerNotReady, match="migrate --database ledger"):
        Store.open(empty)


def test_a_ledger_without_its_triggers_is_refused(ledger_path):
    with sqlite3.connect(ledger_path) as other:
        other.execute("DROP TRIGGER receipt_no_update")
    with pytest.raises(TriggersDiffer, match="receipt_no_update is missing"):
        Store.open(ledger_path)


def test_a_ledger_whose_tail_was_cut_or_grown_is_refused(ledger_path):
    with Store.open(ledger_path) as first:
        first.append([factories.trace_event(1), factories.trace_event(2)]).result()
    with sqlite3.connect(ledger_path) as other:
        other.execute("INSERT INTO api_key_revocation VALUES (9, 1, x'', 'k', 1, 'x', 'y')")
    with pytest.raises(LedgerDamaged, match="api_key_revocation has row 9"):
        Store.open(ledger_path)


def test_a_full_queue_refuses_and_names_its_limit(store, monkeypatch):
    monkeypatch.setattr(store_module, "QUEUE_LIMIT_ROWS", 1)
    with pytest.raises(LedgerUnavailable, match="queue is full"):
        store.append([factories.receipt(1), factories.receipt(2)]).result()
    assert store.append([factories.receipt(3)]).result()[0].seq == 1


def fill_disk(store):
    """Lets the file grow no further, as a full disk would: SQLite answers SQLITE_FULL."""
    connection = store._writer._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages}").fetchall()


def test_a_full_disk_fails_the_waiting_and_half_writes_nothing_and_is_got_over(store, reader):
    store.append([factories.receipt(0)]).result()
    before = store.head
    fill_disk(store)
    with pytest.raises(LedgerUnavailable, match="full"):
        store.append([factories.receipt(number) for number in range(1, 500)]).result()
    assert store.head == before == read_head(reader)
    assert not store.healthy
    assert "full" in store.last_error
    assert count(reader, "receipt") == 1
    # The abandoned connection took its limit along: the disk has room again.
    assert store.append([factories.receipt(1)]).result()[0].seq == 2
    assert store.healthy
    assert store.last_error is None


def test_a_disk_that_takes_no_more_is_noticed_and_its_recovery_too(store, reader, monkeypatch):
    monkeypatch.setattr(store_module, "RETRY_WAIT_S", 0.001)
    store.append([factories.receipt(0)]).result()
    before, unlimited = store.head, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, unlimited[1]))  # no file grows past 64 bytes
    try:
        futures = [store.append([factories.receipt(number)]) for number in range(1, 9)]
        for future in futures:
            with pytest.raises(LedgerUnavailable, match="nothing was recorded"):
                future.result()
        assert not store.healthy
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert read_head(reader) == before
    assert count(reader, "receipt") == 1
    # Nobody appends: the store looks by itself whether the disk is well again.
    # A loop that only looks would keep the interpreter from it, for milliseconds at each statement.
    looks, elsewhere = 0, threading.Event()
    while not store.healthy:
        elsewhere.wait(0.001)
        looks += 1
        assert looks < 60_000
    assert store.append([factories.receipt(1)]).result()[0].seq == 2


def test_a_migration_of_a_ledger_in_use_is_refused(store, ledger_path):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        migrate_ledger(ledger_path)
    assert refused.value.stderr.startswith(f"CommandError: The ledger {ledger_path} is in use by ")
    assert store.append([factories.receipt(1)]).result()[0].seq == 1


class Counting:
    """A projection that counts requests by tenant, and fails for one tenant."""

    def apply(self, connection, rows):
        connection.execute("CREATE TABLE IF NOT EXISTS seen (seq INTEGER, tenant TEXT)")
        for record, place in rows:
            if record.tenant_id == "broken":
                raise KeyError("broken")
            connection.execute("INSERT INTO seen VALUES (?, ?)", (place.seq, record.tenant_id))


def test_a_projection_is_written_in_the_transaction_of_its_records(ledger_path, reader):
    with Store.open(ledger_path, projections=(Counting(),)) as store:
        good = store.append([factories.receipt(1)])
        bad = store.append([factories.receipt(2, tenant_id="broken")])
        also_good = store.append([factories.receipt(3)])
        assert (good.result()[0].seq, also_good.result()[0].seq) == (1, 2)
        with pytest.raises(RecordRefused, match="KeyError"):
            bad.result()
    assert [tuple(row) for row in fetch(reader, "SELECT seq, tenant FROM seen")] == [
        (1, "acme"),
        (2, "acme"),
    ]
    assert count(reader, "receipt") == 2


def test_the_log_is_checkpointed_when_there_is_nothing_else_to_do(store, reader):
    store.append([factories.receipt(number) for number in range(600)]).result()
    assert store._writer.checkpoint_due(idle=True)
    store._writer.checkpoint()
    assert not store._writer.checkpoint_due(idle=True)
    assert count(reader, "receipt") == 600


def test_a_read_only_file_is_said_by_its_code_and_nothing_is_written(store, reader):
    store.append([factories.receipt(0)]).result()
    store._writer._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(LedgerUnavailable, match="readonly") as refused:
        store.append([factories.receipt(1)]).result()
    assert refused.value.code == "FILE_READ_ONLY"
    assert store.status().fault == "FILE_READ_ONLY"
    assert "make the file and its folder writable" in store.last_error
    assert count(reader, "receipt") == 1


def test_a_file_that_was_moved_away_takes_no_more_commits(store, ledger_path):
    """It could: but who would find them?"""
    store.append([factories.receipt(0)]).result()
    away = ledger_path.with_name("away.sqlite3")
    ledger_path.rename(away)
    with pytest.raises(LedgerUnavailable) as refused:
        store.append([factories.receipt(1)]).result()
    assert refused.value.code == "FILE_MOVED"
    with pytest.raises(LedgerUnavailable):
        store.append([factories.receipt(1)]).result()  # looks for it again
    assert store.last_error.endswith(
        "there is no such file; put the ledger's file back, or stop the server and name it with "
        "WEIGHBRIDGE_DB"
    )
    away.rename(ledger_path)
    assert store.append([factories.receipt(2)]).result()[0].seq == 2
