"""What a connection held is free once it is gone: the collector seldom looks."""

import asyncio
import contextlib
import gc
import weakref

import pytest

from gateway.api.http import BodyTooLarge, ClientGone, Request, Response
from gateway.connections import GuardedProtocol
from gateway.providers.http_connection import Connection
from tests.gateway.providers.raw import ANSWER, HEAD, answers
from tests.security.test_connections import ASK, LIMIT_S, connect, guarded

BODY_LIMIT_BYTES = 1_000
POSTED = ASK.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\n")


class Alive(weakref.WeakSet):
    """Of those that were begun, the ones that are there."""

    begun = 0


@pytest.fixture
def made(monkeypatch):
    """The connections that are there, without the collector's help."""
    alive = Alive()
    for kind in (GuardedProtocol, Connection):
        begun = kind.__init__

        def noted(self, *args, begun=begun, **options):
            begun(self, *args, **options)
            alive.begun += 1
            alive.add(self)

        monkeypatch.setattr(kind, "__init__", noted)
    gc.collect()
    gc.disable()
    yield alive
    gc.enable()


async def app(scope, receive, send):
    """Streams, watching its client, and waits for its end where the path says so."""
    request = Request(scope, receive, send)
    gone = asyncio.Event()
    request.watch(gone.set)
    with contextlib.suppress(ClientGone):
        try:
            await request.body(BODY_LIMIT_BYTES)
        except BodyTooLarge:
            await request.respond(Response(body=b"413", status=413), "req_1")
            return
        await request.start(200, [])
        await request.write(b"a part", more=True)
        if request.ready():
            request.write_now(b"another")
        if request.path == "/wait":
            await gone.wait()
        await request.write(b"", more=False)


@pytest.mark.parametrize(
    ("sent", "heard"),
    [
        (b"", b""),
        (b"GET /", b""),
        (b"\x00\r\n\r\n", b"400"),
        (ASK, b"0\r\n\r\n"),
        (ASK.replace(b"1.1", b"1.0"), b"a part"),
        (ASK * 5, b"0\r\n\r\n"),
        (ASK.replace(b"GET /", b"GET /wait"), b"another"),
        (ASK.replace(b"GET /", b"GET /wait") + ASK * 3, b"another"),
        (POSTED + b"abc", b"0\r\n\r\n"),
        (POSTED + b"a", b""),
        (POSTED.replace(b"3", b"9999"), b"413"),
    ],
)
def test_a_clients_connection(made, sent, heard):
    """SEC-3: of each that closed, 17 KB waited for the collector for as long as an hour."""

    async def asked():
        async with guarded(app=app) as (port, lost):
            reader, writer = await connect(port)
            writer.write(sent)
            if heard:
                await reader.readuntil(heard)
            writer.transport.abort()
            await lost.wait()
            async with asyncio.timeout(LIMIT_S):
                while made:  # what runs for it ends by itself
                    await asyncio.sleep(0)

    asyncio.run(asked())
    assert made.begun == 1


@pytest.mark.parametrize(
    "said",
    [
        ANSWER,
        b"no HTTP",
        HEAD + b"transfer-encoding: chunked\r\n\r\nno length\r\n",
        HEAD.replace(b"200 OK", b"503 Busy") + b"content-length: 0\r\nconnection: close\r\n\r\n",
    ],
)
def test_a_backends_connection(made, said):
    answers(said)
    assert made.begun and not made
