"""Requests behind one that is still answered: its end, its answer, their time (SEC-3, DLV-2)."""

import asyncio

import pytest

from gateway import connections
from gateway.connections import HEAD_LIMIT_BYTES
from tests.security.test_connections import ASK, connect, guarded

BEGUN = b"begun"
WAITING = b"GET /wait HTTP/1.1\r\nhost: test\r\n\r\n"
HALF_A_BODY = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nhalf"


class Slow:
    """Begins its answer to /wait at once, and ends it when it is released; answers others whole."""

    def __init__(self) -> None:
        self.told, self.released = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/wait":
            await send({"type": "http.response.body", "body": BEGUN, "more_body": True})
            released = asyncio.create_task(self.released.wait())
            gone = asyncio.create_task(receive())
            await asyncio.wait((released, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                assert gone.result()["type"] == "http.disconnect"
                self.told.set()
            released.cancel()
            gone.cancel()
        await send({"type": "http.response.body", "body": b"over"})


def behind(sent, then):
    """Send something behind a request whose answer has begun; then `then(app, reader, writer)`."""

    async def run():
        app = Slow()
        async with guarded(app=app) as (port, _):
            reader, writer = await connect(port)
            writer.write(WAITING)
            await reader.readuntil(BEGUN)
            writer.write(sent)
            found = await then(app, reader, writer)
            writer.close()
            return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    "sent",
    [b"", ASK, ASK * 3, ASK[:-4], HALF_A_BODY],
    ids=["nothing", "a request", "three requests", "half a head", "half a body"],
)
def test_a_client_that_hangs_up_is_gone_for_the_request_that_runs_whatever_waits_behind_it(sent):
    async def then(app, reader, writer):
        await writer.drain()
        writer.close()
        await app.told.wait()

    behind(sent, then)


@pytest.mark.parametrize(
    "sent",
    [
        b"\0 no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        ASK + b"\0 no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: test\r\nx: " + b"x" * HEAD_LIMIT_BYTES + b"\r\n\r\n",
        HALF_A_BODY.replace(b"content-length: 9", b"transfer-encoding: chunked"),
    ],
    ids=["no HTTP", "no host", "after a request", "a head too large", "no chunk"],
)
def test_what_is_wrong_behind_a_request_is_never_said_within_its_answer(sent):
    async def then(app, reader, writer):
        rest = await reader.read()
        await app.told.wait()
        return rest

    assert behind(sent, then) in (b"", b"\r\n")  # of the chunk that had begun


@pytest.mark.parametrize("sent", [ASK[:-4], HALF_A_BODY], ids=["half a head", "half a body"])
def test_what_waits_behind_an_answer_has_its_time_when_its_turn_has_come(sent, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.03)
    monkeypatch.setattr(connections, "MESSAGE_SECONDS", 0.03)

    async def then(app, reader, writer):
        # Later than it would be hung up on, had its time begun before.
        asyncio.get_running_loop().call_later(0.1, app.released.set)
        first = await reader.readuntil(b"over")
        if sent != HALF_A_BODY:
            writer.write(ASK[-4:])
            return first, await reader.readuntil(b"over")
        return first, await reader.read()

    first, second = behind(sent, then)
    assert first == b"\r\n4\r\nover"
    assert (b"HTTP/1.1 200" if sent != HALF_A_BODY else b"HTTP/1.1 408") in second
