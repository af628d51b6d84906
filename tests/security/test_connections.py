"""How much a connection may take: head, body, time, unread answers, descriptors (SEC-3)."""

import asyncio
import contextlib
import socket
import weakref

import pytest
import uvicorn
from django.conf import settings

from gateway import connections, metrics
from gateway.connections import (
    DESCRIPTORS_KEPT,
    HEAD_LIMIT_BYTES,
    GuardedProtocol,
    connections_limit,
    server_config,
)
from gateway.unread import Unread
from tests.security.raw import LAST, statuses, turned_away
from tests.server import Server

LIMIT_S = 30  # that a test hangs, not how fast it is
HEAD = b"GET /healthz HTTP/1.1\r\nhost: test\r\n"


@pytest.mark.parametrize(
    "bomb",
    [
        HEAD + b"x-bomb: " + b"b" * 500_000,
        HEAD + b"x-bomb: b\r\n" * 50_000,
        b"GET /healthz?" + b"b" * 500_000,
        HEAD + b"x-bomb: " + b"b" * HEAD_LIMIT_BYTES + b"\r\n\r\n",
    ],
    ids=["one header", "many headers", "a URL", "a whole head"],
)
def test_a_head_over_its_limit_is_refused_not_kept_and_counted(server: Server, bomb: bytes):
    before = turned_away(server, "HEAD_TOO_LARGE")
    assert statuses(server, bomb) in ([431], [])
    assert turned_away(server, "HEAD_TOO_LARGE") == before + 1


def test_a_head_within_its_limit_is_read(server: Server):
    head = HEAD + b"x-long: " + b"b" * (HEAD_LIMIT_BYTES - 1_000) + b"\r\n\r\n"
    assert statuses(server, head + LAST) == [200, 200]


CHUNKED = b"POST /%s HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
LONG = b"b" * HEAD_LIMIT_BYTES


@pytest.mark.parametrize("path", [b"v1/models", b"login"], ids=["the API", "the console"])
@pytest.mark.parametrize(
    "beside",
    [b"2\r\n{}\r\n0\r\nx-bomb: " + LONG * 9, b"0\r\n" + b"x-a: b\r\n" * 90_000, b"1;" + LONG * 9],
    ids=["one trailer", "many trailers", "a chunk's extension"],
)
def test_what_stands_beside_a_body_is_limited_as_a_head_is(server: Server, path, beside):
    before = turned_away(server, "HEAD_TOO_LARGE")
    assert len(statuses(server, CHUNKED % path + beside)) <= 1  # none within an answer, nor behind
    assert turned_away(server, "HEAD_TOO_LARGE") == before + 1


def test_a_body_of_many_chunks_has_no_such_limit(server: Server):
    pieces = b"5;a=b\r\n     \r\n" * 20_000
    assert statuses(server, CHUNKED % b"healthz" + pieces + b"0\r\nx-a: b\r\n\r\n" + LAST) == [
        405,
        200,
    ]


def test_a_trailer_is_no_header(server: Server):
    """Neither who asks nor what for may depend on whether it came in one read with the body."""
    key = server.keys["support-desk"].encode()
    asked = (CHUNKED % b"v1/models").replace(b"POST", b"GET") + b"0\r\n"
    assert statuses(server, asked + b"authorization: Bearer " + key + b"\r\n\r\n" + LAST) == [
        401,
        200,
    ]
    known = asked.replace(b"host:", b"authorization: Bearer " + key + b"\r\nhost:")
    assert statuses(server, known + b"authorization: Bearer x\r\n\r\n" + LAST) == [200, 200]


def test_what_is_no_request_is_counted(server: Server):
    before = turned_away(server, "INVALID_HTTP")
    assert statuses(server, b"\x00\r\n\r\n") == [400]
    assert turned_away(server, "INVALID_HTTP") == before + 1


def test_the_ledgers_files_find_a_descriptor_however_many_connect():
    assert connections_limit(20_000) == 20_000 - DESCRIPTORS_KEPT
    assert connections_limit(1_024) == 512


