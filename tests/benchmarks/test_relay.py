"""The relay of the benchmarks passes every byte on, so that its figures are of whole answers."""

import asyncio
import contextlib
import json

import pytest

from benchmarks.relay import Relay
from benchmarks.upstream import Connection, State


@contextlib.asynccontextmanager
async def relay():
    state, loop = State(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", 0)
    async with server:
        yield Relay(server.sockets[0].getsockname()[1]), state


async def asked(application, body):
    """(status, body) of one request whose own body comes in two parts."""
    text = json.dumps(body).encode()
    parts = [
        {"type": "http.request", "body": text[:9], "more_body": True},
        {"type": "http.request", "body": text[9:], "more_body": False},
    ]
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    await application({"type": "http"}, receive, send)
    assert not sent[-1].get("more_body")
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


def chat(**fields):
    messages = [{"role": "user", "content": "Hello"}]
    return {"model": "mote", "messages": messages, "max_tokens": 5, **fields}


@pytest.mark.parametrize("pace_s", [0.0, 0.001])
def test_whole_answers_and_streams_come_through_with_all_of_their_tokens(pace_s):
    async def run():
        async with relay() as (application, state):
            state.pace_s = pace_s
            answers = [await asked(application, chat(stream=stream)) for stream in (False, True)]
            return answers, state.begun

    ((whole, body), (streamed, events)), begun = asyncio.run(run())
    assert (whole, streamed, begun) == (200, 200, 2)
    assert json.loads(body)["choices"][0]["message"]["content"] == " mote" * 5
    assert events.count(b" mote") == 5
    assert events.endswith(b"data: [DONE]\n\n")


def test_an_upstream_that_hangs_up_is_a_failure_and_no_empty_answer():
    async def run():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            return await asked(Relay(server.sockets[0].getsockname()[1]), chat())

    assert asyncio.run(run())[0] == 502
