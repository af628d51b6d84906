"""CST-6, PRV-2: an answer that doesn't keep to its cap ends, and is billed up to the cap."""

import asyncio

import pytest

from gateway.providers import answer as answers
from gateway.providers.answer import (
    ANSWER_LIMIT_CHARS,
    LOGPROBS_LIMIT_CHARS,
    PIECES_OVER_CAP,
    PIECES_PER_TOKEN,
    Answer,
)
from gateway.providers.outcomes import Completed, Failed, Unknown
from gateway.providers.said import Chunk, Garbage, Reported, StreamError, Texts
from gateway.settling import within_cap
from gateway.submission import Parameters
from ledger.rates import Usage
from tests.gateway.providers.calls import call
from tests.gateway.providers.raw import HEAD, Raw, at
from tests.gateway.providers.upstream import whole

CAP = 64
MOST = CAP * PIECES_PER_TOKEN + PIECES_OVER_CAP
PIECE = Chunk(text="a", deltas=1, choices=1)
STOP = Chunk(finish_reason="stop", choices=1)


def fed(said, of=None):
    answer = Answer(of or call(max_output_tokens=CAP))
    for each in said:
        answer.take(each, 0)
    return answer


def completed(answer):
    outcome = answer.ended(cleanly=True)
    assert isinstance(outcome, Completed)
    return outcome


def test_an_answer_of_as_many_pieces_as_its_cap_has_bytes_is_left_to_its_end():
    answer = fed([PIECE] * MOST)
    assert (answer.over, answer.finished, answer.unwanted) == (False, False, False)
    usage = Reported(input_tokens=11, output_tokens=CAP)
    answer.take(Chunk(finish_reason="stop", choices=1, reported=usage), 0)
    outcome = completed(answer)
    assert (outcome.finish_reason, outcome.usage.output_tokens) == ("stop", CAP)


def test_an_answer_of_more_pieces_ends_as_if_it_had_stopped_at_its_cap():
    answer = fed([PIECE] * (MOST + 1))
    assert (answer.over, answer.unwanted) == (True, True)
    outcome = completed(answer)
    assert outcome.finish_reason == "length"
    billed = within_cap(outcome, CAP)
    assert (billed.usage, billed.usage_source) == (
        Usage(input_tokens=11, output_tokens=CAP), "estimated",
    )  # fmt: skip


def test_pieces_that_are_never_shown_and_those_read_together_are_counted_too():
    thoughts = fed([Chunk(deltas=1, choices=1)] * (MOST + 1))
    assert completed(thoughts).finish_reason == "length"
    together = Answer(call(max_output_tokens=CAP))
    texts = Texts(like=PIECE, text="a" * 400, count=400, encoded=(b'"a"',) * 400, size_bytes=9)
    together.take_texts(texts, 0)
    assert (together.over, completed(together).finish_reason) == (True, "length")


def test_a_providers_own_total_and_what_is_within_the_cap_stay_as_they_are():
    outcome = fed([PIECE, STOP]).ended(cleanly=True)
    assert within_cap(outcome, CAP) is outcome
    counted = Unknown(
        reason="SHUTDOWN", usage_source="counted",
        usage=Usage(input_tokens=2, output_tokens=9, meters=(("reasoning", 7),)),
    )  # fmt: skip
    assert within_cap(counted, 5).usage == Usage(input_tokens=2, output_tokens=5)
    assert within_cap(counted, 5).usage_source == "estimated"


@pytest.mark.parametrize("together", [False, True])
def test_an_answer_of_too_many_characters_fails_and_keeps_none_beyond(together):
    part = "a" * (ANSWER_LIMIT_CHARS // 2)
    answer = Answer(call())
    for _ in range(3):
        assert not answer.over
        if together:
            answer.take_texts(
                Texts(like=PIECE, text=part, count=1, encoded=(b"",), size_bytes=1), 0
            )
        else:
            answer.take(Chunk(text=part, deltas=1, choices=1), 0)
    outcome = answer.ended(cleanly=True)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "PROVIDER_ANSWER_TOO_LARGE"
    assert (outcome.retryable, answer.over, answer.unwanted) == (False, True, True)


def test_log_probabilities_have_room_of_their_own_where_they_are_asked_for():
    piece = Chunk(text="a", deltas=1, choices=1, logprobs_json="1" * ANSWER_LIMIT_CHARS)
    assert fed([piece]).over is True
    tokens = ANSWER_LIMIT_CHARS // LOGPROBS_LIMIT_CHARS + 1
    asked = call(max_output_tokens=tokens, parameters=Parameters(logprobs=True))
    assert fed([piece], asked).over is False


@pytest.mark.parametrize("said", [Garbage(), StreamError(temporary=True)])
def test_what_comes_after_a_finish_reason_can_t_unmake_the_answer(said):
    answer = fed([PIECE, STOP, said])
    outcome = answer.ended(cleanly=True)
    assert (type(outcome), outcome.finish_reason) == (Completed, "stop")
    assert (outcome.usage.output_tokens, outcome.usage_source) == (1, "estimated")
    assert answer.unwanted  # what else such a server says is not waited for


def test_a_backend_that_never_ends_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(answers, "PIECES_OVER_CAP", 0)
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    said = (
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + 400 * (b"%x\r\n%b\r\n" % (len(chunk), chunk))
    )

    async def scenario(provider, declared):
        text, outcome = await whole(provider.start(call(declared, max_output_tokens=CAP)))
        while provider._pools["real-1"]._origins:
            await asyncio.sleep(0)
        return len(text) >= CAP * PIECES_PER_TOKEN, type(outcome), outcome.finish_reason

    assert at(Raw(said), scenario) == (True, Completed, "length")


TORN = b"".join(
    b"data: %b\n\n" % each
    for each in (
        b'{"choices":[{"index":0,"delta":{"content":"whole"}}]}',
        b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
        b'{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":1}}',
    )
)[:-30]  # fmt: skip


def test_a_whole_answer_whose_tail_is_torn_is_completed_with_an_estimate():
    """PRV-2: a length that is short of the usage, as a proxy or a failing server cuts it."""

    async def scenario(provider, declared):
        text, outcome = await whole(provider.start(call(declared)))
        return text, type(outcome), outcome.usage, outcome.usage_source

    said = HEAD + b"content-length: %d\r\n\r\n" % len(TORN) + TORN
    usage = Usage(input_tokens=11, output_tokens=1)
    assert at(Raw(said), scenario) == ("whole", Completed, usage, "estimated")


@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_a_refused_request_is_refused_though_its_caller_leaves_before_the_refusals_body(leave):
    """RTY-2: its status was there, and so nothing ran; it is neither charged nor held."""
    said = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 33\r\n\r\n" + b'{"error":'

    async def scenario(provider, declared):
        attempt = provider.start(call(declared))
        while attempt._judged is None:
            await asyncio.sleep(0)
        attempt.cancel("CLIENT_GONE") if leave == "cancel" else attempt.close()
        _, outcome = await whole(attempt)
        return outcome.status, outcome.reason, outcome.usage.input_tokens

    assert at(Raw(said), scenario) == ("failed", "PROVIDER_REFUSED", 0)
