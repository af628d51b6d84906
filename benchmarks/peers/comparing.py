"""One whole run: all is started, measured in interleaved rounds, stopped, and our books checked.

A peer that can't be installed or started, or that dies, is named so and the run goes on.
"""

import asyncio
import contextlib
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers import fleet, ours, peers
from benchmarks.peers.driving import Door
from benchmarks.peers.processes import Group, free_port, loop_ns, stopped_after, sync_ms
from benchmarks.peers.running import (
    DidNotStart,
    Running,
    measured,
    set_pace,
    start_upstream,
    started,
)
from benchmarks.peers.values import (
    OURS,
    RELAY,
    SIMULATED,
    UPSTREAM,
    Books,
    Cell,
    Gateway,
    Load,
    Machine,
    Results,
)
from ledger.errors import LedgerError

TITLES = {
    UPSTREAM: ("straight at the upstream", "what the load generator and the upstream can do"),
    OURS: ("Weighbridge", "one process; every receipt durable, chained, in the rollups"),
    SIMULATED: ("Weighbridge, on its simulator", "the same; no HTTP upstream"),
    RELAY: ("its server alone", "Uvicorn passes bytes on: no keys, counts, decisions, receipts"),
}
RELAY_SCRIPT = Path(__file__).resolve().parents[1] / "relay.py"
PACED_US = 20_000
FULL = (
    Load(name="one", title="Whole answers of 8 tokens, 1 connection",
         connections=1, seconds=2.0, tokens=8),
    Load(name="many", title="Whole answers of 8 tokens, 32 connections",
         connections=32, seconds=3.0, tokens=8),
    Load(name="long", title="Whole answers of 8 tokens to prompts of 1,200, 32 connections",
         connections=32, seconds=2.0, tokens=8, prompts=32),
    Load(name="burst", title="Streams of 51 chunks, sent all at once, 16 connections",
         connections=16, seconds=3.0, tokens=50, stream=True),
    Load(name="paced-32", title="Streams of 51 chunks, one each 20 ms, 32 connections",
         connections=32, seconds=5.0, tokens=50, stream=True, pace_us=PACED_US),
    Load(name="paced-128", title="Streams of 51 chunks, one each 20 ms, 128 connections",
         connections=128, seconds=4.0, tokens=50, stream=True, pace_us=PACED_US),
)  # fmt: skip
SHORT = (
    Load(name="few", title="Whole answers of 8 tokens, 8 connections",
         connections=8, seconds=0.4, tokens=8),
    Load(name="small-burst", title="Streams of 51 chunks, sent all at once, 4 connections",
         connections=4, seconds=0.4, tokens=50, stream=True),
    Load(name="paced-8", title="Streams of 6 chunks, one each 20 ms, 8 connections",
         connections=8, seconds=0.3, tokens=5, stream=True, pace_us=PACED_US),
)  # fmt: skip
"""A smoke test's. Names of their own: no target and no ratio is told of smaller loads."""


