"""Bad input gets a structured error, reaches nothing, and is quoted nowhere (SEC-1, SEC-3)."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import metrics
from gateway.api.problems import Problem
from gateway.api.wire import read_chat_request
from tests.gateway.api.client import BODY_LIMIT_BYTES, Client, SmallGateway

CANARY = "canary-7f3a"
MESSAGES = [{"role": "user", "content": CANARY}]


def body(**fields):
    return json.dumps({"model": "assistant-large", "messages": MESSAGES, **fields}).encode()


def message(content):
    return body(messages=[{"role": "user", "content": content}])


UNREADABLE = {
    "nothing": (b"", None),
    "malformed JSON": (b'{"model": "assistant-large", "canary-7f3a', None),
    "a list": (b'["canary-7f3a"]', None),
    "not UTF-8": (b'{"model":"canary-7f3a\xff"}', None),
    "a lone surrogate": (message(f"{CANARY} \ud83d"), None),
    "a NUL": (message(f"{CANARY}\x00"), "messages[0]"),
    "a raw NUL": (b'{"model":"canary-7f3a\x00"}', None),
    "deep nesting": (b'{"model":"a","messages":[],"tools":' + b"[" * 4_000, None),
    "no messages": (b'{"model":"canary-7f3a"}', "messages"),
    "no message": (body(messages=[]), "messages"),
    "a role of its own": (
        body(messages=[{"role": CANARY, "content": CANARY}]),
        "messages[0].role",
    ),
    "a number as content": (message(7), "messages[0].content"),
    "an image": (message([{"type": "image_url", "image_url": CANARY}]), "messages[0].content[0]"),
    "max_tokens as text": (body(max_tokens=CANARY), "max_tokens"),
    "max_tokens x": (body(max_tokens="x"), "max_tokens"),
    "max_tokens as a float": (body(max_tokens=1.5), "max_tokens"),
    "max_tokens beyond 2^53": (body(max_tokens=10**30), "max_tokens"),
    "two different caps": (
        body(max_tokens=5, max_completion_tokens=6),
        "max_completion_tokens",
    ),
    "temperature as text": (body(temperature=CANARY), "temperature"),
    "temperature as a truth": (body(temperature=True), "temperature"),
    "temperature above 2": (body(temperature=2.01), "temperature"),
    "temperature below 0": (body(temperature=-0.1), "temperature"),
    "top_p above 1": (body(top_p=1.5), "top_p"),
    "top_p below 0": (body(top_p=-1), "top_p"),
    "stop as an object": (body(stop={CANARY: 1}), "stop"),
    "stop with a number": (body(stop=[CANARY, 1]), "stop[1]"),
    "five stops": (body(stop=[CANARY] * 5), "stop"),
    "no stop in a list": (body(stop=[]), "stop"),
    "an empty stop": (body(stop=["a", ""]), "stop"),
    "a stop of 513 characters": (body(stop="a" * 513), "stop"),
    "logprobs as text": (body(logprobs=CANARY), "logprobs"),
    "functions of the older form": (body(functions=[{"name": CANARY}]), "functions"),
    "a call of the older form": (body(function_call={"name": CANARY}), "functions"),
    "spoken answers": (body(modalities=["text", CANARY]), "modalities"),
    "the likeliest without logprobs": (body(top_logprobs=2), "top_logprobs"),
    "21 of the likeliest": (body(logprobs=True, top_logprobs=21), "top_logprobs"),
    "no answer": (body(n=0), "n"),
    "nine answers": (body(n=9), "n"),
    "a penalty above 2": (body(presence_penalty=2.5), "presence_penalty"),
    "a penalty as text": (body(frequency_penalty=CANARY), "frequency_penalty"),
    "a bias above 100": (body(logit_bias={"7": 101}), "logit_bias[...]"),
    "a bias of a word": (body(logit_bias={CANARY: 1}), "logit_bias"),
    "an effort that is no word": (body(reasoning_effort=f"{CANARY} !"), "reasoning_effort"),
    "a call without tools": (body(tool_choice="required"), "tool_choice"),
    "a choice of an unknown tool": (
        body(
            tools=[{"type": "function", "function": {"name": "f"}}],
            tool_choice={"type": "function", "function": {"name": CANARY}},
        ),
        "tool_choice",
    ),
    "a choice that is none": (
        body(tools=[{"type": "function", "function": {"name": "f"}}], tool_choice=CANARY),
        "tool_choice",
    ),
    "a tool without a name": (body(tools=[{"type": "function", "function": {}}]), "tools"),
    "a tool with an odd name": (
        body(tools=[{"type": "function", "function": {"name": f"{CANARY} !"}}]),
        "tools[0]",
    ),
    "a schema that is none": (
        body(
            response_format={
                "type": "json_schema",
                "json_schema": {"schema": {"type": CANARY}},
            }
        ),
        "response_format.json_schema.schema",
    ),
    "metadata with a float": (body(metadata={"max_cost_units": 0.5}), "metadata[...]"),
    "a priority of its own": (body(metadata={"priority": CANARY}), "metadata.priority"),
}


@pytest.fixture
def client():
    return Client(SmallGateway())


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_body_that_cannot_be_read_is_refused_by_place_and_unquoted(client, kind, caplog):
    sent, param = UNREADABLE[kind]
    reply = client.chat(sent)
    assert (reply.status, reply.error["code"]) == (400, "INVALID_REQUEST")
    assert reply.error["type"] == "invalid_request_error"
    assert reply.error["param"] == param
    assert reply.headers["x-should-retry"] == "false"
    assert reply.headers["x-request-id"].startswith("xch_")
    assert client.gateway.journey.submissions == []
    assert CANARY.encode() not in reply.body and b"Traceback" not in reply.body
    assert CANARY not in caplog.text
    assert CANARY.encode() not in metrics.exposition()


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0, "top_p": 1, "stop": "\n", "logprobs": False},
        {"temperature": 2.0, "top_p": 0.5, "stop": ["a", "b", "c", "d"]},
        {"temperature": None, "top_p": None, "stop": None, "logprobs": None},
        {"max_tokens": 5, "max_completion_tokens": 5},
        {"logprobs": False, "top_logprobs": 0, "modalities": ["text"], "function_call": "none"},
        {
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": None, "refusal": "No."},
            ]
        },
        {"n": 8, "presence_penalty": -2, "frequency_penalty": 2, "logit_bias": {"50256": -100}},
        {"logprobs": True, "top_logprobs": 20, "reasoning_effort": "low", "n": None},
        {"tool_choice": "none", "parallel_tool_calls": False, "user": "u", "store": False},
    ],
)
def test_parameters_within_their_ranges_are_taken(fields):
    assert not isinstance(read_chat_request(body(**fields)), Problem)


def test_an_unknown_model_is_a_404_that_lists_the_known_ones_only(client):
    reply = client.chat(body(model=CANARY))
    assert (reply.status, reply.error["code"]) == (404, "MODEL_NOT_FOUND")
    assert "assistant-large, assistant-small" in reply.error["message"]
    assert CANARY.encode() not in reply.body
    assert client.gateway.journey.submissions == []


@pytest.mark.parametrize("max_tokens", [0, -1, 10**12])
def test_a_senseless_token_count_reaches_admission_as_it_is(client, max_tokens, ledger_path):
    client = Client(SmallGateway(ledger_path))
    client.chat(body(max_tokens=max_tokens))
    assert client.gateway.journey.submissions[0].max_output_tokens == max_tokens


@pytest.mark.parametrize("authorization", ["", "Bearer ", "Bearer wb_guess", "Basic d2I6", "é"])
def test_without_a_key_that_is_known_nothing_is_read(client, authorization):
    reply = client.chat(headers={"authorization": authorization})
    assert (reply.status, reply.error["code"]) == (401, "UNAUTHENTICATED")
    assert reply.headers["www-authenticate"] == 'Bearer realm="weighbridge"'
    assert client.gateway.journey.submissions == []


def test_a_body_over_the_limit_is_a_413_whether_announced_or_not(client):
    large = message("a" * BODY_LIMIT_BYTES)
    announced = client.chat(large)
    streamed = client.chat(large, headers={"content-length": ""})
    lying = client.chat(large, headers={"content-length": "10"})
    for reply in (announced, streamed, lying):
        assert (reply.status, reply.error["code"]) == (413, "BODY_TOO_LARGE")
    assert announced.headers.get("connection") is None  # the rest is read and dropped
    assert client.gateway.journey.submissions == []


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 30, "²"])
def test_a_content_length_that_is_no_number_is_hung_up_on(client, length):
    reply = client.chat(headers={"content-length": length})
    assert (reply.status, reply.headers["connection"]) == (413, "close")


def test_a_client_that_hangs_up_before_its_body_is_whole_gets_nothing_and_runs_nothing(client):
    async def exchange():
        sent = []
        incoming = [
            {"type": "http.request", "body": b'{"model":', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive():
            return incoming.pop(0)

        async def send(message):
            sent.append(message)

        key = client.gateway.key_of["tenant-a"]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [(b"authorization", f"Bearer {key}".encode())],
        }
        await client.application(scope, receive, send)
        return sent

    assert asyncio.run(exchange()) == []
    assert client.gateway.journey.submissions == []


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_problem(sent):
    read_chat_request(sent)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = (
    "temperature", "top_p", "stop", "logprobs",
    "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n",
    "tools", "response_format", "seed", "ignore_eos", "metadata",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES))
def test_any_json_in_any_known_field_is_a_request_or_a_problem_that_quotes_no_text(fields):
    result = read_chat_request(body(**fields))
    if isinstance(result, Problem):
        assert CANARY not in result.message


def test_a_cut_anywhere_in_a_valid_body_is_a_problem():
    whole = body(stream=True, tools=None, seed=1)
    cuts = [read_chat_request(whole[:end]) for end in range(len(whole))]
    assert {type(cut) for cut in cuts} == {Problem}
