"""`python -m benchmarks.ledger`: what the ledger's writer does on this machine.

Prints rows/s by batch, whole requests/s with many producers, the tail of an awaited commit at a
paced load, the speed of verification, and the bytes that one request takes. Beside rates by the
clock stands the CPU time of each, of records that are made already: on a machine with other work
it is the truer one, and targets are judged by it.
"""

import argparse
import asyncio
import gc
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ledger.reading import connect_read_only
from ledger.records import Record
from ledger.rollups.projection import Rollups
from ledger.store import Store
from ledger.writer import Writer
from tests import factories

ROOT = Path(__file__).resolve().parents[1]
PRODUCERS = 256
PACED_PER_SECOND = 1_000
INPUTS_BYTES = 420  # of a decision over four routes, as recorded
DECISION_BYTES = 520
BATCH_CALLERS = 128
REQUEST_US, RECEIPT_US, IMPORTED_US = 100, 40, 17  # 10,000, 25,000 and 60,000 a second
VERIFIED_US = 6.6  # of each of two processes: 300,000 rows a second
TURNS = 1_000_000
VERIFY = """
import sys
from ledger.reading import connect_read_only
from ledger.verify import verify

if __name__ == "__main__":
    report = verify(connect_read_only(sys.argv[1]))
    print(report.rows, len(report.faults))
"""


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
    print(f"a turn of a plain loop      {turn_ns():>10.0f} ns of CPU")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = Path(directory) / "ledger.sqlite3"
        migrate(path)
        numbers = iter(range(1, 10**9))
        with Store.open(path, projections=(Rollups(),)) as store:
            store.append([factories.rate_table()]).result()
            # First: after a load at full speed the disk still has that one's pages to write.
            asyncio.run(paced(store, numbers, options.seconds))
            for batch in (1, 32, 256):
                rows = options.rows if batch > 1 else options.rows // 10
                made = [factories.trace_event(next(numbers)) for _ in range(rows)]
                shown(f"rows/s, {batch:>3} a transaction", appended(store, made, batch))
            before = size_bytes(path, store)
            work = [whole_request(next(numbers)) for _ in range(options.requests)]
            spent = asyncio.run(whole_requests(store, work))
            shown(f"requests/s, {PRODUCERS} producers", spent)
            each = (size_bytes(path, store) - before) / options.requests
            print(f"bytes a request             {each:>10,.0f}")
        writer = Writer(path, (Rollups(),))
        shown("requests, writer alone", written(writer, numbers, options.requests), REQUEST_US)
        writer.close()
        with Store.open(path, projections=(Rollups(),)) as store:
            for batch, target_us in ((256, RECEIPT_US), (2_048, IMPORTED_US)):
                receipts = [factories.receipt(next(numbers)) for _ in range(options.rows)]
                spent = appended(store, receipts, batch)
                shown(f"receipts/s, {batch:>5} a commit", spent, target_us)
        verification(path)
        print(f"bytes a receipt             {receipt_bytes(path):>10,.0f}   (row and indexes)")


class Spent:
    """What some work took: by the clock, and in CPU time of this process and its children."""

    def __init__(self, number: int, wall_s: float, cpu_s: float) -> None:
        self.number, self.wall_s, self.cpu_s = number, wall_s, cpu_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.number * 1e6


class Measured:
    """A clock that was started when it was made."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), _cpu_s()

    def of(self, number: int) -> Spent:
        return Spent(number, time.perf_counter() - self._wall_s, _cpu_s() - self._cpu_s)


def _cpu_s() -> float:
    usage = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in usage)


def shown(name: str, spent: Spent, target_us: float | None = None) -> None:
    judged = ""
    if target_us is not None:
        times = spent.cpu_us / target_us
        judged = f"   at most {target_us:g}: " + ("met" if times <= 1 else f"{times:.1f} x")
    rate = spent.number / spent.wall_s
    print(f"{name:<27} {rate:>10,.0f}   {spent.cpu_us:.1f} µs of CPU each{judged}")


def turn_ns() -> float:
    """How fast the machine is now: of some tries the fastest turn of a loop, in CPU time."""

    def one() -> float:
        started = time.thread_time()
        for _ in range(TURNS):
            pass
        return (time.thread_time() - started) / TURNS * 1e9

    return min(one() for _ in range(5))


def migrate(path: Path) -> None:
    environment = {**os.environ, "WEIGHBRIDGE_VAR": str(path.parent), "WEIGHBRIDGE_DB": str(path)}
    command = [sys.executable, "manage.py", "migrate", "--database", "ledger", "--skip-checks"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)


def appended(store: Store, records: Sequence[Record], batch: int) -> Spent:
    """Records written by commits of so many; receipts with chain and rollups, an import's way."""
    measured = Measured()
    for start in range(0, len(records), batch):
        store.append(records[start : start + batch]).result()
    return measured.of(len(records))


def written(writer: Writer, numbers: Iterator[int], requests: int) -> Spent:
    """Whole requests in two commits each, of BATCH_CALLERS callers: no queue, no event loop.

    The records of a batch are made just before, as a gateway does; that isn't in the figure.
    """
    batches, wall_s, cpu_s = max(1, requests // BATCH_CALLERS), 0.0, 0.0
    for _ in range(batches):
        whole = [whole_request(next(numbers)) for _ in range(BATCH_CALLERS)]
        measured = Measured()
        for commit in zip(*whole, strict=True):
            writer.commit(commit)
            if writer.checkpoint_due(idle=False):
                writer.checkpoint()
        spent = measured.of(BATCH_CALLERS)
        wall_s, cpu_s = wall_s + spent.wall_s, cpu_s + spent.cpu_s
    return Spent(batches * BATCH_CALLERS, wall_s, cpu_s)


def whole_request(number: int) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    first, last = factories.gateway_records(number)
    texts = {"inputs_json": "i" * INPUTS_BYTES, "decision_json": "d" * DECISION_BYTES}
    return (msgspec.structs.replace(first[0], **texts), *first[1:]), last


async def whole_requests(
    store: Store, work: list[tuple[tuple[Record, ...], tuple[Record, ...]]]
) -> Spent:
    """Requests of producers that each wait for both of their commits."""
    requests = len(work)

    async def producer() -> None:
        while work:
            first, last = work.pop()
            await store.commit(first)
            await store.commit(last)

    measured = Measured()
    await asyncio.gather(*(producer() for _ in range(PRODUCERS)))
    return measured.of(requests)


async def paced(store: Store, numbers: Iterator[int], seconds: float) -> None:
    """Awaited commits of one receipt each, started on a clock and not when the last one ended."""
    count = int(seconds * PACED_PER_SECOND)
    records = [factories.receipt(next(numbers)) for _ in range(count)]
    waits_s: list[float] = []
    gc.collect()
    gc.freeze()  # as the server does: a pause to look through this program's lists is no commit's

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
    """By a process of its own: what helps it begins as it did, and this one loads all of Django."""
    measured = Measured()
    command = [sys.executable, "-c", VERIFY, str(path)]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rows, faults = map(int, said.split())
    shown(f"verified, {faults} faults", measured.of(rows), VERIFIED_US)


if __name__ == "__main__":
    main()
