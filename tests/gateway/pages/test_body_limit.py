"""What is sent to the console is limited before any of it is kept."""

import asyncio

import pytest

from gateway.pages import body_limit
from gateway.pages.body_limit import BODY_LIMIT_BYTES, within_limit

LIMIT = 10


def exchange(scope, *messages):
    """(what the application got, what was answered) of one request."""
    got, answered, left = [], [], list(messages)

    async def application(scope, receive, send):
        while True:
            message = await receive()
            got.append(message)
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return

    async def receive():
        return left.pop(0)

    async def send(message):
        answered.append(message)

    asyncio.run(within_limit(application, scope, receive, send))
    return got, answered


def part(size: int, more: bool = False):
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(body_limit, "BODY_LIMIT_BYTES", LIMIT)


def test_a_body_that_is_announced_too_large_is_answered_unread():
    scope = {"type": "http", "headers": [(b"content-length", b"11")]}
    got, answered = exchange(scope, part(11))
    assert got == []
    assert answered[0]["status"] == 413
    assert f"{BODY_LIMIT_BYTES:,} bytes".encode() in answered[1]["body"]


@pytest.mark.parametrize("length", [b"99999999999999999999999999", b"11"])
def test_a_length_of_any_size_is_read(length: bytes):
    scope = {"type": "http", "headers": [(b"content-length", length)]}
    assert exchange(scope)[1][0]["status"] == 413


def test_a_body_that_grows_too_large_is_cut_off():
    got, answered = exchange({"type": "http", "headers": []}, part(6, True), part(5, True))
    assert [message["type"] for message in got] == ["http.request", "http.disconnect"]
    assert answered == []


def test_a_body_at_the_limit_goes_through():
    for headers in ([], [(b"content-length", b"10")], [(b"content-length", b"x")]):
        got, _ = exchange({"type": "http", "headers": headers}, part(6, True), part(4))
        assert [len(message["body"]) for message in got] == [6, 4]
