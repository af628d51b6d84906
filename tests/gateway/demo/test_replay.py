"""Some hundreds of arrivals through the whole path in virtual time, calm and crowded."""

import contextlib
from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from gateway import configuration as configured
from gateway.book import Book
from gateway.demo.replay import Replay
from gateway.demo.traffic import arrivals, load
from gateway.desk import Desk
from gateway.replaying import Replayer, tally
from gateway.runtime import enter_tenants
from ledger.carrying import source
from ledger.records import Settlement
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests.server_fixtures import Fleet
from tests.system.watching import (
    assert_each_decision_has_one_receipt,
    assert_sound,
    one,
    open_money_pico,
)

START_US = 1_900_000_000_000_000
REQUESTS = 300
SEED = 7


def some_arrivals(hurry: int):
    """The first requests of the seeded hour, arriving `hurry` times as fast."""
    first = islice(arrivals(load(None), SEED), REQUESTS)
    return [replace(arrival, at_us=arrival.at_us // hurry) for arrival in first]


def replayed(fleet: Fleet, hurry: int):
    """(receipts in the order of their ends, the chain's last hash, the book) of a replay."""
    receipts, book = [], Book()
    with (
        Store.open(fleet.ledger, projections=(Rollups(),)) as store,
        contextlib.closing(fleet.reader()) as reader,
    ):
        desk = Desk(configured.load(reader), book)
        enter_tenants(book, reader, START_US)
        for route_id in desk.configuration.routes:
            book.open_route(route_id)
        replay = Replay(
            desk=desk, store=store, start_us=START_US, seed=SEED, first_revision=1,
            receipts=receipts.append,
        )  # fmt: skip
        assert list(replay.run(some_arrivals(hurry))) == list(range(1, REQUESTS + 1))
        store.flush()
        return receipts, store.head.entry_hash, book


@pytest.mark.parametrize("hurry", [1, 40], ids=["calm", "crowded"])
def test_each_arrival_ends_with_one_receipt_and_the_ledger_proves_it(fleet: Fleet, hurry: int):
    receipts, _, book = replayed(fleet, hurry)
    assert len({receipt.request_id for receipt in receipts}) == len(receipts) == REQUESTS
    statuses = Counter(receipt.status for receipt in receipts)
    assert statuses["completed"] > 50
    assert set(statuses) <= {"completed", "rejected", "cancelled"}
    assert (statuses["rejected"] > 30) == (hurry > 1), statuses
    assert {receipt.counted_by for receipt in receipts} == {"trace"}
    assert (book.in_flight(), book.kv_held_tokens(), book.pending_pico()) == (0, 0, 0)

    with contextlib.closing(fleet.reader()) as reader:
        assert_each_decision_has_one_receipt(reader)
        assert_sound(reader)
        assert open_money_pico(reader) == 0
        accepted = REQUESTS - statuses["rejected"]
        assert one(reader, f"SELECT count(*) FROM {source(Settlement)}") == accepted
        compared = tally(Replayer(reader).all(), keep=1)
        assert (compared.identical, compared.total) == (REQUESTS, REQUESTS)


def test_the_parts_of_each_first_token_add_up_to_it(fleet: Fleet):
    receipts, _, _ = replayed(fleet, 40)
    started = [receipt for receipt in receipts if receipt.first_token_us is not None]
    assert len(started) > 50
    for receipt in started:
        parts = (
            receipt.queue_us, receipt.prefill_us, receipt.first_decode_us,
            receipt.first_byte_network_us,
        )  # fmt: skip
        assert sum(parts) == receipt.first_token_us <= receipt.e2e_us


def test_the_same_seed_gives_the_same_chain_to_the_byte(fleet_template: Fleet, tmp_path):
    found = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        found.append(replayed(fleet_template.copy_to(folder), 40))
    (receipts, entry_hash, _), (again, hash_again, _) = found
    assert receipts == again
    assert entry_hash == hash_again
