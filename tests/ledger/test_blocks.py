"""Blocks checked at once say what the walk over their rows says (LED-7)."""

import shutil
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.block_pool import checked_blocks
from ledger.blocks import USUAL_LIMIT, _all_exact, check_block
from ledger.chain import BLOCK_ROWS, Builder, checkpoint_of
from ledger.rates import Rate, RateTable
from ledger.reading import connect_read_only
from ledger.records import RECORDS
from ledger.store import Store
from tests import factories
from tests.ledger.prebuilt import prebuilt
from tests.ledger.tampering import row_faults, tamper, verified

ROWS = 2 * BLOCK_ROWS + 100


@pytest.fixture(scope="module")
def long_once(ledger_template, tmp_path_factory):
    def fill(store):
        store.append([factories.trace_event(n) for n in range(ROWS)]).result()
        assert store.head.size == ROWS

    return prebuilt(ledger_template, tmp_path_factory.mktemp("long"), fill)


@pytest.fixture
def long_ledger(long_once, tmp_path):
    """Two whole blocks and a part of one, of trace events alone."""
    return shutil.copyfile(long_once, tmp_path / "ledger.sqlite3")


@given(st.lists(st.integers(0, 4), max_size=12))
def test_a_tree_grown_by_subtrees_is_the_tree_of_its_leaves(heights: list[int]):
    one_by_one, by_subtrees = Builder(), Builder()
    for height in heights:
        while by_subtrees.size % (1 << height):
            leaf = sha256(b"%d" % by_subtrees.size).digest()
            one_by_one.add_leaf(leaf)
            by_subtrees.add_leaf(leaf)
        subtree = Builder()
        for n in range(1 << height):
            leaf = sha256(b"%d" % (by_subtrees.size + n)).digest()
            one_by_one.add_leaf(leaf)
            subtree.add_leaf(leaf)
        by_subtrees.add_subtree(height, subtree.root)
    assert by_subtrees.head == one_by_one.head
    assert by_subtrees.root == one_by_one.root


def test_a_subtree_fits_only_after_a_multiple_of_its_leaves():
    builder = Builder()
    builder.add_leaf(bytes(32))
    with pytest.raises(ValueError, match="height 1 begins after 1"):
        builder.add_subtree(1, bytes(32))


def test_a_ledger_of_several_blocks_is_sound_and_its_root_is_the_heads(long_ledger):
    with Store.open(long_ledger) as store:
        checkpoint = checkpoint_of(store.head)
    report = verified(long_ledger, checkpoint=checkpoint)
    assert report.faults == ()
    assert (report.rows, report.root) == (ROWS, checkpoint.root)


