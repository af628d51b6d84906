"""How long a pass of the evaluator takes over a million receipts of an hour, and what it costs the
data plane: `python -m benchmarks.slo`.

Times the pass that evaluates every objective at one closed window, and the one that makes up for
the whole hour. Then decides and commits requests at a steady rate, with and without passes running
beside it, in a process of their own as in the server and five times as often as there, and compares
the p99. Exits 1 over either limit.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()

import msgspec

from gateway import configuration as configured
from gateway.book import Book
from gateway.control.evaluator import EVALUATOR
from gateway.control.planning import plan_pass
from gateway.demo.fleet import TENANTS, fleet_records
from gateway.desk import Desk
from gateway.management.commands.scenario import migrated
from gateway.operations.base import Refused
from gateway.operations.control import EvaluateSlos
from gateway.operations.planner import Planner
from gateway.quota import Quota
from gateway.runtime import SWITCH_SECONDS
from ledger.reading import connect_read_only
from ledger.records import ControlAction, Receipt
from ledger.rollups.projection import Rollups
from ledger.slo_control import STEP_US
from ledger.store import Store
from tests.ledger.receipts import receipt
from tests.policy_factories import request, snapshot

HOUR_US = 12 * STEP_US
END_US = 1_796_000_000_000_000 - 1_796_000_000_000_000 % HOUR_US
CLOSES_US = 150_000_000  # the fleet's longest deadline and the grace
COMMIT_ROWS = 1_024
PASS_LIMIT_S = 2.0
TURNS = 4  # without passes and with them, in turn
PASS_SECONDS = STEP_US / 5e6  # a window closes every STEP_US
SLOWER_LIMIT = 0.10


def receipts(count: int) -> Iterator[Receipt]:
    """Receipts of the hour before END_US; so many bad ones that objectives burn and act."""
    rng, base = random.Random(1), receipt(logical_model="assist")
    for number in range(count):
        status = rng.choices(("completed", "rejected", "failed"), (90, 7, 3))[0]
        served = status != "rejected"
        yield msgspec.structs.replace(
            base,
            request_id=f"req_{number:026}",
            tenant_id=rng.choice(list(TENANTS)),
            priority=rng.choices(("interactive", "normal", "batch"), (60, 25, 15))[0],
            route_id=rng.choice(("fast-v2", "fast-us-v2")) if served else None,
            status=status,
            terminal_error_code=None if status == "completed" else "CAPACITY_SHED",
            degraded_from="fast-v2" if served and rng.random() < 0.4 else None,  # an incident
            first_token_us=int(rng.lognormvariate(13.0, 0.7)) if served else None,
            queue_us=int(rng.lognormvariate(12.0, 1.5)) if served else None,
            accepted_at_us=END_US - HOUR_US + number * HOUR_US // count,
        )


def fill(path: Path, count: int) -> None:
    migrated(path)
    started = time.perf_counter()
    with Store.open(path, projections=(Rollups(),)) as store:
        store.append(fleet_records(END_US - HOUR_US)).result()
        batch: list[Receipt] = []
        for one in receipts(count):
            batch.append(one)
            if len(batch) == COMMIT_ROWS:
                store.append(batch).result()
                batch = []
        store.append(batch).result()
    print(f"filled with {count:,} receipts in {time.perf_counter() - started:.0f} s")


def passes(path: Path) -> float:
    """Seconds of the pass over one window; prints it, and that over the whole hour."""
    connection = connect_read_only(path)
    started = time.perf_counter()
    hour = plan_pass(connection, END_US + CLOSES_US)
    hour_s = time.perf_counter() - started
    with Store.open(path, projections=(Rollups(),)) as store:
        before = plan_pass(connection, END_US - STEP_US + CLOSES_US, mode="off")
        store.append(before.records).result()
    started, cpu = time.perf_counter(), time.thread_time()
    one = plan_pass(connection, END_US + CLOSES_US)
    one_s, cpu_s = time.perf_counter() - started, time.thread_time() - cpu
    connection.close()
    kinds = sorted(row.action for row in one.records if isinstance(row, ControlAction))
    print(f"one window, {one.windows} objectives, {', '.join(kinds)}: {one_s * 1e3:.0f} ms")
    print(f"  of that {cpu_s * 1e3:.0f} ms on the processor")
    print(f"the whole hour, {hour.windows} windows of objectives: {hour_s * 1e3:.0f} ms")
    return one_s


async def turn_of(
    desk: Desk, store: Store, count: int, first: int, planner: Planner | None
) -> list[float]:
    """What `decided` returns, with passes beside it where there is a planner.

    Its process runs already, as a server's does, which keeps it from one window to the next.
    """
    if planner is not None:
        await planner.prepare(EvaluateSlos(at_us=0), EVALUATOR, END_US + CLOSES_US)
    passes = asyncio.create_task(_pass_again(planner)) if planner is not None else None
    try:
        return await decided(desk, store, count, first)
    finally:
        if passes is not None and planner is not None:
            if passes.done():
                passes.result()  # it ends by a fault alone
            passes.cancel()
            await asyncio.gather(passes, return_exceptions=True)
            await planner.close()


async def decided(desk: Desk, store: Store, count: int, first: int) -> list[float]:
    """Milliseconds of each request from its arrival to its durable decision, every 5 ms one."""
    took = []
    for number in range(first, first + count):
        started = time.perf_counter()
        asked = request(
            request_id=f"bench_{number}", tenant_id="support-desk", logical_model="assist"
        )
        weighed = desk.weigh(asked, END_US + number)
        await store.commit(weighed.records)
        if weighed.hold is not None:
            desk.book.release(weighed.hold)
        took.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(0.005)
    return took


def beside(path: Path, count: int) -> tuple[float, float]:
    """(p99 in ms without passes, with passes one after the other), in alternating turns."""
    connection = connect_read_only(path)
    book = Book()
    desk = Desk(configured.load(connection), book)
    book.set_quota("support-desk", Quota(in_flight_limit=1_000), now_us=END_US, spent_pico=0)
    book.open_routes(desk.configuration.routes)
    for route_id in desk.configuration.routes:
        book.observe(snapshot(route_id, observed_at_us=END_US))
    found: dict[bool, list[float]] = {False: [], True: []}
    with Store.open(path, projections=(Rollups(),)) as store:
        for turn in range(TURNS):
            busy = bool(turn % 2)
            planner = Planner(path) if busy else None
            took = turn_of(desk, store, count, turn * count, planner)
            found[busy] += asyncio.run(took)
    connection.close()
    alone, beside = (statistics.quantiles(found[busy], n=100)[98] for busy in (False, True))
    return alone, beside


async def _pass_again(planner: Planner) -> None:
    """Passes five times as often as the server's evaluator, each with every objective due."""
    while True:
        next_at = time.perf_counter() + PASS_SECONDS
        found = await planner.prepare(EvaluateSlos(), EVALUATOR, END_US + CLOSES_US)
        if isinstance(found, Refused):
            raise SystemExit(f"the pass was refused: {found.message}")
        await asyncio.sleep(next_at - time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receipts", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=10_000, help=f"in each of {TURNS} turns")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)  # as in the server
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite3"
        fill(path, options.receipts)
        took_s = passes(path)
        alone, with_passes = beside(path, options.requests)
    print(f"decide and commit, p99: {alone:.2f} ms alone, {with_passes:.2f} ms beside passes")
    failed = []
    if took_s > PASS_LIMIT_S:
        failed.append(f"a pass took {took_s:.2f} s; the limit is {PASS_LIMIT_S} s")
    if with_passes > alone * (1 + SLOWER_LIMIT):
        failed.append(
            f"the p99 is {with_passes / alone - 1:.0%} slower; {SLOWER_LIMIT:.0%} is the limit"
        )
    for line in failed:
        print(line)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
