"""DLV-5: a recorded stream cut at each of its bytes gives the same answer, in either protocol."""

from typing import Any

import pytest

from gateway.providers.answer import Answer
from gateway.providers.kserve_shapes import Reader
from gateway.providers.openai_shapes import read_event
from gateway.providers.outcomes import Completed
from gateway.providers.sse_reader import SseReader
from ledger.rates import Usage
from tests.faults.plan import CALL_PIECES, Plan, body_of, text_of
from tests.gateway.clock import VirtualClock
from tests.gateway.providers.calls import call

STREAMS = {
    "usage in a chunk of its own": Plan(comments=True, newline="\r\n"),
    "usage in the finish chunk, no [DONE]": Plan(usage="finish", done=False),
    "running totals": Plan(usage="running", comments=True, newline="\r"),
    "two tool calls": Plan(tokens=2, calls=2, finish_reason="tool_calls"),
    "kserve, counted by the gateway": Plan(protocol="kserve", newline="\r\n"),
    "kserve, deltas": Plan(protocol="kserve", usage="deltas", ends="details", comments=True),
    "kserve, totals": Plan(protocol="kserve", usage="running", ends="top"),
}
COUNTS: dict[str, Any] = {"deltas": "deltas", "running": "totals"}


def answered(plan, *parts):
    """(text, arguments by call, outcome) of a stream that came in these parts."""
    reader = SseReader()
    if plan.protocol == "kserve":
        read, count_text = Reader(COUNTS.get(plan.usage)).event, len
    else:
        read, count_text = read_event, None
    answer, text, arguments = Answer(call(), count_text=count_text), "", {}
    clock = VirtualClock(1)
    for part in (*parts, None):
        for event in reader.end() if part is None else reader.feed(part):
            piece = answer.take(read(event), clock.now_us())
            if piece is None:
                continue
            text += piece.text
            for each in piece.tool_calls:
                arguments[each.index] = arguments.get(each.index, "") + each.arguments
    return text, arguments, answer.ended(cleanly=True)


@pytest.mark.parametrize("name", STREAMS)
def test_dlv_5_each_byte_of_a_recorded_stream_as_the_cut_point_gives_the_same_answer(name):
    plan = STREAMS[name]
    stream = body_of(plan)
    whole = answered(plan, stream)
    text, arguments, outcome = whole
    assert isinstance(outcome, Completed)
    assert text == text_of(plan)
    assert arguments == dict.fromkeys(range(plan.calls), "".join(CALL_PIECES))
    for at in range(len(stream) + 1):
        assert answered(plan, stream[:at], stream[at:]) == whole, f"cut at byte {at}"


@pytest.mark.parametrize("name", STREAMS)
def test_dlv_5_a_stream_byte_by_byte_gives_the_same_answer(name):
    plan = STREAMS[name]
    stream = body_of(plan)
    assert answered(plan, *(stream[at : at + 1] for at in range(len(stream)))) == answered(
        plan, stream
    )


def test_cst_6_what_kserve_tells_is_the_providers_and_what_it_does_not_is_counted():
    counted, deltas, totals = (
        answered(STREAMS[name], body_of(STREAMS[name]))[2]
        for name in ("kserve, counted by the gateway", "kserve, deltas", "kserve, totals")
    )
    assert (counted.usage_source, counted.usage.output_tokens) == ("counted", len(text_of(Plan())))
    for told in (deltas, totals):
        assert (told.usage_source, told.usage_convention) == ("provider", "triton-generate")
        assert told.usage == Usage(input_tokens=11, output_tokens=8)
