"""A stream whose parts are written in the calls that bring them has the bytes of any other."""

import itertools
import json

import pytest

from gateway.submission import Delta, ToolCallPiece
from ledger.store import LedgerUnavailable
from tests.gateway.api.client import Client, SmallGateway, ended

CHAT = {"model": "assistant-large", "messages": [{"role": "user", "content": "Hi"}]}
STREAMS = {
    "/v1/chat/completions": {**CHAT, "stream": True, "stream_options": {"include_usage": True}},
    "/v1/completions": {"model": "assistant-large", "prompt": "Hi", "stream": True},
    "/v1/responses": {"model": "assistant-large", "input": "Hi", "stream": True},
    "/v2/models/assistant-large/generate_stream": {"text_input": "Hi"},
    "/api/v1/requests": {**CHAT, "mode": "stream"},
}
TEXTS = [Delta(text=text, tokens=1) for text in ("", "Hel", "", "lo", " – Grüße")]
CALLS = [
    Delta(text="", tokens=1, tool_calls=(ToolCallPiece(index=0, call_id="call_1", name="weigh"),)),
    Delta(text="", tokens=1, tool_calls=(ToolCallPiece(index=0, arguments='{"t'),)),
    Delta(text="", tokens=1, tool_calls=(ToolCallPiece(index=0, arguments='":1}'),)),
]
TOGETHER = Delta(text="ab", tokens=2, encoded=(b'"a"', b'"b"'))
ENDINGS = {
    "stop": [ended()],
    "failed": [ended(None, status="failed", terminal_error_code="PROVIDER_FAILED")],
    "pending": [LedgerUnavailable("no disk")],
}


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("pieces", [TEXTS, [*TEXTS, *CALLS], [TOGETHER, *TEXTS, TOGETHER]])
@pytest.mark.parametrize("path", STREAMS)
def test_every_format_says_the_same_at_once_and_by_its_task(client, path, pieces, ending):
    """DLV-5: also where the client keeps up with some of them alone."""
    client.gateway.journey.pieces = [*pieces, *ENDINGS[ending]]
    body = json.dumps(STREAMS[path]).encode()
    by_task = client.call("POST", path, body=body)
    ups_and_downs = itertools.cycle([True, False, True])
    for ready in (lambda: True, lambda: False, lambda: next(ups_and_downs)):
        client.ready = ready
        reply = client.call("POST", path, body=body)
        assert (reply.status, reply.headers, reply.body) == (
            by_task.status, by_task.headers, by_task.body,
        )  # fmt: skip


def test_what_follows_the_first_text_is_written_at_once(client):
    client.gateway.journey.pieces = [*TEXTS, *ENDINGS["stop"]]
    client.ready = lambda: True
    reply = client.chat(stream=True)
    assert reply.at_once == 3  # all after "Hel"
    assert client.chat(stream=False).at_once == client.chat(stream=True, n=2).at_once == 0
