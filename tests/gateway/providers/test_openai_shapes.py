"""PRV-2, CST-6: every shape in which a compatible server answers is read into one."""

import json

import orjson
import pytest

from gateway.providers.openai_address import backend_of
from gateway.providers.openai_request import request_fields
from gateway.providers.openai_shapes import read_event
from gateway.providers.said import (
    REPORTED_TOKENS_LIMIT,
    Chunk,
    Done,
    Garbage,
    Reported,
    StreamError,
    provider_id,
    usage_of,
)
from gateway.providers.sse_reader import SseEvent
from gateway.submission import Message
from ledger.rates import Usage
from tests.faults.plan import ERROR_SHAPES
from tests.gateway.providers.calls import call, route


def sent_for(asked, **settings):
    return json.loads(orjson.dumps(request_fields(asked, backend_of(route(**settings)))))


def said(body, name="message"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_event(SseEvent(name=name, data=data))


def chunk(delta=None, finish=None, **fields):
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return said({"id": "chatcmpl-1", "choices": choices, **fields})


def test_a_piece_of_text_is_one_delta():
    assert chunk({"content": "lörry"}) == Chunk(
        provider_id="chatcmpl-1", text="lörry", deltas=1, choices=1
    )


@pytest.mark.parametrize("delta", [{}, {"role": "assistant"}, {"content": ""}, {"content": None}])
def test_a_chunk_without_text_is_no_delta(delta):
    assert (chunk(delta).text, chunk(delta).deltas) == ("", 0)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "tool_calls"])
def test_reasoning_and_tool_calls_count_as_output_and_are_no_text(name):
    assert (chunk({name: "hm"}).text, chunk({name: "hm"}).deltas) == ("", 1)


def test_usage_comes_in_its_own_chunk_in_the_finish_chunk_or_not_at_all():
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    reported = Reported(
        input_tokens=9, output_tokens=4, cached_input_tokens=0, convention="openai-chat"
    )
    own = said({"choices": [], "usage": usage})
    assert (own.reported, own.choices) == (reported, 0)
    assert chunk({}, "stop", usage=usage).reported == reported
    assert chunk({}, "stop", usage=None).reported is None
    assert chunk({}, "stop").reported is None


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 6}},
        {"prompt_cache_hit_tokens": 6},
    ],
)
def test_cached_tokens_are_inside_the_input(usage):
    told = said({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, **usage}})
    assert usage_of(told.reported, input_tokens=8, deltas=3) == (
        Usage(input_tokens=9, output_tokens=4, cached_input_tokens=6),
        "provider",
    )


def test_cached_tokens_are_never_more_than_the_input():
    usage, _ = usage_of(
        Reported(input_tokens=5, output_tokens=1, cached_input_tokens=50), input_tokens=8, deltas=1
    )
    assert usage.cached_input_tokens == 5


def test_a_reported_zero_is_a_zero():
    told = Reported(input_tokens=0, output_tokens=0, cached_input_tokens=0)
    assert usage_of(told, input_tokens=8, deltas=3) == (
        Usage(input_tokens=0, output_tokens=0),
        "provider",
    )


@pytest.mark.parametrize("count", [None, -1, 1.5, "12", True, REPORTED_TOKENS_LIMIT + 1])
def test_what_is_no_count_is_a_missing_count_and_a_missing_count_is_an_estimate(count):
    told = said({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": count}})
    assert usage_of(told.reported, input_tokens=8, deltas=3) == (
        Usage(input_tokens=9, output_tokens=3),
        "estimated",
    )


def test_without_any_usage_input_is_admissions_and_output_the_number_of_deltas():
    assert usage_of(None, input_tokens=8, deltas=3) == (
        Usage(input_tokens=8, output_tokens=3),
        "estimated",
    )


@pytest.mark.parametrize("shape", ERROR_SHAPES)
def test_an_error_object_in_any_of_its_shapes_is_an_error(shape):
    assert said(shape) == StreamError(temporary=True)
    assert said(shape, name="error") == StreamError(temporary=True)


@pytest.mark.parametrize(
    ("error", "temporary"),
    [
        ({"code": 400}, False),
        ({"code": "422"}, False),
        ({"type": "BadRequestError"}, False),
        ({"type": "invalid_request_error", "code": "context_length_exceeded"}, False),
        ({"code": 429}, True),
        ({"code": 503}, True),
        ({"code": "overloaded"}, True),
    ],
)
def test_a_clients_mistake_is_not_temporary(error, temporary):
    assert said({"error": {"message": "no", **error}}) == StreamError(temporary=temporary)


def test_an_event_named_error_is_an_error_whatever_its_data():
    for data in (b"out of memory", b"[1]", b'{"message":"x"}'):
        assert said(data, name="error") == StreamError(temporary=True)


def test_log_probabilities_are_handed_on_as_they_are_and_empty_ones_are_none():
    given = {"content": [{"token": "a", "logprob": -0.1}]}
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": given}
    assert json.loads(said({"choices": [choice]}).logprobs_json) == given
    for nothing in (None, {}, {"content": None}, {"content": []}, 7):
        assert said({"choices": [{**choice, "logprobs": nothing}]}).logprobs_json is None


def test_an_empty_error_field_is_no_error():
    assert isinstance(chunk({"content": "a"}, error=None), Chunk)


def test_done_and_garbage_are_told_apart():
    assert said(b" [DONE] ") == Done()
    for data in (b'{"choices": [{"del', b"[1, 2]", b"hello", b'{"choices": "\xff"}'):
        assert said(data) == Garbage()


def test_only_the_first_of_several_choices_counts():
    choices = [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]
    assert said({"choices": choices}).text == "a"


def test_a_whole_answer_is_read_as_one_chunk_and_its_tokens_are_estimated_from_its_bytes():
    message = {"role": "assistant", "content": "nine byte"}
    whole = said({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert (whole.text, whole.deltas, whole.finish_reason) == ("nine byte", 3, "stop")


def test_no_text_can_pass_as_a_request_id():
    assert provider_id("chatcmpl-9f:1") == "chatcmpl-9f:1"
    for value in ("tell me a story", "x" * 129, "", None, 7, "a\nb"):
        assert provider_id(value) is None


def test_the_request_is_always_streamed_with_usage_and_a_cap():
    sent = sent_for(call(max_output_tokens=5))
    assert sent == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "How heavy is a lörry?"}],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_seed_schema_and_tool_messages_are_sent_as_the_caller_gave_them():
    calls = '[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]'
    asked = call(
        seed=7,
        ignore_eos=True,
        schema={"type": "object"},
        messages=(
            Message(role="assistant", content="", tool_calls_json=calls),
            Message(role="tool", content="42", tool_call_id="c1"),
        ),
    )
    sent = sent_for(asked)
    assert (sent["seed"], sent["ignore_eos"]) == (7, True)
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }
    assert sent["messages"] == [
        {"role": "assistant", "content": "", "tool_calls": json.loads(calls)},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
