"""What the server costs by itself: Uvicorn, and a connection to the upstream. No gateway at all.

`python -P benchmarks/relay.py PORT UPSTREAM_PORT`. A request's JSON is read and written again, and
the upstream's bytes go to the client as they come. Nobody is authenticated, nothing is counted,
decided, held, priced or recorded: what a gateway on this server does besides is the difference.
"""

import asyncio
import sys
from typing import Any, cast

import httptools
import orjson
import uvicorn

OVER = (502, b'{"error":{"message":"the upstream closed the connection"}}')


class Upstream(asyncio.Protocol):
    """One kept-alive connection to the upstream; `parts` is what has come and isn't passed on."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.transport: asyncio.Transport
        self.status = 0
        self.begun = self.whole = self.lost = False
        self._come: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)

    def ask(self, body: bytes) -> None:
        self.begun = self.whole = False
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )

    async def more(self) -> bytes:
        """Return what has come since, once there is something; b"" at the end."""
        while not (self.begun and self.parts) and not self.whole and not self.lost:
            self._come = asyncio.get_running_loop().create_future()
            await self._come
        parts, self.parts = self.parts, []
        return b"".join(parts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._tell()

    def _tell(self) -> None:
        come, self._come = self._come, None
        if come is not None and not come.done():
            come.set_result(None)

    # Called by the parser.

    def on_headers_complete(self) -> None:
        self.status, self.begun = self._parser.get_status_code(), True

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.whole = True


class Relay:
    """The ASGI application: each request goes over a connection that nobody else uses meanwhile."""

    def __init__(self, upstream_port: int) -> None:
        self._port = upstream_port
        self._free: list[Upstream] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked, more = [], True
        while more:
            message = await receive()
            asked.append(message.get("body", b""))
            more = message.get("more_body", False)
        wanted = orjson.loads(b"".join(asked))
        upstream = await self._connected()
        upstream.ask(orjson.dumps(wanted))
        part = await upstream.more()
        if upstream.lost:
            await self._whole(send, *OVER)
        elif wanted.get("stream"):
            await self._stream(send, upstream, part)
        else:
            while not upstream.whole and not upstream.lost:
                part += await upstream.more()
            await self._whole(send, upstream.status, orjson.dumps(orjson.loads(part)))
        if upstream.whole:
            self._free.append(upstream)

    async def _connected(self) -> Upstream:
        while self._free:
            free = self._free.pop()
            if not free.lost:
                return free
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Upstream, "127.0.0.1", self._port))[1]

    async def _whole(self, send: Any, status: int, body: bytes) -> None:
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, send: Any, upstream: Upstream, part: bytes) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": upstream.status, "headers": headers})
        while part or not (upstream.whole or upstream.lost):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            part = await upstream.more()
        await send({"type": "http.response.body", "body": b""})


def main(port: int, upstream_port: int) -> None:
    uvicorn.run(
        Relay(upstream_port), host="127.0.0.1", port=port, loop="uvloop", http="httptools",
        lifespan="off", access_log=False, log_level="warning",
    )  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
