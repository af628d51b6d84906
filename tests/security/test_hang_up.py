"""A client that hangs up is told of at once, without a task that waits for it (DLV-2)."""

import asyncio

from gateway.api.http import CONNECTION, Request
from tests.security.test_connections import ASK, connect, guarded


class Watcher:
    """Watches its client until it is gone, and answers nothing; `after` is done before it waits."""

    def __init__(self, after=lambda request: None) -> None:
        self.gone, self.over, self.watched = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.after = after

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive, send)
        await request.body(100)
        assert request.watch(self.gone.set)
        self.after(request)
        self.watched.set()
        await request.client_gone()
        self.over.set()


def hung_up(app):
    """Hang up on an app that watches, and return once it has ended."""

    async def run():
        async with guarded(app=app) as (port, _):
            _, writer = await connect(port)
            writer.write(ASK)
            await app.watched.wait()
            assert not app.gone.is_set()
            writer.close()
            await app.over.wait()
            await asyncio.sleep(0)

    asyncio.run(run())


def test_whoever_watches_a_client_is_called_once_it_hangs_up():
    hung_up(app := Watcher())
    assert app.gone.is_set()


def test_whoever_watches_it_no_more_is_not_called():
    hung_up(app := Watcher(lambda request: request.watch(None)))
    assert not app.gone.is_set()


def test_who_watches_a_client_that_is_gone_already_is_called_all_the_same():
    app = Watcher()

    async def late(scope, receive, send):
        request = Request(scope, receive, send)
        await request.body(100)
        app.watched.set()
        await request.client_gone()
        assert request.watch(app.gone.set)
        await app.gone.wait()
        app.over.set()

    async def run():
        async with guarded(app=late) as (port, _):
            _, writer = await connect(port)
            writer.write(ASK)
            await app.watched.wait()
            writer.close()
            await app.over.wait()

    asyncio.run(run())
    assert app.gone.is_set()


async def unused(*_):
    raise AssertionError("nothing is received or sent")


def test_a_server_that_does_not_tell_is_said_not_to():
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    assert not Request(scope, unused, unused).watch(lambda: None)
    told = scope | {"extensions": {CONNECTION: {"watch": lambda gone: None}}}
    assert Request(told, unused, unused).watch(lambda: None)


class Streamer:
    """Streams parts in turn by `write` and by `write_now`, and a last one."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts, self.ready = parts, []

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive, send)
        await request.body(100)
        self.ready.append(request.ready())
        await request.start(200, [])
        for place, part in enumerate(self.parts):
            self.ready.append(request.ready())
            if place % 2 and request.ready():
                request.write_now(part)
            else:
                await request.write(part, more=True)
        await request.write(b"", more=False)
        self.ready.append(request.ready())


def streamed(parts: list[bytes], ask: bytes = ASK) -> tuple[list[bool], bytes]:
    """Return when the server was ready, and all that it sent."""

    async def run():
        app = Streamer(parts)
        async with guarded(app=app) as (port, _):
            reader, writer = await connect(port)
            writer.write(ask)
            head = await reader.readuntil(b"\r\n\r\n")
            ends = b"0\r\n\r\n" if b"chunked" in head else b"".join(parts)
            body = await reader.readuntil(ends)
            writer.close()
            return app.ready, body

    return asyncio.run(run())


def test_parts_that_are_written_at_once_are_chunks_among_the_others():
    """An empty part is no chunk: it would be read as the body's end."""
    ready, body = streamed([b"one", b"two", b"", b"", b"three" * 5])
    assert ready == [False, *[True] * 5, False]
    assert body == b"3\r\none\r\n3\r\ntwo\r\n19\r\n" + b"three" * 5 + b"\r\n0\r\n\r\n"


def test_a_client_that_reads_no_chunks_has_nothing_written_at_once():
    ready, body = streamed([b"one", b"two"], ASK.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert ready == [False] * 4
    assert body == b"onetwo"


def test_nothing_is_written_at_once_to_a_client_that_is_gone_or_behind():
    ready: dict[str, bool] = {}

    async def app(scope, receive, send):
        request = Request(scope, receive, send)
        await request.body(100)
        await request.start(200, [])
        await request.write(b"x" * 50_000_000, more=True)  # more than any buffer between us takes
        ready["behind"] = request.ready()
        went.set()
        await request.client_gone()
        ready["gone"] = request.ready()
        over.set()

    async def run():
        async with guarded(app=app) as (port, _):
            _, writer = await connect(port)
            writer.write(ASK)
            await went.wait()
            writer.transport.abort()
            await over.wait()

    went, over = asyncio.Event(), asyncio.Event()
    asyncio.run(run())
    assert ready == {"behind": False, "gone": False}
