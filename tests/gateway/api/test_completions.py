"""POST /v1/completions: the older format, held strictly against the OpenAI client's types."""

import json

import pytest
from openai.types import Completion
from pydantic import TypeAdapter

from tests.gateway.api.client import REQUEST_ID, Client, SmallGateway
from tests.gateway.api.test_choices import two

TYPE = TypeAdapter(Completion)


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def complete(client, prompt="Hi", **fields):
    body = {"model": "assistant-large", "prompt": prompt, **fields}
    return client.call("POST", "/v1/completions", body=json.dumps(body).encode())


def test_a_whole_answer_is_the_clients_type_and_has_its_receipt(client):
    reply = complete(client, max_tokens=5)
    answer = TYPE.validate_json(reply.body, strict=True)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello", "stop")
    assert answer.id == f"cmpl-{REQUEST_ID[4:]}"
    assert reply.json["receipt"]["request_id"] == REQUEST_ID


def test_the_prompt_is_one_users_message(client):
    complete(client, prompt=["One text"])
    (submission,) = client.gateway.journey.submissions
    assert [(m.role, m.content) for m in submission.messages] == [("user", "One text")]


@pytest.mark.parametrize("usage", [False, True])
def test_each_chunk_is_the_clients_type_and_usage_comes_with_empty_choices(client, usage):
    options = {"stream_options": {"include_usage": True}} if usage else {}
    *events, done = complete(client, stream=True, **options).events
    for event in events[:-2]:  # the client's type knows no piece without a finish; OpenAI's has
        assert [choice.pop("finish_reason") for choice in event["choices"]] == [None]
        event["choices"][0]["finish_reason"] = "stop"
    chunks = [TYPE.validate_json(json.dumps(event)) for event in events if usage]
    assert done == "[DONE]"
    assert "".join(e["choices"][0]["text"] for e in events if e["choices"]) == "Hello"
    assert all(("usage" in event) is usage for event in events)
    assert events[-1]["receipt"]["status"] == "completed"
    if usage:
        assert [chunk.choices for chunk in chunks if chunk.usage] == [[]]


def test_several_choices_are_numbered(client):
    two(client)
    answer = TYPE.validate_json(complete(client, n=2).body, strict=True)
    assert [choice.index for choice in answer.choices] == [0, 1]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 1}, "logprobs"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": "\x00"}, "prompt"),
        ({"n": 0}, "n"),
    ],
)
def test_what_needs_a_raw_prompt_is_refused_by_name_and_nothing_runs(client, fields, param):
    reply = complete(client, **fields)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (
        400, "INVALID_REQUEST", param,
    )  # fmt: skip
    assert client.gateway.journey.submissions == []


def test_embeddings_are_refused_with_what_the_gateway_does(client):
    reply = client.call("POST", "/v1/embeddings", body=b'{"model": "x", "input": "y"}')
    assert (reply.status, reply.error["code"]) == (422, "CAPABILITY_UNAVAILABLE")
    assert reply.headers["x-should-retry"] == "false"
