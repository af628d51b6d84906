"""An hour of mixed traffic in virtual time, in which one attempt of a hundred ends badly.

The desk, the book, the settling and the ledger are those that serve; clock and backends are
virtual. Ends are drawn from a seed: as simulated, failed in the middle, refused, or lost.
"""

import itertools
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from gateway import configuration as configured
from gateway.book import Book
from gateway.demo.fleet import TENANTS, fleet_records
from gateway.demo.replay import Replay, Running, outcome_of
from gateway.demo.traffic import arrivals, load
from gateway.desk import Desk
from gateway.providers.outcomes import Failed, Outcome, Rejected
from gateway.quota import Quota
from gateway.runtime import enter_tenants
from ledger.balances import balances
from ledger.reading import connect_read_only
from ledger.records import Tenant
from ledger.rollups.projection import Rollups
from ledger.store import Store
from ledger.verify import verify

START_US = 1_795_000_000_000_000
BAD_SHARE = 0.01
ROUNDS = 3  # each of which ends the life of a process: the book is made from the ledger again


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What became of the arrivals, by status, and what the ledger then holds."""

    arrivals: int
    statuses: dict[str, int]
    rows: int


def hour(ledger: Path, seed: int, arrivals_limit: int | None = None) -> Hour:
    """Replay the hour on the migrated, empty ledger at `ledger`; AssertionError where it is off."""
    chance, statuses = Random(seed), Counter[str]()
    every = list(itertools.islice(arrivals(load(None), seed), arrivals_limit))
    size = -(-len(every) // ROUNDS)
    with Store.open(ledger, projections=(Rollups(),)) as store:
        store.append(_fleet()).result()
    for place in range(ROUNDS):
        with Store.open(ledger, projections=(Rollups(),)) as store:
            with closing(connect_read_only(ledger)) as connection:
                book = Book()
                desk = Desk(configured.load(connection), book)
                enter_tenants(book, connection, START_US)
            book.open_routes(desk.configuration.routes)
            replay = Replay(
                desk=desk, store=store, start_us=START_US, seed=seed + place,
                first_revision=1 + place * 1_000_000,
                receipts=lambda receipt: statuses.update((receipt.status,)),
                outcomes=partial(_end, chance),
            )  # fmt: skip
            for _ in replay.run(every[place * size : (place + 1) * size]):
                pass
            assert book.in_flight() == 0
            assert all(book.held_on(route_id) == (0, 0) for route_id in desk.configuration.routes)
    return _whole(ledger, len(every), statuses)


def _end(chance: Random, replica, finished, running: Running) -> Outcome:
    outcome = outcome_of(replica, finished, running)
    if outcome.status != "completed" or chance.random() >= BAD_SHARE:
        return outcome
    if chance.random() < 0.5:
        return Failed(usage=outcome.usage, reason="PROVIDER_STREAM_WITHOUT_FINISH")
    return Rejected(
        usage=msgspec.structs.replace(outcome.usage, input_tokens=0, output_tokens=0,
                                      cached_input_tokens=0),
        reason="PROVIDER_OVERLOADED",
    )  # fmt: skip


def _whole(ledger: Path, count: int, statuses: Counter[str]) -> Hour:
    with closing(connect_read_only(ledger)) as reader:
        report = verify(reader, at_rest=True)
        assert report.faults == ()
        decisions, receipts = (
            reader.execute(f"SELECT count(*), count(DISTINCT request_id) FROM {table}").fetchone()
            for table in ("route_decision", "receipt")
        )
        assert tuple(decisions) == tuple(receipts) == (count, count)
        assert sum(statuses.values()) == count
        for column in balances(reader):
            assert column.debits_pico == column.credits_pico
            assert column.pending_pico == column.held_pico == 0
    return Hour(arrivals=count, statuses=dict(statuses), rows=report.rows)


def _fleet():
    quota = msgspec.json.encode(Quota(in_flight_limit=500)).decode()
    rows = [row for row in fleet_records(START_US - 1) if not isinstance(row, Tenant)]
    return rows + [
        Tenant(tenant_id=name, revision=1, body_json=quota, changed_at_us=0, changed_by="tests")
        for name in TENANTS
    ]
