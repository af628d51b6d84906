"""PRV-2, CST-6: text after an answer's final event, two finals, or none: each a defined outcome."""

import asyncio
import json

import pytest

from gateway.providers.http_pool import Patience
from gateway.providers.outcomes import Completed, Failed, Unknown
from tests.gateway.providers.calls import call
from tests.gateway.providers.raw import HEAD, Raw, answers, at


def kserve(text="", **more):
    """An event of the Open Inference Protocol."""
    return event({"model_name": "m", "text_output": text, **more})


def chat(text="", finish=None, **more):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"id": "c-1", "choices": [choice], **more})


def event(body) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def told(*events, kind="kserve", **settings):
    """(text, outcome) of an attempt that is answered with these events."""
    body = b"".join(events)
    said = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    [end], _ = answers(said, kind=kind, **settings)
    return end


def test_text_after_a_final_is_the_answers_and_the_final_after_it_is_the_one_that_counts():
    text, end = told(kserve("a", done=True), kserve("b"), kserve("c", finish_reason="length"))
    assert (text, type(end), end.finish_reason) == ("abc", Completed, "length")
    text, end = told(chat("a", "stop"), chat("b", "stop"), chat("", "length"), kind="openai")
    assert (text, type(end), end.finish_reason) == ("ab", Completed, "stop")


def test_text_after_the_only_final_is_the_answers_where_the_stream_ends_cleanly():
    text, end = told(kserve("a", done=True), kserve(" and more"))
    assert (text, type(end), end.finish_reason) == ("a and more", Completed, "stop")
    assert end.usage_source == "counted" and end.usage.output_tokens == 3


def test_a_stream_that_fails_in_the_text_after_its_final_is_not_whole():
    text, end = told(kserve("a", done=True), kserve("b"), event({"error": "out of memory"}))
    assert (text, type(end), end.reason) == ("ab", Failed, "PROVIDER_STREAM_ERROR")


def test_of_two_finals_without_text_between_the_first_counts_and_the_last_counts_of_tokens():
    counts = {"num_input_tokens": 11, "num_output_tokens": 2}
    more = {"num_input_tokens": 11, "num_output_tokens": 5}
    first, second = kserve(finish_reason="stop", **counts), kserve(finish_reason="length", **more)
    text, end = told(kserve("ab"), first, second, counts="totals")
    assert (text, end.finish_reason) == ("ab", "stop")
    assert (end.usage.output_tokens, end.usage_source) == (5, "provider")
    _, end = told(kserve("ab", done=True), kserve(done=True))
    assert (type(end), end.finish_reason) == (Completed, "stop")


def test_counts_that_came_with_a_final_are_no_total_where_text_follows_it():
    counts = {"num_input_tokens": 11, "num_output_tokens": 1}
    _, end = told(kserve("a", done=True, **counts), kserve("b"), kserve("c"), counts="totals")
    assert (end.usage.output_tokens, end.usage_source) == (3, "estimated")


@pytest.mark.parametrize("kind", ["kserve", "openai"])
@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"])
def test_without_a_final_a_clean_end_has_failed(kind, end):
    said = kserve("a") if kind == "kserve" else chat("a")
    text, outcome = told(said, end, kind=kind)
    assert (text, type(outcome), outcome.reason) == ("a", Failed, "PROVIDER_STREAM_WITHOUT_FINISH")


class InParts(Raw):
    """Answers in two parts, the second one when it is told."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__(b"")
        self.parts, self.on = parts, asyncio.Event()

    async def read(self, writer):
        self.requests += 1
        writer.write(self.parts[0])
        await self.on.wait()
        writer.write(self.parts[1])
        writer.close()


@pytest.mark.parametrize(
    ("after", "kind"), [(kserve("b"), Unknown), (kserve("b", done=True), Completed)]
)
def test_a_torn_stream_is_unknown_unless_its_last_text_had_a_final_of_its_own(after, kind):
    raw = InParts(HEAD + b"content-length: 999\r\n\r\n" + kserve("a", done=True), after)

    async def scenario(provider, declared):
        attempt, pieces = provider.start(call(declared)), []

        def take(piece):
            pieces.append(piece.text)
            raw.on.set()

        return await attempt.carry(take), "".join(pieces)

    outcome, text = at(raw, scenario, kind="kserve", patience=Patience(tail_s=5.0))
    assert (type(outcome), text) == (kind, "ab")
