"""DLV-5: a stream read as bytes, cut anywhere, gives the same events."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.sse_reader import (
    EVENT_LIMIT_BYTES,
    LINE_LIMIT_BYTES,
    SseEvent,
    SseReader,
    StreamTooLarge,
)
from tests.faults.plan import Plan, body_of

RECORDED = body_of(Plan(comments=True, usage="running", newline="\r\n"))


def read(*parts: bytes) -> list[SseEvent]:
    reader = SseReader()
    events = [event for part in parts for event in reader.feed(part)]
    return events + reader.end()


def data(*parts: bytes) -> list[bytes]:
    return [event.data for event in read(*parts)]


def test_every_byte_of_a_recorded_stream_as_the_cut_gives_the_same_events():
    whole = read(RECORDED)
    assert len(whole) == 11  # role, eight tokens, finish, [DONE]
    assert whole[-1].data == b"[DONE]"
    for at in range(len(RECORDED) + 1):
        assert read(RECORDED[:at], RECORDED[at:]) == whole, f"cut at byte {at}"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_stream_byte_by_byte_gives_the_same_events(newline):
    stream = body_of(Plan(comments=True, newline=newline))
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == read(stream)


LINES = st.sampled_from(
    [b"data: {}", b"data:", b"data", b"data:  x", b": keep-alive", b"event: error", b"error: {}",
     b"id: 1", b"retry: 5", "data: lörry 🚚".encode(), b"", b"", b"data: \xff\xfe"]
)  # fmt: skip
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    lines=st.lists(st.tuples(LINES, NEWLINES), max_size=20),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_any_lines_with_any_ends_cut_anywhere_give_the_same_events(lines, cuts):
    stream = b"".join(line + newline for line, newline in lines)
    at = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    parts = [stream[a:b] for a, b in pairwise(at)]
    assert read(*parts) == read(stream)


def test_comments_and_blank_data_lines_are_nothing():
    assert data(b": hi\n\ndata:\n\ndata: \n\n\n\nid: 7\n\nretry: 10\n\n") == []


def test_the_data_lines_of_an_event_are_joined_and_one_space_is_taken_off():
    assert data(b"data:  a\ndata:b\n\n") == [b" a\nb"]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    assert data(b"\xef\xbb", b"\xbfdata: a\n\n") == [b"a"]


def test_the_last_event_counts_without_its_blank_line_and_without_its_line_end():
    assert data(b"data: a\n\ndata: b\n") == [b"a", b"b"]
    assert data(b"data: a\n\ndata: b") == [b"a", b"b"]


def test_an_event_has_its_name_and_an_error_line_is_an_event_named_error():
    assert read(b'event: error\ndata: {"a":1}\n\nerror: {"b":2}\n\ndata: c\n\n') == [
        SseEvent(name="error", data=b'{"a":1}'),
        SseEvent(name="error", data=b'{"b":2}'),
        SseEvent(name="message", data=b"c"),
    ]


def test_an_event_named_error_counts_without_data_and_no_other_does():
    assert read(b"event: error\n: out of memory\n\n") == [SseEvent(name="error", data=b"")]
    assert read(b"event: ping\n\n") == []


def test_a_line_of_the_limit_is_read_and_a_longer_one_is_refused_whole_or_in_parts():
    longest = b"data: " + b"x" * (LINE_LIMIT_BYTES - 6)
    assert len(data(longest + b"\n\n")[0]) == LINE_LIMIT_BYTES - 6
    for parts in ([longest + b"x\n"], [longest, b"x"], [b": a\n" + longest + b"x"]):
        with pytest.raises(StreamTooLarge, match="line"):
            read(*parts)


def test_an_event_of_many_lines_over_the_limit_is_refused():
    line = b"data: " + b"x" * (EVENT_LIMIT_BYTES // 4) + b"\n"
    with pytest.raises(StreamTooLarge, match="event"):
        read(line * 4 + b"\n")
