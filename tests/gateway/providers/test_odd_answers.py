"""PRV-2: answers as careless servers bend them: encoded, mislabelled, calls without indexes."""

import gzip
import json
import zlib

import pytest

from gateway.providers.outcomes import Completed, Failed
from gateway.providers.said import TOOL_CALLS_LIMIT
from tests.gateway.providers.calls import call
from tests.gateway.providers.raw import STREAM, Raw, answers, at
from tests.gateway.providers.upstream import TEXT, events_of

OK = b"HTTP/1.1 200 OK\r\n"
SSE = b"content-type: text/event-stream\r\n"


def said(body: bytes, *fields: bytes) -> bytes:
    return OK + b"".join(fields) + b"content-length: %d\r\n\r\n" % len(body) + body


def end_of(answer: bytes):
    [end], _ = answers(answer)
    return end


@pytest.mark.parametrize("name", [b"gzip", b"GZIP", b"x-gzip", b" Gzip "])
def test_a_compressed_answer_that_nobody_asked_for_is_read_however_its_encoding_is_written(name):
    """RFC 9110, section 8.4.1: names are case-insensitive, x-gzip is gzip."""
    text, outcome = end_of(said(gzip.compress(STREAM), SSE, b"content-encoding: %b\r\n" % name))
    assert (text, type(outcome)) == (TEXT, Completed)
    text, _ = end_of(said(zlib.compress(STREAM), SSE, b"content-encoding: Deflate\r\n"))
    assert text == TEXT


@pytest.mark.parametrize("name", [b"br", b"zstd", b"gzip, gzip"])
def test_an_encoding_that_is_not_read_is_said_to_be_no_answer(name):
    """Not that the stream ended without a finish; another attempt would get the same."""
    text, outcome = end_of(said(b"\x0b\x02\x80", SSE, b"content-encoding: %b\r\n" % name))
    assert (text, type(outcome), outcome.reason) == ("", Failed, "PROVIDER_SENT_GARBAGE")
    assert not outcome.retryable


@pytest.mark.parametrize(
    "kind", [b"", b"content-type: text/plain\r\n", b"content-type: application/json\r\n"]
)
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b": hello\n\n"])
def test_a_stream_is_one_whatever_its_content_type_says(kind, before):
    text, outcome = end_of(said(before + STREAM, kind))
    assert (text, type(outcome)) == (TEXT, Completed)


def calls_of(*chunks):
    """{index: (id, names, arguments)} of the calls that these lists of tool calls are, and the
    outcome."""
    choices = [{"index": 0, "delta": {"tool_calls": each}} for each in chunks]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    body = b"".join(b"data: " + json.dumps({"choices": [c]}).encode() + b"\n\n" for c in choices)

    async def scenario(provider, declared):
        return [each async for each in events_of(provider.start(call(declared)))]

    *pieces, outcome = at(Raw(said(body, SSE)), scenario)
    made: dict[int, tuple[str | None, str, str]] = {}
    for piece in (each for delta in pieces for each in delta.tool_calls):
        call_id, name, arguments = made.get(piece.index, (piece.call_id, "", ""))
        made[piece.index] = call_id, name + (piece.name or ""), arguments + piece.arguments
    return made, outcome


def asked(name=None, arguments="", **more):
    return {"function": {"name": name, "arguments": arguments}, **more}


def test_calls_without_an_index_are_told_apart_by_id_name_and_place():
    """Merged into one, their arguments would be no JSON."""
    two = {0: ("a", "f", "{}"), 1: ("b", "g", "[]")}
    first, second = asked("f", "{}", id="a"), asked("g", "[]", id="b")
    assert calls_of([first], [second])[0] == two
    assert calls_of([first, second])[0] == two
    pieces = [asked("f", "{", id="a")], [asked(None, "}")], [asked("g", "[", id="b")]
    assert calls_of(*pieces, [asked(None, "]", id="b")])[0] == two
    nameless, _ = calls_of([asked("f", "{}")], [asked("g", "[]")])
    assert [each[1:] for each in nameless.values()] == [("f", "{}"), ("g", "[]")]


def test_pieces_with_an_index_may_come_in_any_order():
    pieces = [asked("g", "[", id="b", index=1)], [asked("f", "{}", id="a", index=0)]
    made, outcome = calls_of(*pieces, [asked(None, "]", index=1)])
    assert made == {1: ("b", "g", "[]"), 0: ("a", "f", "{}")}
    assert type(outcome) is Completed


@pytest.mark.parametrize("index", [True, "0", 1.0, -1, TOOL_CALLS_LIMIT])
def test_an_index_that_is_none_is_no_answer(index):
    made, outcome = calls_of([asked("f", "{}", id="a", index=index)])
    assert (made, type(outcome), outcome.reason) == ({}, Failed, "PROVIDER_SENT_GARBAGE")


def test_calls_without_an_index_have_the_limit_of_those_with_one():
    chunks = [[asked("f", "{}", id=f"c{number}")] for number in range(TOOL_CALLS_LIMIT + 1)]
    assert type(calls_of(*chunks[:-1])[1]) is Completed
    assert calls_of(*chunks)[1].reason == "PROVIDER_ANSWER_TOO_LARGE"
