"""CST-6: a count is the number that it stands for, however a server writes it; else it is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.kserve_address import Counts
from gateway.providers.kserve_shapes import Reader
from gateway.providers.openai_shapes import EventReader, read_event
from gateway.providers.openai_status import chat_outcome, response_outcome
from gateway.providers.outcomes import Outcome
from gateway.providers.said import REPORTED_TOKENS_LIMIT, Chunk, Reported, Said, usage_of
from gateway.providers.sse_reader import SseEvent
from ledger.invoices.fields import Fields, Number
from ledger.invoices.values import Unreadable
from ledger.rates import Usage
from ledger.usage import convention_of

ENDED = '[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]'


def members(**values: str) -> str:
    """A JSON object of values as they are written."""
    return "{" + ",".join(f'"{name}":{text}' for name, text in values.items()) + "}"


def chat(choices: str, given: str, made: str) -> str:
    return members(choices=choices, usage=members(prompt_tokens=given, completion_tokens=made))


def reported(said: Said) -> Reported | None:
    return said.reported if isinstance(said, Chunk) else None


def event(text: str) -> SseEvent:
    return SseEvent(name="message", data=text.encode())


def streamed(given: str, made: str) -> Reported | None:
    return reported(EventReader()(event(chat("[]", given, made))))


def whole(given: str, made: str) -> Reported | None:
    return reported(read_event(event(chat(ENDED, given, made))))


def kserve(mode: Counts, given: str, *made: str) -> Reported | None:
    reader, told = Reader(mode), None
    for one in made:
        body = members(text_output='"a"', num_input_tokens=given, num_output_tokens=one)
        told = reported(reader.event(event(body)))
    return told


SHAPES = {
    "a stream's last chunk": streamed,
    "a whole answer": whole,
    "KServe, totals": lambda given, made: kserve("totals", given, made),
    "KServe, deltas": lambda given, made: kserve("deltas", given, made),
}


@st.composite
def written(draw) -> tuple[int, str]:
    """(a count, a way to write it in JSON)"""
    count = draw(st.integers(0, REPORTED_TOKENS_LIMIT))
    ways = (
        f"{count}",
        f"{count}.0",
        f"{count}.000",
        f"{count}e0",
        f"{count * 10}E-1",
        f"{count}.0e+0",
    )
    return count, draw(st.sampled_from(ways))


NO_JSON = ("1e400", "NaN", "Infinity", "-Infinity")  # by the decoder of answers, at least
NO_COUNTS = st.one_of(
    st.integers(0, REPORTED_TOKENS_LIMIT).map(lambda n: f"{n}.5"),
    st.integers(1, 10**9).map(lambda n: f"-{n}"),
    st.integers(1, 10**9).map(lambda n: f"-{n}.0"),
    st.integers(REPORTED_TOKENS_LIMIT + 1, 10**30).map(str),
    st.integers(REPORTED_TOKENS_LIMIT + 1, 10**30).map(lambda n: f"{n}.0"),
    st.sampled_from(("true", "false", '"5"', '"5.0"', "[]", "[5]", "{}", "5e-1", "1e300", "0.1")),
    st.sampled_from(NO_JSON),
)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@given(given_count=written(), made=written())
def test_every_way_to_write_a_whole_number_is_that_count(shape, given_count, made):
    told = shape(given_count[1], made[1])
    assert (told.input_tokens, told.output_tokens) == (given_count[0], made[0])
    assert type(told.input_tokens) is type(told.output_tokens) is int
    usage, source = usage_of(told, input_tokens=8, deltas=3)
    assert usage == Usage(input_tokens=given_count[0], output_tokens=made[0])
    assert source == "provider"


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@given(NO_COUNTS)
def test_what_is_no_count_is_missing_and_the_usage_an_estimate(shape, text):
    told = shape("9", text)
    usage, source = usage_of(told, input_tokens=9, deltas=3)
    assert (usage, source) == (Usage(input_tokens=9, output_tokens=3), "estimated")


@given(st.lists(written(), min_size=1, max_size=5), NO_COUNTS, st.integers(0, 5))
def test_a_sum_of_deltas_is_known_only_where_each_of_them_is(counts, text, at):
    """Of totals the last one counts. What is no JSON at all is no report, and never gets here."""
    texts = [one for _, one in counts]
    total = sum(count for count, _ in counts)
    told = kserve("deltas", "9", *texts)
    assert told is not None
    assert told.output_tokens == (total if total <= REPORTED_TOKENS_LIMIT else None)
    if text not in NO_JSON:
        odd = kserve("deltas", "9", *texts[:at], text, *texts[at:], "null")
        assert odd is not None and odd.output_tokens is None
    last = kserve("totals", "9", text, texts[-1])
    assert last is not None and last.output_tokens == counts[-1][0]


@given(written(), NO_COUNTS)
def test_what_a_server_says_of_an_unknown_is_read_alike(count, text):
    """PRV-3: without its counts an end isn't one, and the attempt stays an unknown."""
    convention = convention_of("openai-chat")

    def ends(made: str) -> tuple[Outcome | None, ...]:
        usage = members(input_tokens="9", output_tokens=made)
        return (
            chat_outcome(chat(ENDED, "9", made).encode(), convention),
            response_outcome(members(status='"completed"', usage=usage).encode()),
        )

    for outcome in ends(count[1]):
        assert outcome is not None
        assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (9, count[0])
    assert ends(text) == (None, None)


@given(written())
def test_an_invoices_counts_are_read_alike(count):
    assert Fields(json_value(count[1]), line=1).tokens("n") == count[0]


@pytest.mark.parametrize("text", [*NO_JSON, "5.5", "-1", "-1.0", "true", "[5]", "{}", "null"])
def test_an_invoices_line_with_another_is_refused(text):
    with pytest.raises(Unreadable):
        Fields(json_value(text), line=1).tokens("n")


def json_value(text: str) -> dict[str, Any]:
    """An importer keeps the digits of a number, and no float of it."""
    kept: dict[str, Any] = json.loads(
        members(n=text), parse_float=Number, parse_int=Number, parse_constant=Number
    )
    return kept