class Comparison:
    """One run in a folder of its own; `say` gets a line for each step."""

    def __init__(self, folder: Path, loads: Sequence[Load], rounds: int, nice: int) -> None:
        self._folder, self._loads, self._rounds, self._nice = folder, loads, rounds, nice
        self._running: dict[str, Running] = {}
        self._absent: dict[str, str] = {}
        self._cells: dict[str, dict[str, list[Cell | None]]] = {}
        self._instances: dict[str, ours.Instance] = {}
        self._began = time.perf_counter()
        self._loops_ns, self._sync_ms = [loop_ns()], sync_ms(folder)

    async def run(self, keys: Sequence[str], *, before: bool) -> Results:
        """Measure ours, ours on the simulator where named, and the peers named.

        `before`: also our server without any vocabulary.
        """
        load_before = os.getloadavg()[0]
        without = await self._without_vocabulary() if before else (None, None)
        with contextlib.ExitStack() as stack:
            self._port = free_port()
            self._upstream = stack.enter_context(
                stopped_after(start_upstream(self._folder, self._port))
            )
            await self._start(UPSTREAM, self._upstream, Door(port=self._port, headers={}))
            for key in keys:
                await self._start_named(key, stack)
            for turn in range(self._rounds):
                for load in self._loads:
                    await self._round(turn, load)
                    self._loops_ns.append(loop_ns())
            set_pace(self._port, 0)
        say("stopped; the ledgers are checked")
        return Results(
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - self._began,
            rounds=self._rounds,
            machine=machine(load_before, self._nice, self._loops_ns, self._sync_ms),
            loads=tuple(self._loads),
            gateways=tuple(self._gateway(key) for key in (UPSTREAM, *keys)),
            books=tuple(self._books(key) for key in keys if key in self._instances),
            start_before_s=without[0],
            rss_before_mb=without[1],
        )

    async def _without_vocabulary(self) -> tuple[float | None, float | None]:
        """Return our server's time to ready and memory with a policy that names no route."""
        instance = await asyncio.to_thread(ours.prepare, self._folder / "empty", "", free_port())
        group = self._group("empty", instance.command, instance.environment, ours.ROOT)
        with stopped_after(group):
            running = await started(group, instance.door, path="/readyz")
        return running.start_s, running.rss_mb

    async def _start_named(self, key: str, stack: contextlib.ExitStack) -> None:
        folder, port = self._folder / key, free_port()
        if key in (OURS, SIMULATED):
            address = fleet.SIMULATOR if key == SIMULATED else fleet.upstream_address(self._port)
            instance = await asyncio.to_thread(ours.prepare, folder, address, port)
            self._instances[key] = instance
            command, door, environment = instance.command, instance.door, instance.environment
            where = ours.ROOT
        elif key == RELAY:
            folder.mkdir()
            command = [sys.executable, "-P", str(RELAY_SCRIPT), str(port), str(self._port)]
            door, environment, where = Door(port=port, headers={}), {}, folder
        else:
            peer = next(each for each in peers.PEERS if each.key == key)
            say(f"{peer.title} {peer.version}: installed where it isn't")
            problem = await asyncio.to_thread(peers.install, peer)
            if problem:
                self._absent[key] = problem
                say(f"{peer.title}: {problem}")
                return
            folder.mkdir()
            start = peer.start(folder, port, self._port)
            command, door, environment = list(start.command), start.door, dict(start.environment)
            where = folder
        try:
            group = self._group(key, command, environment, where)
        except OSError as error:
            self._absent[key] = f"not started: {error.strerror}"
            return
        stack.enter_context(stopped_after(group))
        await self._start(key, group, door)

    def _group(
        self, key: str, command: list[str], environment: dict[str, str], where: Path
    ) -> Group:
        return Group(
            command, log=self._folder / f"{key}.log", environment=environment, folder=where
        )

    async def _start(self, key: str, group: Group, door: Door) -> None:
        try:
            self._running[key] = await started(group, door)
        except DidNotStart as problem:
            self._absent[key] = f"not started: {problem}"
            say(f"{key}: {self._absent[key]}")
        else:
            self._cells[key] = {}
            say(f"{key}: answers after {self._running[key].start_s:.1f} s")

    async def _round(self, turn: int, load: Load) -> None:
        """Measure one load on each gateway, straight at the upstream first, then in turn."""
        set_pace(self._port, load.pace_us)
        others = [key for key in self._running if key != UPSTREAM]
        start = turn % max(1, len(others))
        for key in (UPSTREAM, *others[start:], *others[:start]):
            if key == SIMULATED and load.pace_us:
                continue  # the pace is the upstream's
            found = await self._cell(key, turn, load)
            self._cells[key].setdefault(load.name, []).append(found)
            if found is not None:
                say(
                    f"round {turn + 1}, {load.name:10} {key:22} {found.requests_per_s:9,.1f}/s "
                    f"p50 {found.p50_ms or 0:8.2f} ms, others {found.others_share:.0%}"
                )

    async def _cell(self, key: str, turn: int, load: Load) -> Cell | None:
        running = self._running[key]
        if running.group.gone:
            self._absent.setdefault(
                key, f"ended by itself in round {turn + 1}: {running.group.last_words()}"
            )
            return None
        try:
            return await measured(running, load, self._upstream)
        except OSError as error:  # TimeoutError among them
            self._absent[key] = f"took no connection in round {turn + 1} ({type(error).__name__})"
            return None

    def _gateway(self, key: str) -> Gateway:
        peer = next((each for each in peers.PEERS if each.key == key), None)
        title, note = TITLES.get(key) or (peer.title if peer else key, peer.note if peer else "")
        running = self._running.get(key)
        return Gateway(
            key=key,
            title=title,
            version=peer.version if peer else "",
            note=note,
            absent=self._absent.get(key, ""),
            start_s=running.start_s if running else None,
            rss_mb=running.rss_mb if running else None,
            cells={load: tuple(cells) for load, cells in self._cells.get(key, {}).items()},
        )

    def _books(self, key: str) -> Books:
        running = self._running.get(key)
        return books_of(key, self._instances[key], running.sent if running else 0)


def books_of(key: str, instance: ours.Instance, sent: int) -> Books:
    """Check the ledger of a stopped server that was sent so many requests."""
    try:
        found = ours.account(instance)
    except (LedgerError, sqlite3.Error) as error:  # the run's figures are still worth telling
        return Books(
            key=key, sent=sent, receipts=0, completed=0, bytes_each=0, verified="",
            problem=f"the ledger can't be checked: {error}",
        )  # fmt: skip
    return Books(
        key=key,
        sent=sent,
        receipts=found.receipts,
        completed=found.statuses.get("completed", 0),
        bytes_each=found.bytes_each,
        verified=found.verified,
        problem=found.problem(sent),
    )


def machine(load_before: float, nice: int, loops_ns: Sequence[float], durable_ms: float) -> Machine:
    info = Path("/proc/cpuinfo").read_text()
    model = next(
        (line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line),
        platform.machine(),
    )
    return Machine(
        cores=os.cpu_count() or 1,
        cpu=model,
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        python=platform.python_version(),
        kernel=platform.release().partition("-")[0],
        load_before=load_before,
        load_after=os.getloadavg()[0],
        nice=nice,
        loop_ns=(min(loops_ns), max(loops_ns)),
        sync_ms=durable_ms,
    )


def say(line: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)