@pytest.mark.parametrize("size", [BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_a_checkpoint_is_checked_inside_a_block_and_at_its_ends(long_ledger, size):
    builder = Builder()
    connection = connect_read_only(long_ledger)
    for first, _, sound in checked_blocks(connection, size, {}):
        assert sound is not None and sound.first == first
        for height, root in sound.peaks:
            builder.add_subtree(height, root)
    connection.close()
    checkpoint = builder.checkpoint
    assert checkpoint.size == size
    assert verified(long_ledger, checkpoint=checkpoint).faults == ()
    other = type(checkpoint)(size=size, root="00" * 32)
    assert [f.kind for f in verified(long_ledger, checkpoint=other).faults] == ["checkpoint"]


def test_other_processes_say_the_same_of_every_block(long_ledger):
    tamper(long_ledger, f"UPDATE trace_event SET event = 'x' WHERE seq = {BLOCK_ROWS + 7}")
    connection = connect_read_only(long_ledger)
    alone = list(checked_blocks(connection, ROWS, {}))
    shared = list(checked_blocks(connection, ROWS, {}, rows_per_process=BLOCK_ROWS))
    connection.close()
    assert shared == alone
    assert [sound is None for _, _, sound in alone] == [False, True, False]


@pytest.mark.parametrize("seq", [1, BLOCK_ROWS, BLOCK_ROWS + 1, ROWS - 20])
def test_an_altered_row_is_named_wherever_it_stands_in_its_block(long_ledger, seq):
    tamper(long_ledger, f"UPDATE trace_event SET reasons = 'x' WHERE seq = {seq}")
    assert row_faults(verified(long_ledger)) == [("altered", "trace_event", seq)]


@pytest.mark.parametrize("seq", [BLOCK_ROWS, BLOCK_ROWS + 1])
def test_an_altered_hash_is_named_and_not_the_row_after_it(long_ledger, seq):
    tamper(long_ledger, f"UPDATE trace_event SET entry_hash = zeroblob(32) WHERE seq = {seq}")
    assert row_faults(verified(long_ledger)) == [("altered", "trace_event", seq)]


@pytest.mark.parametrize("value", ["1.0", "'text'", "x'00'", "10000000000000"])
def test_a_hash_that_is_none_makes_a_block_unsound_and_no_fault_of_this_program(long_ledger, value):
    tamper(long_ledger, f"UPDATE trace_event SET entry_hash = {value} WHERE seq = {BLOCK_ROWS}")
    connection = connect_read_only(long_ledger)
    assert check_block(connection, 1, BLOCK_ROWS, {}) is None
    assert check_block(connection, BLOCK_ROWS + 1, 2 * BLOCK_ROWS, {}) is None
    connection.close()
    assert row_faults(verified(long_ledger)) == [("altered", "trace_event", BLOCK_ROWS)]


@pytest.mark.parametrize("seq", [BLOCK_ROWS, BLOCK_ROWS + 1, ROWS - 20])
def test_a_removed_row_is_missing_wherever_it_stood(long_ledger, seq):
    tamper(long_ledger, f"DELETE FROM trace_event WHERE seq = {seq}")
    assert row_faults(verified(long_ledger)) == [("missing", "", seq)]


def test_sqlite_writes_the_canonical_bytes_of_every_character_and_value(ledger_path):
    """A block is sound only where SQLite's JSON is the writer's, byte for byte."""
    texts = [chr(code) for code in range(0x300)]
    texts += ["\u2028\u2029", "\ud7ff\ue000", "\U0001f600", '"\\/', "{}", "[1]", "null", "1e5"]
    with Store.open(ledger_path) as store:
        store.append([factories.trace_event(n, reasons=t) for n, t in enumerate(texts)]).result()
        limits = {"cost_pico": -(2**63), "input_tokens": 2**63 - 1, "outcome": None}
        store.append([factories.attempt_event(1, **limits), factories.route_decision(1)]).result()
        store.append([factories.any_record(kind, 7) for kind in RECORDS]).result()
        size = store.head.size
    connection = connect_read_only(ledger_path)
    sound = check_block(connection, 1, size - len(RECORDS), {})
    connection.close()
    assert sound is not None


def test_a_record_has_no_more_fields_than_a_function_of_sqlite_takes():
    """json_array takes 100 values in the oldest builds; table, version and seq are among them."""
    assert max(len(kind.__struct_fields__) for kind in RECORDS) <= 97


FLAT = Rate(
    key="flat",
    input_micro_per_mtok=2,
    output_micro_per_mtok=8,
    cached_input_micro_per_mtok=1,
)
BATCHES = msgspec.structs.replace(FLAT, key="batches", batch_multiplier_permille=500)
FIXED = msgspec.structs.replace(FLAT, key="fixed", fixed_pico=5)
NOW_US = factories.NOW_US
TABLES = {
    version: RateTable(
        version=version, effective_from_us=since, currency="units", rates=(FLAT, BATCHES, FIXED)
    )
    for version, since in (("old", 0), ("new", NOW_US))
}
EXACT: dict[str, Any] = {
    "rate_table_version": "new",
    "rate_key": "flat",
    "input_tokens": 10,
    "cached_input_tokens": 4,
    "output_tokens": 3,
    "cost_input_pico": 12,
    "cost_cached_input_pico": 4,
    "cost_output_pico": 24,
    "cost_total_pico": 40,
}
HALVED = {
    "cost_input_pico": 6,
    "cost_cached_input_pico": 2,
    "cost_output_pico": 12,
    "cost_total_pico": 20,
}
DEARER = {"cost_fixed_pico": 5, "cost_total_pico": 45}
NOTHING = {
    "cost_input_pico": 0,
    "cost_cached_input_pico": 0,
    "cost_output_pico": 0,
    "cost_total_pico": 0,
}
CHARGED: list[tuple[bool, dict[str, Any]]] = [
    (True, {}),
    (True, {"priority": "batch"}),
    (True, {"cost_retry_and_hedge_pico": 7, "cost_total_pico": 47}),
    (True, {"rate_key": "fixed", **DEARER}),
    (True, {"rate_key": "batches"}),
    (True, {"rate_key": "batches", "priority": "batch", **HALVED}),
    (True, {"rate_key": None, **NOTHING}),
    (True, {"rate_table_version": "old", "accepted_at_us": NOW_US - 1}),
    (False, {"rate_table_version": "old"}),
    (False, {"accepted_at_us": NOW_US - 1}),
    (False, {"rate_table_version": "none"}),
    (False, {"rate_key": "none"}),
    (False, {"rate_key": None}),
    (False, {"rate_key": "batches", "priority": "batch"}),
    (False, {"rate_key": "fixed"}),
    (False, DEARER),
    (False, {"cost_input_pico": 13, "cost_total_pico": 41}),
    (False, {"cost_cached_input_pico": 5, "cost_total_pico": 41}),
    (False, {"cost_output_pico": 25, "cost_total_pico": 41}),
    (False, {"cost_total_pico": 41}),
    (False, {"cost_other_pico": 1, "cost_total_pico": 41}),
    (False, {"usage_json": '{"reasoning":2'}),
    (False, {"cached_input_tokens": 12, "cost_input_pico": -4, "cost_cached_input_pico": 12}),
    (
        False,
        {
            "cached_input_tokens": -1,
            "cost_input_pico": 22,
            "cost_cached_input_pico": -1,
            "cost_total_pico": 45,
        },
    ),
    (False, {"output_tokens": -1, "cost_output_pico": -8, "cost_total_pico": 8}),
    (False, {"resolves_hash": bytes(32)}),
    (True, {"resolves_hash": bytes(32), "revision": 1}),
]


def test_led_2_a_usual_rate_and_one_that_is_read_say_the_same_of_a_cost(ledger_path):
    """Whatever rates are usual: what SQLite computes of them is what `cost_fault` says."""
    with Store.open(ledger_path) as store:
        for number, (_, fields) in enumerate(CHARGED):
            store.append([factories.receipt(number, **(EXACT | fields))]).result()
    cursor = connect_read_only(ledger_path).cursor()
    cursor.row_factory = None
    every = [(version, key) for version in ("new", "old") for key in ("fixed", "flat", "batches")]
    for seq, (exact, fields) in enumerate(CHARGED, start=1):
        for usual in ([], every[:1], list(every)):
            assert _all_exact(cursor, seq, seq, TABLES, usual) is exact, fields
    cursor.connection.close()


def test_the_rates_of_the_last_receipts_are_usual_and_no_more_than_a_few(ledger_path):
    rates = tuple(
        Rate(
            key=f"r{n}",
            input_micro_per_mtok=2,
            output_micro_per_mtok=8,
            cached_input_micro_per_mtok=1,
        )
        for n in range(USUAL_LIMIT + 2)
    )
    tables = {"new": RateTable(version="new", effective_from_us=0, currency="units", rates=rates)}
    with Store.open(ledger_path) as store:
        receipts = [
            factories.receipt(n, **(EXACT | {"rate_key": f"r{n}"})) for n in range(len(rates))
        ]
        store.append(receipts).result()
    cursor = connect_read_only(ledger_path).cursor()
    cursor.row_factory = None
    usual = []
    assert _all_exact(cursor, 1, len(rates), tables, usual)
    assert usual == [("new", f"r{n}") for n in range(2, len(rates))]
    assert _all_exact(cursor, 1, len(rates), tables, usual)
    cursor.connection.close()
