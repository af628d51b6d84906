"""`python -m benchmarks.peers --growth RECEIPTS`: what a request costs beside a full ledger.

Two of our servers run, one on an empty ledger and one on a copy of a ledger of so many receipts,
which is filled first and kept; they are loaded in turns, and each figure is the median of the
rounds' ratios.
"""

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop

from benchmarks import seed
from benchmarks.peers import fleet, ours
from benchmarks.peers.comparing import books_of, machine, say
from benchmarks.peers.paging import number, replaced, table
from benchmarks.peers.processes import Group, free_port, loop_ns, stopped_after, sync_ms
from benchmarks.peers.running import measured, start_upstream, started
from benchmarks.peers.summing import ratio
from benchmarks.peers.values import Books, Cell, Load, Machine
from simulator.report import write_whole

LIMIT = 1.2  # times as much, at most
LOADS = (
    Load(name="one", title="1 connection", connections=1, seconds=3.0, tokens=8),
    Load(name="many", title="32 connections", connections=32, seconds=4.0, tokens=8),
)
FIGURES = (("p50 ms", "p50_ms"), ("p99 ms", "p99_ms"), ("CPU µs", "cpu_us"))
BEGINS = "<!-- growth: written by `python -m benchmarks.peers --growth` -->"
ENDS = "<!-- /growth -->"
EMPTY, FULL = "empty", "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of both, medians; `times` is the median of the rounds' ratios."""

    load: str
    what: str
    empty: float | None
    full: float | None
    times: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    at: str
    receipts: int
    file_gb: float
    rounds: int
    machine: Machine
    start_s: tuple[float, float]  # of the empty one and of the full one
    rss_mb: tuple[float, float]
    compared: tuple[Compared, ...]
    books: tuple[Books, ...]


def measure(var: Path, receipts: int, rounds: int, nice: int) -> Growth:
    source = seeded(var, receipts)
    with tempfile.TemporaryDirectory(dir=var) as folder:
        return uvloop.run(grown(Path(folder), source, receipts, rounds, nice))


def tell(growth: Growth, var: Path, docs: Path | None) -> None:
    """Print, and write JSON and, where there is a folder for it, the page's part."""
    block = told(growth)
    print(block)
    json = msgspec.json.format(msgspec.json.encode(growth), indent=1).decode() + "\n"
    write_whole(var / "growth.json", json)
    if docs is not None:
        page = docs / "benchmarks.md"
        write_whole(page, replaced(page.read_text(), block, BEGINS, ENDS))


def seeded(var: Path, receipts: int) -> Path:
    """Return a ledger of so many receipts, up to the day on which it was made."""
    ledger = var / f"growth-{receipts}" / "ledger.sqlite3"
    if not ledger.exists():
        say(f"a ledger of {receipts:,} receipts is made; it is kept for the next time")
        say(seed.told(seed.make(ledger, receipts, end_us=time.time_ns() // 1_000)))
    return ledger


async def grown(folder: Path, source: Path, receipts: int, rounds: int, nice: int) -> Growth:
    load_before, port = os.getloadavg()[0], free_port()
    address = fleet.upstream_address(port)
    instances = {EMPTY: ours.prepare(folder / EMPTY, address, free_port())}
    (folder / FULL).mkdir()
    say(f"copying {source.stat().st_size / 1e9:.1f} GB")
    shutil.copyfile(source, folder / FULL / "ledger.sqlite3")
    instances[FULL] = ours.prepare(folder / FULL, address, free_port())
    cells: dict[tuple[str, str], list[Cell]] = {}
    loops_ns, durable_ms = [loop_ns()], sync_ms(folder)
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(stopped_after(start_upstream(folder, port)))
        running = {}
        for key, instance in instances.items():
            group = Group(
                instance.command,
                log=folder / f"{key}.log",
                environment=instance.environment,
                folder=ours.ROOT,
            )
            stack.enter_context(stopped_after(group))
            running[key] = await started(group, instance.door)
            say(f"{key}: answers after {running[key].start_s:.1f} s")
        for turn in range(rounds):
            for load in LOADS:
                for key in (EMPTY, FULL) if turn % 2 == 0 else (FULL, EMPTY):
                    cell = await measured(running[key], load, upstream)
                    cells.setdefault((load.name, key), []).append(cell)
                    loops_ns.append(loop_ns())
                    say(f"round {turn + 1}, {load.name} {key:6} {cell.requests_per_s:,.0f}/s")
        rss_mb = {key: each.group.rss_mb() for key, each in running.items()}
    return Growth(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        receipts=receipts,
        file_gb=source.stat().st_size / 1e9,
        rounds=rounds,
        machine=machine(load_before, nice, loops_ns, durable_ms),
        start_s=(running[EMPTY].start_s, running[FULL].start_s),
        rss_mb=(rss_mb[EMPTY], rss_mb[FULL]),
        compared=tuple(
            compared(load, what, name, cells[load.name, EMPTY], cells[load.name, FULL])
            for load in LOADS
            for what, name in FIGURES
        ),
        books=tuple(
            books_of(key, each, running[key].sent + (receipts if key == FULL else 0))
            for key, each in instances.items()
        ),
    )


def compared(load: Load, what: str, name: str, empty: list[Cell], full: list[Cell]) -> Compared:
    """Return one figure of both: medians, and the median of the rounds' ratios."""
    ratios = [
        found
        for without, beside in zip(empty, full, strict=True)
        if (found := ratio(getattr(beside, name), getattr(without, name))) is not None
    ]

    def middle(cells: list[Cell]) -> float | None:
        found = [value for each in cells if (value := getattr(each, name)) is not None]
        return statistics.median(found) if found else None

    return Compared(
        load=load.title,
        what=what,
        empty=middle(empty),
        full=middle(full),
        times=statistics.median(ratios) if ratios else None,
    )


def told(growth: Growth) -> str:
    """Return the page's part: figures of both, ratios, and whether each keeps to the limit."""
    rows = [
        (
            each.load,
            each.what,
            number(each.empty),
            number(each.full),
            "–" if each.times is None else f"{each.times:.2f} ×",
            "–" if each.times is None else ("met" if each.times <= LIMIT else "**missed**"),
        )
        for each in growth.compared
    ]
    books = "; ".join(
        f"{each.key}: {each.problem or f'{each.receipts:,} receipts, sound'}"
        for each in growth.books
    )
    where = growth.machine
    return "\n\n".join(
        (
            f"{growth.at}, {where.cores} cores ({where.cpu}), load {where.load_before:.1f} before "
            f"and {where.load_after:.1f} after, {growth.rounds} rounds in turns. "
            f"{growth.receipts:,} receipts, {growth.file_gb:.1f} GB. First answer after "
            f"{growth.start_s[0]:.1f} s and {growth.start_s[1]:.1f} s, resident memory at the end "
            f"{growth.rss_mb[0]:.0f} MB and {growth.rss_mb[1]:.0f} MB.",
            table(("", "", "empty", "full", "times", f"at most {LIMIT} ×"), rows),
            f"The books afterwards: {books}.",
        )
    )
