"""Rollups equal the receipts that they were kept from, whatever order those came in."""

import itertools
import sqlite3
from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import histograms
from ledger.errors import RecordRefused
from ledger.money import join
from ledger.records import OutcomeReport, Receipt, SloDefinitionRecord
from ledger.rollups import contents
from ledger.rollups.projection import JOINS_LIMIT, Rollups, read_state
from ledger.rollups.rebuild import first_difference, rebuild
from ledger.rollups.sums import read_sums
from ledger.rollups.tables import DAY, HOUR, LIVE, QUARTER, SHIFT
from ledger.slo_defaults import DEFAULT_SLOS
from ledger.slo_text import to_json
from ledger.store import Store
from tests.ledger.receipts import HOUR_US, T0_US, receipt

QUARTER_US = HOUR_US // 4


@dataclass(frozen=True, slots=True)
class Place:
    seq: int


def memory_ledger():
    """An in-memory database with the receipts' table and empty rollups."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for kind in (Receipt, OutcomeReport, SloDefinitionRecord):
        columns = ", ".join(kind.__struct_fields__)
        connection.execute(
            f"CREATE TABLE {kind.TABLE} (seq INTEGER PRIMARY KEY, v, entry_hash, {columns})"
        )
    for statement in LIVE.create:
        connection.execute(statement)
    return connection


def append(connection, rollups, receipts):
    """Writes receipts as one commit of the store would: rows first, then the projection."""
    seq = connection.execute("SELECT coalesce(max(seq), 0) FROM receipt").fetchone()[0]
    rows = [(one, Place(seq + number)) for number, one in enumerate(receipts, start=1)]
    connection.execute("BEGIN")
    for one, place in rows:
        values = (place.seq, Receipt.VERSION, b"", *msgspec.structs.astuple(one))
        connection.execute(f"INSERT INTO receipt VALUES ({', '.join('?' * len(values))})", values)
    rollups.apply(connection, rows)
    connection.execute("COMMIT")


def rows_of(connection, grain_min):
    return [row for row in contents.totals(connection) if row["grain_min"] == grain_min]


def at(hours, **changes):
    return receipt(accepted_at_us=T0_US + int(hours * HOUR_US), **changes)


def test_a_receipt_counts_in_the_quarter_hour_in_which_it_was_accepted():
    connection = memory_ledger()
    append(connection, Rollups(), [at(0.25, e2e_us=2 * HOUR_US, deadline_us=3 * HOUR_US)])
    (row,) = rows_of(connection, QUARTER)
    assert row["bucket_us"] == T0_US + QUARTER_US
    assert (row["receipts"], row["judged"], row["valid"]) == (1, 1, 1)
    assert row["cost_total_pico"] == 3_600_000_000
    assert row["route_id"] == "route_a"


def test_coarse_rows_appear_when_their_time_is_over_and_take_late_receipts_in():
    connection, rollups = memory_ledger(), Rollups()
    append(connection, rollups, [at(0.1), at(0.9)])
    assert rows_of(connection, HOUR) == []
    append(connection, rollups, [at(1.0, request_id="next")])
    assert [row["receipts"] for row in rows_of(connection, HOUR)] == [2]
    append(connection, rollups, [at(0.5, request_id="late")])
    assert [row["receipts"] for row in rows_of(connection, HOUR)] == [3]
    append(connection, rollups, [at(24, request_id="tomorrow")])
    assert [row["receipts"] for row in rows_of(connection, DAY)] == [4]
    assert [row["receipts"] for row in rows_of(connection, SHIFT)] == [4]
    assert first_difference(connection) is None


def test_a_receipt_that_resolves_an_unknown_takes_its_place():
    connection, rollups = memory_ledger(), Rollups()
    unknown = at(0, status="unknown", first_token_us=None, e2e_us=9, cost_output_pico=0)
    append(connection, rollups, [unknown, at(2, request_id="other")])
    append(connection, rollups, [at(0, revision=1)])
    by_status = {(row["bucket_us"], row["status"]): row for row in rows_of(connection, QUARTER)}
    assert set(by_status) == {(T0_US, "completed"), (T0_US + 2 * HOUR_US, "completed")}
    assert by_status[T0_US, "completed"]["receipts"] == 1
    assert first_difference(connection) is None


def test_an_unknown_and_its_resolution_in_one_commit_count_once():
    connection = memory_ledger()
    append(connection, Rollups(), [at(0, status="unknown"), at(0, revision=1)])
    assert [row["status"] for row in rows_of(connection, QUARTER)] == ["completed"]
    assert first_difference(connection) is None


def test_sums_beyond_64_bits_stay_exact():
    connection, rollups = memory_ledger(), Rollups()
    huge = 2**63 - 1
    parts = {"cost_output_pico": 0, "cost_input_pico": huge}
    append(connection, rollups, [at(0, request_id=f"r{n}", **parts) for n in range(5)])
    append(connection, rollups, [at(1, request_id="next", **parts)])
    for grain_min in (QUARTER, HOUR):
        assert rows_of(connection, grain_min)[0]["cost_input_pico"] == 5 * huge
    series = connection.execute("SELECT series_id FROM rollup_series").fetchone()[0]
    sums = read_sums(connection, [(T0_US, T0_US + 2 * HOUR_US)])
    assert sums.series.tolist() == [series]
    assert join(*sums.measures[0, -2:].tolist()) == 6 * huge


def test_histograms_hold_what_was_measured_and_nothing_else():
    connection = memory_ledger()
    append(
        connection,
        Rollups(),
        [
            at(0, first_token_us=50),
            at(0, first_token_us=None, status="failed", itl_mean_us=None),
            at(0, first_token_us=None, status="rejected", itl_mean_us=None, queue_us=None),
        ],
    )
    ttft, e2e, queue = connection.execute("SELECT ttft, e2e, queue FROM rollup_latency").fetchone()
    assert ttft == histograms.pack({50: 1})
    assert histograms.unpack([e2e]).sum() == 1
    assert histograms.unpack([queue]).sum() == 2


def test_histograms_that_many_commits_added_to_stay_short_and_exact():
    connection, rollups = memory_ledger(), Rollups()
    for number in range(2 * JOINS_LIMIT):
        append(connection, rollups, [at(0, request_id=f"r{number}", e2e_us=10 + number % 3)])
    packed = connection.execute("SELECT e2e FROM rollup_latency").fetchall()[0][0]
    assert len(packed) == 3 * 4  # a pair for each bucket
    (row,) = contents.latencies(connection)
    assert row["e2e"] == [(10, 43), (11, 43), (12, 42)]


def test_a_batch_without_receipts_touches_nothing():
    connection = memory_ledger()
    Rollups().apply(connection, [])
    assert read_state(connection).position == 0


def test_series_learned_in_a_rolled_back_transaction_are_forgotten():
    connection, rollups = memory_ledger(), Rollups()
    append(connection, rollups, [at(0)])
    connection.execute("BEGIN")
    rollups.add(connection, [(2, at(0, tenant_id="lost", request_id="x"))])
    connection.execute("ROLLBACK")
    append(connection, rollups, [at(0, tenant_id="found", request_id="y")])
    append(connection, rollups, [at(0, tenant_id="lost", request_id="z")])
    tenants = {row["tenant_id"]: row["receipts"] for row in rows_of(connection, QUARTER)}
    assert tenants == {"acme": 1, "found": 1, "lost": 1}


receipts_anywhere = st.builds(
    at,
    st.floats(0, 80, allow_nan=False),
    tenant_id=st.sampled_from(["acme", "globex"]),
    route_id=st.sampled_from(["route_a", "route_b", None]),
    priority=st.sampled_from(["interactive", "batch"]),
    status=st.sampled_from(["completed", "rejected", "cancelled", "failed", "unknown"]),
    cost_input_pico=st.integers(0, 2**62),
    first_token_us=st.none() | st.integers(0, 10**8),
    e2e_us=st.integers(0, 10**8),
    queue_us=st.none() | st.integers(0, 10**8),
)


@settings(max_examples=60)
@given(st.lists(receipts_anywhere, max_size=40), st.integers(1, 9), st.data())
def test_rollups_equal_a_recount_for_any_order_of_arrival(receipts, batch, data):
    numbered = [
        msgspec.structs.replace(one, request_id=f"r{number}") for number, one in enumerate(receipts)
    ]
    unknown = [one for one in numbered if one.status == "unknown"]
    resolved = data.draw(st.lists(st.sampled_from(unknown), unique=True)) if unknown else []
    numbered += [msgspec.structs.replace(one, revision=1, status="completed") for one in resolved]
    connection, rollups = memory_ledger(), Rollups()
    for start in range(0, len(numbered), batch):
        append(connection, rollups, numbered[start : start + batch])
    assert first_difference(connection) is None

    final = {one.request_id: one for one in numbered}.values()
    quarters = rows_of(connection, QUARTER)
    assert sum(row["receipts"] for row in quarters) == len(final)
    assert sum(row["cost_total_pico"] for row in quarters) == sum(
        one.cost_total_pico for one in final
    )
    for grain_min in (HOUR, SHIFT, DAY):
        until_us = read_state(connection).until(grain_min)
        covered = [one for one in final if one.accepted_at_us < until_us]
        coarse = rows_of(connection, grain_min)
        assert sum(row["receipts"] for row in coarse) == len(covered)
        assert sum(row["cost_total_pico"] for row in coarse) == sum(
            one.cost_total_pico for one in covered
        )


# Over a real ledger


def many(count):
    spread = itertools.cycle([0.0, 0.3, 1.2, 5.5, 6.1, 26.0])
    return [at(next(spread), request_id=f"r{number:04}") for number in range(count)]


@pytest.fixture
def kept_ledger(ledger_path):
    """A ledger with 120 receipts whose rollups were kept by its store."""
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        for start in range(0, 120, 30):
            store.append(many(120)[start : start + 30]).result()
    return ledger_path


def open_for_writing(path):
    return sqlite3.connect(path, isolation_level=None)


def test_the_store_keeps_rollups_that_equal_the_receipts(kept_ledger, reader):
    assert first_difference(reader) is None
    assert sum(row["receipts"] for row in rows_of(reader, QUARTER)) == 120


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        ("UPDATE rollup_total SET cost_total_low = cost_total_low + 1", "cost_total_pico"),
        ("UPDATE rollup_packed SET sums = x'34' WHERE grain_min = 60", "rollup_total"),
        ("UPDATE rollup_latency SET ttft = x'' WHERE grain_min = 60", "ttft"),
        ("UPDATE rollup_sli SET good = good - 1 WHERE slo_key LIKE 'valid%'", "good"),
        ("DELETE FROM rollup_packed WHERE grain_min = 1440", "rollup_total"),
        ("UPDATE rollup_state SET position = position - 1", "position"),
    ],
)
def test_the_check_names_the_first_row_that_differs(kept_ledger, reader, harm, named):
    with open_for_writing(kept_ledger) as connection:
        connection.execute(harm)
    difference = first_difference(reader)
    assert difference is not None
    assert named in difference


def test_rebuilding_puts_right_what_was_harmed(kept_ledger, reader):
    connection = open_for_writing(kept_ledger)
    connection.execute("UPDATE rollup_total SET receipts = receipts + 7")
    connection.execute("DELETE FROM rollup_sli")
    reports: list[int] = []
    position = rebuild(connection, progress=reports.append)
    connection.close()
    assert position == 120
    assert reports == [120]
    assert first_difference(reader) is None
    tables = reader.execute("SELECT name FROM sqlite_master WHERE name LIKE 'rollup_shadow%'")
    assert tables.fetchall() == []


def test_an_interrupted_rebuild_leaves_the_kept_rollups_and_can_be_run_again(kept_ledger, reader):
    connection = open_for_writing(kept_ledger)

    def stop(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild(connection, progress=stop)
    assert first_difference(reader) is None
    rebuild(connection)
    connection.close()
    assert first_difference(reader) is None


def test_an_objective_counts_once_its_declaration_stands_and_not_when_it_was_undone(
    ledger_path, reader
):
    """SLO-9."""
    revision = replace(DEFAULT_SLOS[0], revision=2, counted_from_us=T0_US + 2 * HOUR_US)
    declared = SloDefinitionRecord(
        slo_id=revision.slo_id,
        revision=2,
        body_json=to_json(revision),
        declared_at_us=T0_US,
        declared_by="operator",
    )
    good = [at(hours, request_id=f"r{hours}") for hours in range(4)]

    def counted():
        sql = "SELECT sum(valid) FROM rollup_sli WHERE slo_key = ? AND grain_min = 1"
        return reader.execute(sql, (revision.key,)).fetchone()[0]

    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append(good[:1]).result()
        with pytest.raises(RecordRefused):
            store.append([declared, good[1], good[1]]).result()
        store.append(good[1:2]).result()
        assert counted() is None
        store.append([declared]).result()
        store.append(good[2:3]).result()
        store.append(good[3:]).result()
        assert counted() == 2
    assert first_difference(reader) is None


def test_a_store_goes_on_keeping_rollups_after_a_rebuild(kept_ledger, reader):
    connection = open_for_writing(kept_ledger)
    rebuild(connection)
    connection.close()
    with Store.open(kept_ledger, projections=(Rollups(),)) as store:
        store.append([at(50, request_id="after")]).result()
    assert first_difference(reader) is None
