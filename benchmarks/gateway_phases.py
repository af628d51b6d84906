"""`python -m benchmarks.gateway_phases`: where a request's CPU goes, phase by phase.

All in one process and on one thread but the ledger's writer: uvicorn's protocol is fed with bytes,
so that no client and no socket of one is counted; the upstream is the benchmarks' own, on the same
event loop (its share is a phase), or the simulator. The ledger is a file of its own, with every
receipt durable. Times are CPU of the thread, so that a busy machine falsifies them less than it
does a rate. Blocks that nothing watches tell the whole and, in between, watched ones the phases,
without what the watching costs; of each the least is shown. What no phase covers is in "the rest":
the event loop, its tasks and timers.
"""

import argparse
import asyncio
import gc
import inspect
import itertools
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from pathlib import Path
from types import coroutine
from typing import Any, cast

import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

from benchmarks import upstream
from benchmarks.peers import fleet, ours
from gateway import desk, driving, journey, metrics
from gateway.api import answers, calls, lookups, wire
from gateway.api.application import Application, api_application
from gateway.api.http import Request
from gateway.api.ports import Ports
from gateway.book import Book
from gateway.clock import SystemClock
from gateway.connections import GuardedProtocol
from gateway.providers.http_attempt import HttpAttempt
from gateway.providers.http_connection import Connection
from gateway.providers.http_provider import HttpProvider
from gateway.providers.simulator import SimulatorProvider
from gateway.runtime import Runtime
from gateway.tokenizers import registry
from ledger.store import Store
from tests.ledger_fixtures import migrate_ledger

BLOCK, WARM_UP = 200, 400
GC_THRESHOLDS = (10_000, 20, 50)  # those of gateway.asgi, which needs Django


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulator", action="store_true", help="instead of the HTTP upstream")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=8, help=f"of {BLOCK} requests each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.sqlite3"
        migrate_ledger(ledger)
        uvloop.run(measure(ledger, options))


class Phases:
    """CPU by phase of the thread that it is made on; a phase called by another counts alone.

    A coroutine counts for as long as it runs, not while it waits.
    """

    def __init__(self) -> None:
        self._spent_ns: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._called: dict[str, int] = {}  # how many watched calls a phase's own ones made
        self._within: list[tuple[int, int]] = []  # of the calls under way: ns and number of others
        self._watched: list[tuple[Any, str, Any, Any]] = []

    def cleared(self) -> None:
        for counts in (self._spent_ns, self._calls, self._called):
            counts.update(dict.fromkeys(counts, 0))

    def net_us(self, watching_us: float) -> dict[str, float]:
        """Return each phase's CPU since they were cleared, without what watching has cost.

        `watching_us` is that of all calls; half of each is inside of what is timed, half around it.
        """
        half_us = watching_us / max(1, sum(self._calls.values())) / 2
        return {
            phase: ns / 1_000 - half_us * (self._calls[phase] + self._called[phase])
            for phase, ns in self._spent_ns.items()
        }

    def watch(self, owner: Any, name: str, phase: str) -> None:
        """Count a function of a class or module as part of a phase, while they are `on`."""
        whole: Callable[..., Any] = getattr(owner, name)
        for counts in (self._spent_ns, self._calls, self._called):
            counts.setdefault(phase, 0)

        @wraps(whole)
        def watched(*args: Any, **fields: Any) -> Any:
            began_ns = self._begin()
            try:
                return whole(*args, **fields)
            finally:
                self._end(phase, began_ns)

        @wraps(whole)
        def stepped(*args: Any, **fields: Any) -> Any:
            return self._steps(whole(*args, **fields), phase)

        taken = stepped if inspect.iscoroutinefunction(whole) else watched
        self._watched.append((owner, name, whole, taken))

    def on(self) -> None:
        for owner, name, _, taken in self._watched:
            setattr(owner, name, taken)

    def off(self) -> None:
        for owner, name, whole, _ in self._watched:
            setattr(owner, name, whole)

    @coroutine
    def _steps(self, whole: Coroutine[Any, Any, Any], phase: str) -> Generator[Any, Any, Any]:
        step, value = whole.send, None
        while True:
            began_ns = self._begin()
            try:
                waited_for = step(value)
            except StopIteration as over:
                return over.value
            finally:
                self._end(phase, began_ns)
            try:
                step, value = whole.send, (yield waited_for)
            except BaseException as fault:  # a cancel, passed on to where it waits
                step, value = whole.throw, fault

    def _begin(self) -> int:
        self._within.append((0, 0))
        return time.thread_time_ns()

    def _end(self, phase: str, began_ns: int) -> None:
        took_ns = time.thread_time_ns() - began_ns
        others_ns, others = self._within.pop()
        self._spent_ns[phase] += took_ns - others_ns
        self._calls[phase] += 1
        self._called[phase] += others
        if self._within:
            others_ns, others = self._within[-1]
            self._within[-1] = others_ns + took_ns, others + 1


