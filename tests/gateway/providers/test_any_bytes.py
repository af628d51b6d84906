"""Whatever a backend sends, reading it gives a value and never a fault (SEC-3, PRV-2)."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.answer import Answer
from gateway.providers.http_exchange import OPTIONAL, refused_parameters
from gateway.providers.kserve_shapes import Reader
from gateway.providers.openai_shapes import read_event
from gateway.providers.openai_status import chat_outcome, response_outcome
from gateway.providers.outcomes import Outcome
from gateway.providers.said import Chunk, Done, Garbage, StreamError
from gateway.providers.sse_reader import SseEvent, SseReader
from ledger.usage import convention_of
from tests.gateway.clock import VirtualClock
from tests.gateway.providers.calls import call

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
CALL = st.fixed_dictionaries(
    {}, optional={"index": JUNK, "id": JUNK, "function": JUNK | st.fixed_dictionaries(
        {}, optional={"name": JUNK, "arguments": JUNK})}
)  # fmt: skip
DELTA = st.fixed_dictionaries(
    {}, optional={"content": JUNK, "tool_calls": JUNK | st.lists(CALL, max_size=3),
                  "reasoning_content": JUNK}
)  # fmt: skip
CHOICE = st.fixed_dictionaries(
    {}, optional={"index": JUNK, "delta": JUNK | DELTA, "message": JUNK | DELTA,
                  "finish_reason": JUNK | st.sampled_from(["stop", "length"]), "logprobs": JUNK}
)  # fmt: skip
USAGE = st.fixed_dictionaries(
    {}, optional={"prompt_tokens": JUNK, "completion_tokens": JUNK,
                  "prompt_tokens_details": JUNK, "input_tokens": JUNK, "output_tokens": JUNK}
)  # fmt: skip
BODY = st.fixed_dictionaries(
    {},
    optional={
        "id": JUNK, "choices": JUNK | st.lists(CHOICE, max_size=3), "usage": JUNK | USAGE,
        "error": JUNK, "detail": JUNK, "object": JUNK, "status": JUNK, "text_output": JUNK,
        "done": JUNK, "details": JUNK, "model_version": JUNK, "num_input_tokens": JUNK,
        "num_output_tokens": JUNK, "incomplete_details": JUNK,
    },
)  # fmt: skip
SENT = (JUNK | BODY).map(lambda body: json.dumps(body).encode()) | st.binary(max_size=40)
SAID = (Chunk, Done, Garbage, StreamError)


@given(st.lists(SENT, max_size=5), st.sampled_from(["message", "error", "ping"]))
def test_any_events_of_either_protocol_make_one_outcome(sent, name):
    for read in (read_event, Reader("deltas").event, Reader("totals").event, Reader(None).whole):
        answer, clock = Answer(call(), count_text=len, version="1"), VirtualClock(1)
        for data in sent:
            said = read(SseEvent(name=name, data=data))
            assert isinstance(said, SAID)
            answer.take(said, clock.now_us())
        outcome = answer.ended(cleanly=True)
        assert isinstance(outcome, Outcome)
        usage = outcome.usage
        assert 0 <= usage.cached_input_tokens <= usage.input_tokens
        assert usage.output_tokens >= 0


@given(SENT)
def test_any_body_tells_an_end_or_nothing(body):
    for told in (chat_outcome(body, convention_of("openai-chat")), response_outcome(body)):
        assert told is None or isinstance(told, Outcome)


@given(SENT)
def test_any_refusal_names_optional_parameters_alone(body):
    assert set(refused_parameters(body, OPTIONAL)) <= OPTIONAL


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_are_events_or_nothing(parts):
    reader = SseReader()
    events = [event for part in parts for event in reader.feed(part)] + reader.end()
    assert all(event.data.strip() or event.name == "error" for event in events)
