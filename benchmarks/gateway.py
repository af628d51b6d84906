"""`python -m benchmarks.gateway`: what a request costs on this machine.

Serves the demonstration's fleet from a process of its own, on a fresh ledger, with simulated time
so fast that the backend answers at once; drives it from this process over kept-alive connections,
and prints requests/s, latency and the server's CPU for each request, every one of them counted,
decided, reserved, run, priced and durable. Then what a decision costs with 8 and 64 routes.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from gateway.policy.admission import decide
from gateway.quota import Quota
from ledger.quantiles import nearest_rank
from tests import policy_factories as factories
from tests.gateway import weighing
from tests.ledger_fixtures import migrate_ledger
from tests.server import Server, load_fleet, serving

TENANT = "support-desk"
TIME_SCALE = 1_000.0
WARM_UP_REQUESTS = 200
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run: each request's latency in µs, ascending, how long all took, and what failed."""

    latencies_us: list[int]
    seconds: float
    statuses: dict[int, int]
    cpu_us: float  # of the server, for each request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=4_000, help="at each concurrency")
    parser.add_argument("--decisions", type=int, default=2_000)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--output-tokens", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ledger = Path(directory) / "ledger.sqlite3"
        migrate_ledger(ledger)
        with serving(ledger, load_fleet(ledger), TIME_SCALE) as server:
            uvloop.run(bench_server(server, options))
    print(f"{'':20}{'decide, CPU µs':>16}{'whole path, CPU µs':>20}")
    for routes in (8, 64):
        alone_us, whole_us = decision_us(routes, options.decisions)
        print(f"decision, {routes:>2} routes{alone_us:>16.1f}{whole_us:>20.1f}")


async def bench_server(server: Server, options: argparse.Namespace) -> None:
    tokens = options.output_tokens
    kinds = {
        "health": exchange("GET", "/healthz", server, None),
        "chat": exchange("POST", "/v1/chat/completions", server, chat(tokens, stream=False)),
        "stream": exchange("POST", "/v1/chat/completions", server, chat(tokens, stream=True)),
    }
    print(f"{'':18}{'conns':>6}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU µs':>9}")
    for kind, sent in kinds.items():
        await drive(server, sent, 4, WARM_UP_REQUESTS)
        for connections in options.connections:
            done = await drive(server, sent, connections, options.requests)
            p50, p99 = (nearest_rank(done.latencies_us, q, 100) / 1_000 for q in (50, 99))
            rate = len(done.latencies_us) / done.seconds
            print(
                f"{kind:18}{connections:>6}{rate:>12,.0f}{p50:>9.2f}{p99:>9.2f}{done.cpu_us:>9.0f}",
                *(f"  {n} x HTTP {s}" for s, n in sorted(done.statuses.items()) if s != 200),
            )


def chat(output_tokens: int, *, stream: bool) -> bytes:
    return json.dumps(
        {
            "model": "assist",
            "messages": [{"role": "user", "content": "Explain token budgets in two sentences."}],
            "max_tokens": output_tokens,
            "stream": stream,
        }
    ).encode()


def exchange(method: str, path: str, server: Server, body: bytes | None) -> bytes:
    """The bytes of one request over a kept-alive connection."""
    head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\n"
    if body is not None:
        head += f"authorization: Bearer {server.keys[TENANT]}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + (body or b"")


async def drive(server: Server, sent: bytes, connections: int, requests: int) -> Load:
    """Send `requests` over as many connections, each as soon as its last one was answered."""
    host, port = server.base_url.removeprefix("http://").split(":")
    latencies_us: list[int] = []
    statuses: dict[int, int] = {}
    left = iter(range(requests))

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in left:
            began = time.perf_counter_ns()
            writer.write(sent)
            status = await read_response(reader)
            latencies_us.append((time.perf_counter_ns() - began) // 1_000)
            statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    cpu_before, began = cpu_seconds(server.process.pid), time.perf_counter()
    await asyncio.gather(*(one_connection() for _ in range(connections)))
    seconds = time.perf_counter() - began
    cpu_us = (cpu_seconds(server.process.pid) - cpu_before) * 1e6 / requests
    return Load(
        latencies_us=sorted(latencies_us), seconds=seconds, statuses=statuses, cpu_us=cpu_us
    )


async def read_response(reader: asyncio.StreamReader) -> int:
    """Read one response to its end; returns its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    _, found, length = head.partition(b"content-length: ")
    if found:
        await reader.readexactly(int(length.partition(b"\r\n")[0]))
        return status
    while True:  # chunked
        size = int(await reader.readline(), 16)
        await reader.readexactly(size + 2)
        if size == 0:
            return status


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has taken so far (Linux; in steps of 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def decision_us(routes: int, decisions: int) -> tuple[float, float]:
    """CPU µs of `decide` alone and of the whole path, over so many candidates that all pass.

    The whole path reads the book, decides, reserves, and makes the rows with their texts and
    digest; each request changes the state of the route that takes it, as while serving.
    """
    fleet = tuple(factories.route(f"route-{n:02}") for n in range(routes))
    policy = factories.policy(*fleet)
    names = [each.route_id for each in fleet]
    rates = factories.rates(*map(factories.rate, names))
    context = factories.context(*map(factories.state, names), rates=rates)
    requests = [factories.request(request_id=f"req_{n}") for n in range(decisions)]
    decided = decide(requests[0], policy.routes, context, policy)
    if decided.status != "accepted":
        raise SystemExit(f"the benchmark's request is rejected: {decided.reason_code}")
    began = time.process_time()
    for request in requests:
        decide(request, policy.routes, context, policy)
    alone_us = (time.process_time() - began) * 1e6 / decisions
    quota = Quota(in_flight_limit=decisions)
    desk = weighing.desk(quota=quota, policy=policy, rate_tables=(rates,))
    began = time.process_time()
    for number, request in enumerate(requests):
        weighed = desk.weigh(request, factories.NOW_US + number)
        if weighed.hold is not None:
            desk.book.release(weighed.hold)
    return alone_us, (time.process_time() - began) * 1e6 / decisions


if __name__ == "__main__":
    main()