async def answering(scope, receive, send):
    """Reads the body, and answers with as many kilobytes as the path says."""
    if scope["type"] == "lifespan":
        return
    while (await receive()).get("more_body"):
        pass
    size = int(scope["path"].strip("/") or 0) << 10
    headers = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(size >> 14):
        await send({"type": "http.response.body", "body": bytes(1 << 14), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("behind_tls", [False, True])
def test_what_a_client_says_of_its_own_address_is_believed_of_a_tls_proxy_alone(
    behind_tls, monkeypatch
):
    """Else the limit on failed logins would be as many limits as there are addresses to claim."""
    monkeypatch.setattr(settings, "BEHIND_TLS", behind_tls)
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def run():
        config = server_config(log_config=None)
        config.app, config.lifespan = app, "off"
        config.load()
        scope = {
            "type": "http", "client": ("127.0.0.1", 1), "scheme": "http",
            "headers": [(b"x-forwarded-for", b"203.0.113.9"), (b"x-forwarded-proto", b"https")],
        }  # fmt: skip

        async def nothing(*_):
            return {}

        await config.loaded_app(scope, nothing, nothing)

    asyncio.run(run())
    assert seen == (["203.0.113.9"] if behind_tls else ["127.0.0.1"])


@contextlib.asynccontextmanager
async def guarded(limit: int = 100, app=answering, opened=None, unread=None):
    """A small server behind the guarded protocol: its port, and an event of its first hang-up.

    `opened` is a set that its connections are in while they are open.
    """
    lost = asyncio.Event()

    class Small(GuardedProtocol):
        connections_limit = limit

        if unread is not None:
            unread_answers = unread

        def connection_lost(self, exc):
            super().connection_lost(exc)
            lost.set()

    config = uvicorn.Config(app, http=Small, lifespan="off", log_config=None, ws="none")
    config.load()
    state = uvicorn.Server(config).server_state
    if opened is not None:
        state.connections = opened
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    server = await loop.create_server(lambda: Small(config, state, {}, loop), sock=listening)
    port = listening.getsockname()[1]
    try:
        async with asyncio.timeout(LIMIT_S):
            yield port, lost
    finally:
        server.close()


async def connect(port: int):
    return await asyncio.open_connection("127.0.0.1", port)


async def said_until_hung_up(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await reader.read(1 << 20)
    return b""


@pytest.fixture
def _impatient(monkeypatch):
    for name in ("HEAD_SECONDS", "MESSAGE_SECONDS", "UNREAD_SECONDS"):
        monkeypatch.setattr(connections, name, 0.05)


ASK = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"\r\n\r\n", b""),
        (b"GET / HT", b"HTTP/1.1 408"),
        (b"GET / HTTP/1.1\r\nhost: te", b"HTTP/1.1 408"),
        (b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nhalf", b"HTTP/1.1 408"),
    ],
    ids=["nothing", "empty lines", "half a line", "half a head", "half a body"],
)
def test_a_request_that_never_becomes_whole_is_hung_up_on(sent: bytes, status: bytes):
    async def run():
        async with guarded() as (port, _):
            reader, writer = await connect(port)
            writer.write(sent)
            assert (await said_until_hung_up(reader))[:12] == status
            writer.close()

    asyncio.run(run())


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("after", [b"\r\n", b"GET / HTTP/1.1\r\nho"])
def test_so_is_one_after_others_that_were_whole(after: bytes):
    async def run():
        async with guarded() as (port, _):
            reader, writer = await connect(port)
            for _ in range(2):
                writer.write(ASK)
                assert b"200" in await reader.readuntil(b"\r\n\r\n")
            writer.write(after)
            await said_until_hung_up(reader)
            writer.close()

    asyncio.run(run())


def test_half_a_body_keeps_no_server_from_stopping_and_a_whole_request_is_answered(monkeypatch):
    monkeypatch.setattr(connections, "STOPPING_SECONDS", 0.05)

    async def run():
        opened: set[GuardedProtocol] = set()
        async with guarded(opened=opened) as (port, _):
            reader, writer = await connect(port)
            writer.write(b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nhalf")
            waiting, waiter = await connect(port)
            waiter.write(b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nhalf")
            while len([each for each in opened if each.cycle is not None]) < 2:
                await asyncio.sleep(0)
            for each in opened:
                each.shutdown()
            waiter.write(b"whole")
            assert (await waiting.read()).startswith(b"HTTP/1.1 200")
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
            writer.close()
            waiter.close()

    asyncio.run(run())


@pytest.mark.usefixtures("_impatient")
def test_an_answer_that_nobody_reads_is_given_up():
    async def run():
        async with guarded() as (port, lost):
            with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as reader:
                reader.sendall(ASK.replace(b" / ", b" /64000 "))
                await lost.wait()

    asyncio.run(run())


async def at_once(scope, receive, send):
    """Answers with 32 MiB in one piece: more than a system takes for a client."""
    await receive()
    body = bytes(32 << 20)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def reasons(monkeypatch) -> list[str]:
    """Why clients were hung up on."""
    told: list[str] = []
    monkeypatch.setattr(metrics, "turned_away", told.append)
    return told


def test_answers_that_wait_unread_hold_no_more_than_their_limit(reasons):
    """SEC-3: the client is hung up on, and what waited for it is freed."""

    async def run():
        unread = Unread(limit_bytes=1 << 20)
        async with guarded(app=at_once, unread=unread) as (port, lost):
            with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as reader:
                reader.sendall(ASK)
                await lost.wait()
                assert (reasons, unread.total_bytes) == (["ANSWERS_UNREAD"], 0)

    asyncio.run(run())


def test_a_client_that_reads_slowly_is_not_given_up_and_one_that_has_stopped_is(reasons):
    """SEC-3: what counts is whether anything was taken since the last look."""

    async def run():
        opened: set[GuardedProtocol] = set()
        async with guarded(app=at_once, opened=opened, unread=Unread()) as (port, lost):
            with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as reader:
                reader.sendall(ASK)
                while not (opened and next(iter(opened)).transport.get_write_buffer_size()):
                    await asyncio.sleep(0)
                (client,) = opened
                reader.setblocking(False)
                for _ in range(2):
                    taken = 0
                    while taken < 4 << 20:
                        with contextlib.suppress(BlockingIOError):
                            taken += len(reader.recv(1 << 20))
                        await asyncio.sleep(0)
                    client.look()
                    assert (reasons, client.unread_bytes() > 0) == ([], True)
                while not lost.is_set():
                    client.look()
                    await asyncio.sleep(0)
                assert reasons == ["ANSWER_NOT_READ"]

    asyncio.run(run())


def test_connections_over_the_limit_are_refused_and_those_within_it_served():
    async def run():
        async with guarded(limit=2) as (port, _):
            first, second, third = [await connect(port) for _ in range(3)]
            assert (await said_until_hung_up(third[0]))[:12] == b"HTTP/1.1 503"
            for reader, writer in (first, second):
                writer.write(ASK)
                assert b"200" in await reader.readuntil(b"\r\n\r\n")
            for _, writer in (first, second, third):
                writer.close()

    asyncio.run(run())


def test_a_connection_that_was_reset_is_freed_at_once_too():
    """uvicorn's clock of an idle connection would hold it until it strikes."""

    async def run():
        opened: set[GuardedProtocol] = set()
        async with guarded(opened=opened) as (port, lost):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(ASK)
            while not opened or next(iter(opened)).timeout_keep_alive_task is None:
                await asyncio.sleep(0)
            kept = weakref.ref(next(iter(opened)))
            client.close()  # with an answer unread: a reset
            await lost.wait()
            await asyncio.sleep(0)
            assert kept() is None

    asyncio.run(run())