def phases() -> Phases:
    found = Phases()
    for owner, name, phase in (
        (GuardedProtocol, "data_received", "request's bytes, its task"),
        (Application, "__call__", "table, key"),
        (Request, "body", "body"), (wire, "decoded_body", "body"), (wire, "chat_request", "body"),
        (calls.Calls, "__call__", "the call"),
        (calls, "read_budget", "what is asked"), (calls, "submissions", "what is asked"),
        (calls, "trace_sent", "what is asked"),
        (registry, "_counts", "token counts"),
        (journey.Journey, "admit_together", "admission"),
        (desk, "decide", "decide"),
        (desk.Desk, "weigh", "weigh, and its records"),
        (Store, "commit", "hand over to the writer"),
        (driving.Driver, "drive", "the driver"),
        (HttpProvider, "start", "provider call"), (SimulatorProvider, "start", "provider call"),
        (Connection, "_told", "backend's bytes"),
        (HttpAttempt, "_take", "chunks of the provider"),
        (driving, "counted", "settle"), (driving, "receipt_of", "settle"),
        (driving, "attempt_records", "settle"), (Book, "settle", "settle"),
        (metrics, "request_ended", "metrics"),
        (lookups.Lookups, "receipt", "receipt as JSON"),
        (answers.Chunks, "piece", "answer's bytes"), (answers.Chunks, "last", "answer's bytes"),
        (Request, "start", "answer's way out"), (Request, "write", "answer's way out"),
        (upstream.Connection, "_answer", "(the upstream's own)"),
    ):  # fmt: skip
        found.watch(owner, name, phase)
    return found


class Wire(asyncio.Transport):
    """What uvicorn writes to; `answered` is called at the end of each, with "" for a good one."""

    def __init__(self, answered: Callable[[str], None]) -> None:
        super().__init__()
        self._answered, self._parts = answered, b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def write(self, data: Any) -> None:
        self._parts += data
        head, ended, body = self._parts.partition(b"\r\n\r\n")
        _, found, rest = head.partition(b"content-length: ")
        length = int(rest.partition(b"\r\n")[0]) if found else None
        if ended and (len(body) == length or (length is None and data.endswith(b"0\r\n\r\n"))):
            self._parts = b""
            self._answered("" if head.startswith(b"HTTP/1.1 200") else f"{head[:40]!r}")


async def measure(ledger: Path, options: argparse.Namespace) -> None:
    loop, state, found = asyncio.get_running_loop(), upstream.State(), phases()
    server = await loop.create_server(lambda: upstream.Connection(state), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = fleet.SIMULATOR if options.simulator else fleet.upstream_address(port)
    instance = ours.configured(ledger.parent, address, 1)
    request = instance.door.request(options.tokens, stream=options.stream)
    runtime = Runtime(ledger=ledger, clock=SystemClock(), secret="-", time_scale=ours.TIME_SCALE)
    await runtime.start()
    api = api_application(cast(Ports, runtime))
    config = Config(
        api, access_log=False, log_config=None, lifespan="off", interface="asgi3",
        proxy_headers=False,
    )  # fmt: skip
    config.load()
    gc.collect()
    gc.freeze()  # as the server does
    gc.set_threshold(*GC_THRESHOLDS)
    left = open_ones = 0
    numbers = itertools.count()
    over = loop.create_future()

    def connection() -> Callable[[], None]:
        protocol = GuardedProtocol(config, ServerState(), {})

        def ask() -> None:
            nonlocal left
            if left:
                left -= 1
                protocol.data_received(request.numbered(next(numbers)))

        def answered(problem: str) -> None:
            nonlocal open_ones
            open_ones -= 1
            if problem:
                over.set_exception(SystemExit(f"a request failed: {problem}"))
            elif open_ones:
                loop.call_soon(ask)
            else:
                over.set_result(None)

        protocol.connection_made(Wire(answered))
        return ask

    asks = [connection() for _ in range(options.connections)]
    whole_us = watched_us = float("inf")
    net_us: dict[str, float] = {}
    for number, size in enumerate((WARM_UP, *[BLOCK] * 2 * options.blocks)):
        watching = number > 0 and number % 2 == 0
        if watching:
            found.cleared()
            found.on()
        over, left, open_ones = loop.create_future(), size, size
        began_ns = time.thread_time_ns()
        for ask in asks:
            loop.call_soon(ask)
        await over
        found.off()
        took_us = (time.thread_time_ns() - began_ns) / 1_000
        if watching and took_us < watched_us:
            watched_us, net_us = took_us, found.net_us(took_us - whole_us)
        elif number and not watching:
            whole_us = min(whole_us, took_us)
    for phase, cpu_us in {**net_us, "the rest": whole_us - sum(net_us.values())}.items():
        print(f"{phase:28}{cpu_us / BLOCK:>9.1f} µs{cpu_us / whole_us:>8.1%}")
    print(f"{'whole':28}{whole_us / BLOCK:>9.1f} µs{1:>8.1%}")
    await runtime.stop()
    server.close()


if __name__ == "__main__":
    main()
