"""What is read in a shorter way says the same as what is read in full (DLV-5, PRV-2)."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.providers.kserve_shapes import Reader
from gateway.providers.openai_shapes import FIRST_LESSON, PROBE, EventReader, read_event
from gateway.providers.said import Chunk, Done, Garbage
from gateway.providers.sse_reader import SseEvent, SseReader

TEXTS = st.one_of(
    st.sampled_from(["a", "id", "stop", "", '"', "\\", "é", "☃", "\n", "delta", " mote", PROBE]),
    st.text(max_size=6),
)
WRITERS = st.sampled_from(
    [
        orjson.dumps,
        lambda body: json.dumps(body).encode(),
        lambda body: json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        lambda body: json.dumps(body, sort_keys=True, indent=1).replace("\n", " ").encode(),
    ]
)
DELTAS = st.one_of(
    st.builds(lambda text: {"content": text}, TEXTS),
    st.builds(lambda text: {"role": "assistant", "content": text}, TEXTS),
    st.builds(lambda text, thought: {"content": text, "reasoning": thought}, TEXTS, TEXTS),
    st.builds(lambda text: {"tool_calls": [{"function": {"arguments": text}}]}, TEXTS),
    st.builds(lambda text: {"content": [{"type": "text", "text": text}]}, TEXTS),
)
CHOICES = st.builds(
    lambda delta, finish, logprobs: {
        "index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs,
    },
    DELTAS,
    st.sampled_from([None, None, None, "stop"]),
    st.sampled_from([None, None, {"content": [{"token": "a"}]}]),
)  # fmt: skip
BODIES = st.one_of(
    st.builds(
        lambda id, choice, usage: {"id": id, "choices": [choice], "usage": usage},
        st.sampled_from(["a", "chatcmpl-1"]),
        CHOICES,
        st.sampled_from([None, {"prompt_tokens": 3, "completion_tokens": 1}]),
    ),
    st.builds(lambda text: {"choices": [{"message": {"content": text}}]}, TEXTS),
    st.builds(lambda text: {"error": {"message": text}}, TEXTS),
)
LITERALS = st.one_of(
    st.sampled_from([b'"a"', b'"a","b":"c"', b'""', b"1", b'"\\udc00"', b'"\xff"', b' "a" ']),
    TEXTS.map(orjson.dumps),
)


@given(st.lists(BODIES, max_size=12), st.integers(0, FIRST_LESSON), WRITERS)
def test_chunks_that_are_read_by_their_text_say_what_they_say_in_full(bodies, again, write):
    bodies = bodies[:1] * again + bodies
    events = [SseEvent(name="message", data=write(body)) for body in bodies]
    reader = EventReader()
    assert [reader(event) for event in events] == [read_event(event) for event in events]


@given(st.lists(LITERALS, max_size=12))
def test_whatever_stands_in_the_texts_place_is_read_as_in_full(literals):
    taught = [b'"x"'] * FIRST_LESSON
    begun = [b'{"choices":[{"delta":{"content":%b}}]}' % each for each in (*taught, *literals)]
    events = [SseEvent(name="message", data=data) for data in begun]
    reader = EventReader()
    assert [reader(event) for event in events] == [read_event(event) for event in events]


def test_the_text_of_a_learned_chunk_is_not_looked_for_in_an_error_or_the_end():
    reader, data = EventReader(), b'{"choices":[{"delta":{"content":"x"}}]}'
    for _ in range(FIRST_LESSON + 1):
        assert isinstance(reader(SseEvent(name="message", data=data)), Chunk)
    assert reader(SseEvent(name="error", data=data)) == read_event(
        SseEvent(name="error", data=data)
    )
    assert reader(SseEvent(name="message", data=b"[DONE]")) == Done()


CHUNK = b'{"id":"c-1","choices":[{"delta":{"content":%b}}]}'
TORN = st.sampled_from(
    [b'"x', b'y"', b'"c","d"', b'"x\\"', b'","b"', b'"\\ud83d"', b'"', b",", b""]
)
ONES = st.one_of(
    LITERALS.map(lambda each: CHUNK % each),
    TORN.map(lambda each: CHUNK % each),
    BODIES.map(orjson.dumps),
)


@given(st.lists(ONES, max_size=9), st.integers(0, 40))
def test_texts_that_are_read_together_are_those_that_are_read_one_by_one(chunks, cut_bytes):
    """DLV-5: and what follows them, cut anywhere, is left as it is."""
    reader = EventReader()
    for _ in range(FIRST_LESSON + 1):
        reader(SseEvent(name="message", data=CHUNK % b'"x"'))
    stream = b"".join(b"data: %b\n\n" % each for each in chunks)
    stream = stream[: max(0, len(stream) - cut_bytes)]
    found = reader.texts(stream)
    if found is None:
        return
    alone = SseReader()
    read = [read_event(event) for event in alone.feed(stream[: found.size_bytes])]
    assert alone.between_events
    texts = [each.text for each in read]
    assert [orjson.loads(each) for each in found.encoded] == texts
    assert (found.text, found.count) == ("".join(texts), len(texts))
    assert all(replace(each, text="") == replace(found.like, text="") for each in read)


def test_texts_escaped_in_whatever_way_are_read_together():
    reader = EventReader()
    for _ in range(FIRST_LESSON + 1):
        reader(SseEvent(name="message", data=CHUNK % b'"x"'))
    events = [b"data: %b\n\n" % (CHUNK % each) for each in (b'"a"', b'"\\u00e9"', b'"\\/"')]
    found = reader.texts(b"".join(events) + b"data: [DONE]\n\n")
    assert (found.text, found.size_bytes) == ("aé/", len(b"".join(events)))
    assert found.encoded == (b'"a"', '"é"'.encode(), b'"/"')


@pytest.mark.parametrize("torn", [(b'"x', b'y"', b'"c","d"'), (b'"x\\"', b'","b"')])
def test_pieces_that_are_no_strings_alone_are_none_together(torn):
    """DLV-5: one of them lends another its quotes, and the sum of them is a list of strings."""
    reader = EventReader()
    for _ in range(FIRST_LESSON + 1):
        reader(SseEvent(name="message", data=CHUNK % b'"x"'))
    events = [SseEvent(name="message", data=CHUNK % each) for each in torn]
    assert reader.texts(b"".join(b"data: %b\n\n" % each.data for each in events)) is None
    assert reader(events[0]) == Garbage()


def said_of(*literals):
    reader = EventReader()
    events = [SseEvent(name="message", data=CHUNK % each) for each in literals]
    return [getattr(said, "text", said) for said in map(reader, events)]


def test_a_character_whose_halves_are_in_two_pieces_is_whole():
    """PRV-2: as servers write it that escape to ASCII and cut anywhere; also between two empty."""
    assert said_of(b'"a\\ud83d"', b'""', b'"\\ude42b\\uD83D"', b'"\\uDE42"') == [
        "a",
        "",
        "🙂b",
        "🙂",
    ]
    assert said_of(b'"\\\\ud83d"', b'"\\ud83d\\ude42"') == ["\\ud83d", "🙂"]


def test_a_character_in_two_pieces_is_whole_by_the_inference_protocol_too():
    reader = Reader(counts=None)
    parts = (b'"a\\ud83d"', b'"\\ude42"', b'"\\ud83d"', b'"b"')
    events = [SseEvent(name="message", data=b'{"text_output":%b}' % each) for each in parts]
    said = [reader.event(event) for event in events]
    assert [each.text for each in said[:3]] == ["a", "🙂", ""]
    assert said[3] == Garbage()


def test_half_a_character_without_its_other_half_is_garbage():
    assert said_of(b'"\\ud83d"', b'"a"') == ["", Garbage()]
    assert said_of(b'"\\ude42"') == [Garbage()]


def test_texts_are_not_read_together_while_half_a_character_is_held():
    reader = EventReader()
    for literal in (*[b'"x"'] * (FIRST_LESSON + 1), b'"\\ud83d"'):
        reader(SseEvent(name="message", data=CHUNK % literal))
    assert reader.texts(b"data: %b\n\n" % (CHUNK % b'"a"')) is None
    assert reader(SseEvent(name="message", data=b"[DONE]")) == Done()


LINES = st.sampled_from(
    [b"data: a", b"data: ", b"data:b", b"data", b"data:  c ", b": note", b"event: error", b"id: 1",
     b"error: e", b"", b"", b"\r", b"data: d\r", b"\xef\xbb\xbfdata: f"]
)  # fmt: skip


@given(st.lists(st.lists(LINES, max_size=6), max_size=5))
def test_a_stream_read_in_parts_of_whole_events_is_the_stream_read_byte_by_byte(parts):
    written = [b"\n".join((*lines, b"", b"")) for lines in parts]
    at_once, slowly = SseReader(), SseReader()
    found = [event for part in written for event in at_once.feed(part)] + at_once.end()
    each = [bytes([byte]) for byte in b"".join(written)]
    assert found == [event for byte in each for event in slowly.feed(byte)] + slowly.end()
