"""A client that hangs up is told of at once, without a task that waits for it (DLV-2)."""

import asyncio

from gateway.api.http import HANG_UP, Request
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
    told = scope | {"extensions": {HANG_UP: {"watch": lambda gone: None}}}
    assert Request(told, unused, unused).watch(lambda: None)
