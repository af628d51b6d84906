"""A seeded storm over the real store and book; the long form is `python -m tests.crashes`."""

import random

import pytest

from ledger import store as store_module
from ledger import write_ahead
from ledger.reading import connect_read_only, fetch
from tests.crashes import disk
from tests.crashes.world import run

STEPS = 80


@pytest.fixture(autouse=True)
def upkeep_as_it_was(monkeypatch):
    """The simulation decides when the log is checkpointed; afterwards the store does again."""
    monkeypatch.setattr(store_module, "IDLE_WAIT_S", store_module.IDLE_WAIT_S)
    for name in ("PAGES_BUSY", "PAGES_IDLE"):
        monkeypatch.setattr(write_ahead, name, getattr(write_ahead, name))


@pytest.mark.parametrize("seed", [1, 20261129])
def test_led_1_4_6_7_money_and_chain_hold_after_every_step_of_a_storm(
    ledger_template, tmp_path, seed
):
    """Kills between any two writes, duplicates, reordering, clock jumps: see World.check."""
    print(f"seed {seed}")
    world = run(ledger_template, tmp_path, seed=seed, steps=STEPS)
    world.close()
    connection = connect_read_only(world.ledger)
    for shared, alone in (
        ("route_decision WHERE attempt_kind IS NOT NULL", "attempt"),
        ("receipt WHERE closes = 1", "settlement"),
    ):
        for rows in (shared, alone):
            assert fetch(connection, f"SELECT count(*) FROM {rows}")[0][0] > 5, rows
    connection.close()
    assert world.lives > 2
    assert world.happened["admit"] > 10


def test_the_same_seed_is_the_same_storm(ledger_template, tmp_path):
    ends = []
    for name in ("first", "second"):
        world = run(ledger_template, tmp_path / name, seed=7, steps=25)
        world.close()
        ends.append((world.store.head, world.happened, world.now_us))
    assert ends[0] == ends[1]


def test_a_kill_leaves_every_byte_up_to_a_write_and_none_after_it():
    before, after = disk.Files(b"m" * 8192, b"old log"), disk.Files(b"m" * 8192, b"new log, longer")
    left = {disk.killed_in_commit(before, after, random.Random(n)).log for n in range(200)}
    assert {b"old log", b"new log", b"new log, longer", b"nld log"} <= left
    copied = disk.Files(b"M" * 8192, b"log")
    before = disk.Files(b"m" * 8192, b"log")
    mains = {disk.killed_in_checkpoint(before, copied, random.Random(n)).main for n in range(50)}
    assert mains == {b"m" * 8192, b"M" * 4096 + b"m" * 4096, b"M" * 8192}
