"""Blocks checked at once say what the walk over their rows says (LED-7)."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.block_pool import checked_blocks
from ledger.blocks import check_block
from ledger.chain import BLOCK_ROWS, Builder, checkpoint_of
from ledger.reading import connect_read_only
from ledger.records import RECORDS
from ledger.store import Store
from tests import factories
from tests.ledger.tampering import row_faults, tamper, verified

ROWS = 2 * BLOCK_ROWS + 100


@pytest.fixture
def long_ledger(ledger_path):
    """Two whole blocks and a part of one, of trace events alone."""
    with Store.open(ledger_path) as store:
        store.append([factories.trace_event(n) for n in range(ROWS)]).result()
        assert store.head.size == ROWS
    return ledger_path


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
