"""A server that answers with given bytes, and attempts of a provider against it."""

import asyncio
import ssl

from gateway.clock import SystemClock
from tests.faults.plan import Plan, body_of
from tests.gateway.providers.calls import call, kserve_route, route
from tests.gateway.providers.upstream import LIMIT_S, PROVIDERS, whole

STREAM = body_of(Plan())
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
ANSWER = HEAD + b"content-length: %d\r\n\r\n" % len(STREAM) + STREAM


class Raw:
    """A server that answers each request with the same bytes; it counts connections."""

    def __init__(self, said, *, reads=True, certificate=None) -> None:
        self.said, self.reads, self.certificate = said, reads, certificate
        self.connections = self.requests = 0
        self.open = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._met, "127.0.0.1", 0, ssl=self.certificate)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for writer in self.open:
            writer.transport.abort()

    async def _met(self, reader, writer):
        self.connections += 1
        self.open.add(writer)
        if not self.reads:
            writer.transport.pause_reading()
            return
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                length = request.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                await self.read(writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            writer.close()

    async def read(self, writer):
        """A whole request has been read."""
        self.requests += 1
        writer.write(self.said)


def at(
    raw, scenario, *, scheme="http", patience=None, loop_factory=asyncio.new_event_loop,
    kind="openai", **settings,
):  # fmt: skip
    """Run a scenario of (provider, its route) over a raw server."""

    async def run():
        async with asyncio.timeout(LIMIT_S), raw:
            origin = f"{scheme}://127.0.0.1:{raw.port}"
            declared = (
                kserve_route(origin, **settings)
                if kind == "kserve"
                else route(f"{origin}/v1", **settings)
            )
            provider = PROVIDERS[kind](
                [declared], clock=SystemClock(), credential=lambda _: None,
                first_revision=lambda _: 1, patience=patience,
            )  # fmt: skip
            try:
                return await scenario(provider, declared)
            finally:
                await provider.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(run())


def answers(said, times=1, **settings):
    """(ends of so many attempts, one after the other; the server)."""
    raw = Raw(said)

    async def scenario(provider, declared):
        return [await whole(provider.start(call(declared))) for _ in range(times)]

    return at(raw, scenario, **settings), raw
