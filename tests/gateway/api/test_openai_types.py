"""The raw bodies of answers, held strictly against the OpenAI client's own types."""

import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from gateway.submission import Delta
from tests.gateway.api.client import Client, SmallGateway, ended
from tests.gateway.api.test_choices import CALLING, TOOL, two

WHOLE, CHUNK = TypeAdapter(ChatCompletion), TypeAdapter(ChatCompletionChunk)
LOGPROBS = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]}
PIECES = {
    "text": [Delta(text="Hel", tokens=1), Delta(text="lo", tokens=1), ended()],
    "nothing": [ended("length")],
    "a call": CALLING,
    "text and log probabilities": [
        Delta(text="a", tokens=1, logprobs_json=json.dumps(LOGPROBS)),
        ended(),
    ],
}


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def asked(client, *, stream, usage=False, **fields):
    options = {"stream_options": {"include_usage": True}} if usage else {}
    return client.chat(stream=stream, tools=[TOOL], **options, **fields)


@pytest.mark.parametrize("kind", PIECES)
def test_a_whole_answer_is_the_clients_type(client, kind):
    client.gateway.journey.pieces = PIECES[kind]
    answer = WHOLE.validate_json(asked(client, stream=False).body, strict=True)
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


@pytest.mark.parametrize("kind", PIECES)
@pytest.mark.parametrize("usage", [False, True])
def test_each_chunk_of_a_stream_is_the_clients_type(client, kind, usage):
    client.gateway.journey.pieces = PIECES[kind]
    *events, done = asked(client, stream=True, usage=usage).events
    chunks = [CHUNK.validate_json(json.dumps(event), strict=True) for event in events]
    assert done == "[DONE]"
    assert (chunks[-1].usage is not None) is usage
    assert [chunk.choices for chunk in chunks if not chunk.choices] == [[]] * usage
    assert len({(chunk.id, chunk.created, chunk.system_fingerprint) for chunk in chunks}) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_are_the_clients_type(client, stream):
    two(client)
    reply = asked(client, stream=stream, n=2)
    if not stream:
        assert len(WHOLE.validate_json(reply.body, strict=True).choices) == 2
        return
    for event in reply.events[:-1]:
        CHUNK.validate_json(json.dumps(event), strict=True)
