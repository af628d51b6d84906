"""`python -m benchmarks.gateway_phases`: where a request's CPU goes, phase by phase.

All in one process and on one thread but the ledger's writer: uvicorn's protocol is fed with bytes,
so that no client and no socket of one is counted; the upstream is the benchmarks' own, on the same
event loop (its share is a phase), or the simulator. The ledger is a file of its own, with every
receipt durable. Times are CPU of the thread, so that a busy machine falsifies them less than it
does a rate; the least of several blocks is shown. The phases are synchronous functions; what they
don't cover is in "the rest": event loop, HTTP, tasks and timers.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, cast

import uvloop
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from benchmarks import upstream
from benchmarks.peers import fleet, ours
from gateway import desk, driving, metrics
from gateway.api import answers, lookups, wire
from gateway.api.application import api_application
from gateway.api.ports import Ports
from gateway.book import Book
from gateway.clock import SystemClock
from gateway.providers.http_attempt import HttpAttempt
from gateway.providers.http_provider import HttpProvider
from gateway.providers.simulator import SimulatorProvider
from gateway.runtime import Runtime
from gateway.tokenizers import registry
from ledger.store import Store
from tests.ledger_fixtures import migrate_ledger

BLOCK, WARM_UP = 200, 400


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
    """CPU by phase of the thread that it is made on; a phase called by another counts alone."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, int] = {}
        self._within: list[int] = []

    def watch(self, owner: Any, name: str, phase: str) -> None:
        """Count a function of a class or module as part of a phase from now on."""
        whole: Callable[..., Any] = getattr(owner, name)
        self.spent_ns.setdefault(phase, 0)

        @wraps(whole)
        def watched(*args: Any, **fields: Any) -> Any:
            self._within.append(0)
            began_ns = time.thread_time_ns()
            try:
                return whole(*args, **fields)
            finally:
                took_ns = time.thread_time_ns() - began_ns
                self.spent_ns[phase] += took_ns - self._within.pop()
                if self._within:
                    self._within[-1] += took_ns

        setattr(owner, name, watched)


def phases() -> Phases:
    found = Phases()
    for owner, name, phase in (
        (wire, "decoded_body", "body"), (wire, "chat_request", "body"),
        (registry, "_counts", "token counts"),
        (desk, "decide", "decide"),
        (desk.Desk, "weigh", "weigh, and its records"),
        (Store, "_enqueue", "hand over to the writer"),
        (HttpProvider, "start", "provider call"), (SimulatorProvider, "start", "provider call"),
        (HttpAttempt, "_take", "chunks of the provider"),
        (driving.Driver, "_piece", "pieces"),
        (driving, "counted", "settle"), (driving, "receipt_of", "settle"),
        (driving, "attempt_records", "settle"), (Book, "settle", "settle"),
        (metrics, "request_ended", "metrics"),
        (lookups.Lookups, "receipt", "receipt as JSON"),
        (answers.Chunks, "piece", "answer's bytes"), (answers.Chunks, "last", "answer's bytes"),
        (upstream.Connection, "data_received", "(the upstream's own)"),
    ):  # fmt: skip
        found.watch(owner, name, phase)
    return found


class Wire(asyncio.Transport):
    """What uvicorn writes to; `answered` is called at the end of each response."""

    def __init__(self, answered: Callable[[], None]) -> None:
        super().__init__()
        self._answered, self._parts = answered, b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self._parts += data
        head, ended, body = self._parts.partition(b"\r\n\r\n")
        _, found, rest = head.partition(b"content-length: ")
        length = int(rest.partition(b"\r\n")[0]) if found else None
        if ended and (len(body) == length or (length is None and data.endswith(b"0\r\n\r\n"))):
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"a request failed: {head[:40]!r}")
            self._parts = b""
            self._answered()


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
    config = Config(api, access_log=False, log_config=None, lifespan="off", interface="asgi3")
    config.load()
    left = open_ones = 0
    over = loop.create_future()

    def connection() -> Callable[[], None]:
        protocol = HttpToolsProtocol(config, ServerState(), {})

        def ask() -> None:
            nonlocal left
            if left:
                left -= 1
                protocol.data_received(request)

        def answered() -> None:
            nonlocal open_ones
            open_ones -= 1
            if open_ones:
                loop.call_soon(ask)
            else:
                over.set_result(None)

        protocol.connection_made(Wire(answered))
        return ask

    asks = [connection() for _ in range(options.connections)]
    blocks: list[dict[str, float]] = []
    for size in (WARM_UP, *[BLOCK] * options.blocks):
        over, left, open_ones = loop.create_future(), size, size
        before, began_ns = dict(found.spent_ns), time.thread_time_ns()
        for ask in asks:
            loop.call_soon(ask)
        await over
        whole_us = (time.thread_time_ns() - began_ns) / 1_000 / size
        spent = {each: (ns - before[each]) / 1_000 / size for each, ns in found.spent_ns.items()}
        blocks.append({**spent, "the rest": whole_us - sum(spent.values()), "whole": whole_us})
    least = min(blocks[1:], key=lambda block: block["whole"])
    for phase, cpu_us in least.items():
        print(f"{phase:28}{cpu_us:>9.1f} µs{cpu_us / least['whole']:>8.1%}")
    await runtime.stop()
    server.close()


if __name__ == "__main__":
    main()
