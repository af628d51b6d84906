"""The load generator: raw connections on the event loop, no task and no parser for each request.

`drive` returns what a load came to. Every connection asks again in the very callback that saw the
last answer's end. Paced streams begin spread over one stream's length, as callers do, and count
once every connection is in its stride.
"""

import asyncio
import gc
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import orjson

from benchmarks.peers.values import Load, Taken

GRACE_SECONDS = 10.0
CONNECT_SECONDS = 5.0
LAST_CHUNK = b"0\r\n\r\n"
MARK = b" mote"  # of a token in what the upstream answers
NUMBER = b"00000000"  # stands in a request's bytes where its own number goes
NUMBERS = itertools.count()  # of all requests that this process sends, whatever the load
PROMPT = (
    "You answer for a support desk. Explain in two sentences what a token budget is, why a request "
    "has a deadline, and what its caller should do when one of them is exceeded."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a gateway is asked: its port, headers and path, and its name of the model.

    `mark` is in the bytes of an answer once for each token, and nowhere else; None: not counted.
    """

    port: int
    model: str = "mote"
    path: str = "/v1/chat/completions"
    headers: Mapping[str, str]
    mark: bytes | None = MARK

    def request(self, tokens: int, *, stream: bool, prompts: int = 1) -> "Request":
        """Return what is asked, with the prompt so often."""
        text = f"{NUMBER.decode()} {' '.join([PROMPT] * prompts)}"
        body = orjson.dumps(
            {
                "model": self.model,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": tokens,
                "stream": stream,
            }
        )
        headers = {
            "host": f"127.0.0.1:{self.port}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            **self.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {self.path} HTTP/1.1\r\n{lines}\r\n".encode()
        before, _, after = body.partition(NUMBER)
        return Request(before=head + before, after=after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request's bytes around its number. No two prompts are the same: who remembers what it has
    seen already would else be measured at remembering."""

    before: bytes
    after: bytes

    def numbered(self, number: int) -> bytes:
        return b"%s%0*d%s" % (self.before, len(NUMBER), number % 10 ** len(NUMBER), self.after)


async def drive(door: Door, load: Load, *, grace_s: float = GRACE_SECONDS) -> Taken:
    """Put a load on a gateway; return what it came to, warm-up left out but for `sent`.

    Raises OSError where it takes no connection.
    """
    run = _Run(door, load)
    gc.collect()
    gc.disable()  # a pause of ours would be somebody's latency
    try:
        return await run.until_over(grace_s)
    finally:
        gc.enable()


class _Run:
    """What the connections of one load share."""

    def __init__(self, door: Door, load: Load) -> None:
        self.door, self.load, self.taken = door, load, Taken()
        self.request = door.request(load.tokens, stream=load.stream, prompts=load.prompts)
        self.connections: set[_Connection] = set()
        self.reopening: set[asyncio.Task[None]] = set()
        self.over = asyncio.Event()
        self.counts_from_ns = self.ends_ns = 0

    async def until_over(self, grace_s: float) -> Taken:
        loop, load, taken = asyncio.get_running_loop(), self.load, self.taken
        async with asyncio.timeout(CONNECT_SECONDS):
            opened = [
                await loop.create_connection(lambda: _Connection(self), "127.0.0.1", self.door.port)
                for _ in range(load.connections)
            ]
        now_ns = time.perf_counter_ns()
        self.counts_from_ns = now_ns + int(load.stream_s * 1e9)
        self.ends_ns = self.counts_from_ns + int(load.seconds * 1e9)
        for place, (_, connection) in enumerate(opened):
            self.connections.add(connection)
            loop.call_later(load.stream_s * place / load.connections, connection.ask)
        try:
            async with asyncio.timeout((self.ends_ns - now_ns) / 1e9 + grace_s):
                await self.over.wait()
        except TimeoutError:
            taken.unfinished = sum(connection.asking for connection in self.connections)
        for connection in tuple(self.connections):
            connection.leave()
        taken.seconds = load.seconds
        return taken

    def left(self, connection: "_Connection") -> None:
        self.connections.discard(connection)
        if not self.connections:
            self.over.set()

    def ended(self, began_ns: int, first_ns: int, status: int, tokens: int | None) -> None:
        """Enter one answer. `tokens` None: they weren't counted."""
        now_ns, taken = time.perf_counter_ns(), self.taken
        if status != 200:
            taken.statuses[status] = taken.statuses.get(status, 0) + 1
        elif tokens is not None and tokens != self.load.tokens:
            taken.short += 1
        else:
            taken.whole += 1
            taken.whole_in_time += self.counts_from_ns <= now_ns <= self.ends_ns
            if began_ns >= self.counts_from_ns:
                taken.latencies_ns.append(now_ns - began_ns)
                if self.load.stream:
                    taken.first_ns.append(first_ns - began_ns)


class _Connection(asyncio.Protocol):
    """One kept-alive connection: asks, reads the answer to its end, asks again."""

    def __init__(self, run: _Run) -> None:
        self._run, self._mark = run, run.door.mark
        self._transport: asyncio.Transport
        self._reset()
        self.asking = False

    def _reset(self) -> None:
        self._parts: list[bytes] = []
        self._head_read = False
        self._status = self._left = self._first_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self) -> None:
        if time.perf_counter_ns() >= self._run.ends_ns:
            self.leave()
            return
        if self._transport.is_closing():
            return  # its end is told of at once, and another takes its place
        self._reset()
        self.asking = True
        self._run.taken.sent += 1
        self._began_ns = time.perf_counter_ns()
        self._transport.write(self._run.request.numbered(next(NUMBERS)))

    def leave(self) -> None:
        self.asking = False
        self._run.left(self)
        self._transport.close()

    def connection_lost(self, problem: Exception | None) -> None:
        if self.asking:
            self.asking = False
            self._run.taken.lost += 1
        if self in self._run.connections:
            reopening = asyncio.get_running_loop().create_task(self._again())
            self._run.reopening.add(reopening)
            reopening.add_done_callback(self._run.reopening.discard)

    async def _again(self) -> None:
        """Connect anew in this one's place: a server may close a connection between requests."""
        run, loop = self._run, asyncio.get_running_loop()
        try:
            _, other = await loop.create_connection(
                lambda: _Connection(run), "127.0.0.1", run.door.port
            )
        except OSError:
            run.left(self)
            return
        run.connections.add(other)
        run.left(self)
        other.ask()

    def data_received(self, data: bytes) -> None:
        if not self._head_read:
            data = b"".join((*self._parts, data))
            self._parts = [data]
            ends = data.find(b"\r\n\r\n")
            if ends < 0:
                return
            head = data[:ends].lower()
            self._status = int(head[9:12])
            _, found, length = head.partition(b"content-length:")
            self._left = int(length.partition(b"\r\n")[0]) if found else -1  # -1: in chunks
            self._head_read = True
            data = data[ends + 4 :]
            self._parts = []
        if data:
            self._parts.append(data)
        if not self._first_ns and (self._mark is None or self._mark in data):
            self._first_ns = time.perf_counter_ns()
        if self._left >= 0:
            self._left -= len(data)
            if self._left <= 0:
                self._end()
        elif data.endswith(LAST_CHUNK) or (
            len(data) < len(LAST_CHUNK) and b"".join(self._parts[-5:]).endswith(LAST_CHUNK)
        ):
            self._end()

    def _end(self) -> None:
        self.asking = False
        tokens = None if self._mark is None else b"".join(self._parts).count(self._mark)
        self._run.ended(self._began_ns, self._first_ns, self._status, tokens)
        self.ask()
