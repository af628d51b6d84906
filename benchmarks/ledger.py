"""`python -m benchmarks.ledger`: what the ledger's writer does on this machine.

Prints rows/s by batch, whole requests/s with many producers, the tail of an awaited commit at a
paced load, the speed of verification, and the bytes that one request takes.
"""

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ledger.reading import connect_read_only
from ledger.records import Record
from ledger.rollups.projection import Rollups
from ledger.store import Store
from ledger.verify import verify
from tests import factories

ROOT = Path(__file__).resolve().parents[1]
PRODUCERS = 256
PACED_PER_SECOND = 1_000
INPUTS_BYTES = 420  # of a decision over four routes, as recorded
DECISION_BYTES = 520


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows for each batch size")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the paced load")
    parser.add_argument("--directory", type=Path, help="where the ledger is written")
    parser.add_argument("--large", action="store_true", help="reads over --receipts receipts")
    parser.add_argument("--receipts", type=int, default=10_000_000, help="for --large")
    parser.add_argument("--ledger", type=Path, help="for --large: one that benchmarks.seed made")
    options = parser.parse_args()
    if options.large:
        from benchmarks import ledger_reads  # needs more than the writer's figures do

        folder = options.directory or ROOT / "var" / "bench"
        path = options.ledger or folder / f"reads-{options.receipts}.sqlite3"
        ledger_reads.large(path, options.receipts)
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = Path(directory) / "ledger.sqlite3"
        migrate(path)
        with Store.open(path, projections=(Rollups(),)) as store:
            store.append([factories.rate_table()]).result()
            numbers = iter(range(1, 10**9))
            for batch in (1, 32, 256):
                rows = options.rows if batch > 1 else options.rows // 10
                with cpu(rows) as spent:
                    rate = rows_per_second(store, numbers, batch, rows)
                print(f"rows/s, {batch:>3} a transaction   {rate:>10,.0f}   {spent}")
            before = size_bytes(path, store)
            with cpu(options.requests) as spent:
                rate = asyncio.run(requests_per_second(store, numbers, options.requests))
            what = "2 rows, 2 commits each, with rollups"
            print(f"requests/s, {PRODUCERS} producers  {rate:>10,.0f}   {spent} ({what})")
            each = (size_bytes(path, store) - before) / options.requests
            print(f"bytes a request             {each:>10,.0f}")
            asyncio.run(paced(store, numbers, options.seconds))
            for batch in (256, 2_048):
                with cpu(options.rows) as spent:
                    rate = receipts_per_second(store, numbers, batch, options.rows)
                print(f"receipts/s, {batch:>5} a commit   {rate:>10,.0f}   {spent}")
        verification(path)
        print(f"bytes a receipt             {receipt_bytes(path):>10,.0f}   (row and indexes)")


class Spent:
    """CPU time of this process over some work, its threads and its preparation with it."""

    def __init__(self, number: int) -> None:
        self.number, self.seconds = number, 0.0

    def __str__(self) -> str:
        return f"{self.seconds / self.number * 1e6:.0f} µs of CPU each"


@contextmanager
def cpu(number: int) -> Iterator[Spent]:
    spent, started = Spent(number), time.process_time()
    yield spent
    spent.seconds = time.process_time() - started


def migrate(path: Path) -> None:
    environment = {**os.environ, "WEIGHBRIDGE_VAR": str(path.parent), "WEIGHBRIDGE_DB": str(path)}
    command = [sys.executable, "manage.py", "migrate", "--database", "ledger", "--skip-checks"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)


def rows_per_second(store: Store, numbers: Iterator[int], batch: int, rows: int) -> float:
    calls = [
        [factories.trace_event(next(numbers)) for _ in range(batch)] for _ in range(rows // batch)
    ]
    started = time.perf_counter()
    for call in calls:
        store.append(call).result()
    return len(calls) * batch / (time.perf_counter() - started)


def receipts_per_second(store: Store, numbers: Iterator[int], batch: int, rows: int) -> float:
    """Receipts alone, with chain and rollups, all of one quarter hour: an import's commits."""
    calls = [[factories.receipt(next(numbers)) for _ in range(batch)] for _ in range(rows // batch)]
    started = time.perf_counter()
    for call in calls:
        store.append(call).result()
    return len(calls) * batch / (time.perf_counter() - started)


def whole_request(number: int) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    first, last = factories.gateway_records(number)
    texts = {"inputs_json": "i" * INPUTS_BYTES, "decision_json": "d" * DECISION_BYTES}
    return (msgspec.structs.replace(first[0], **texts), *first[1:]), last


async def requests_per_second(store: Store, numbers: Iterator[int], requests: int) -> float:
    work = [whole_request(next(numbers)) for _ in range(requests)]

    async def producer() -> None:
        while work:
            first, last = work.pop()
            await store.commit(first)
            await store.commit(last)

    started = time.perf_counter()
    await asyncio.gather(*(producer() for _ in range(PRODUCERS)))
    return requests / (time.perf_counter() - started)


async def paced(store: Store, numbers: Iterator[int], seconds: float) -> None:
    """Awaited commits of one receipt each, started on a clock and not when the last one ended."""
    count = int(seconds * PACED_PER_SECOND)
    records = [factories.receipt(next(numbers)) for _ in range(count)]
    waits_s: list[float] = []

    async def one(record: Record, due: float) -> None:
        await store.commit([record])
        waits_s.append(time.perf_counter() - due)

    started = time.perf_counter()
    tasks = []
    for number, record in enumerate(records):
        due = started + number / PACED_PER_SECOND
        delay = due - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        tasks.append(asyncio.create_task(one(record, due)))
    await asyncio.gather(*tasks)
    waits_s.sort()
    shown = "   ".join(
        f"{name} {waits_s[max(0, -(-count * rank // 1000) - 1)] * 1e3:.2f} ms"
        for name, rank in (("p50", 500), ("p99", 990), ("p99.9", 999))
    )
    print(f"commit at {PACED_PER_SECOND:,}/s            {shown}")


def size_bytes(path: Path, store: Store) -> int:
    """The file's size with everything in it."""
    store.flush()
    connection = connect_read_only(path)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    page = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    return int((pages - free) * page)


def receipt_bytes(path: Path) -> float:
    """Bytes of the receipts' table and indexes, each, where this SQLite can tell; else 0."""
    connection = connect_read_only(path)
    sql = (
        "SELECT sum(pgsize) * 1.0 / (SELECT count(*) FROM receipt) FROM dbstat "
        "WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name = 'receipt')"
    )
    try:
        return float(connection.execute(sql).fetchone()[0])
    except sqlite3.OperationalError:  # a SQLite without dbstat: not measured is not nought
        return float("nan")
    finally:
        connection.close()


def verification(path: Path) -> None:
    connection = connect_read_only(path)
    started = time.perf_counter()
    report = verify(connection)
    seconds = time.perf_counter() - started
    connection.close()
    found = f"({report.rows:,} rows, {len(report.faults)} faults)"
    print(f"verified rows/s             {report.rows / seconds:>10,.0f}   {found}")


if __name__ == "__main__":
    main()
