"""Tools on their way to a provider and calls on their way back (PRV-2, DLV-5)."""

import json

import pytest

from gateway.providers.outcomes import Completed, Failed, Outcome
from gateway.submission import Delta, Parameters, ToolCallPiece
from tests.faults.plan import CALL_PIECES, Plan
from tests.gateway.providers.upstream import TEXT, against, events_of

TOOLS = [
    {"type": "function", "function": {"name": "weigh_0", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "weigh_1"}},
]
ASKED = {
    "tools_json": json.dumps(TOOLS),
    "parameters": Parameters(tool_choice_json='"auto"', parallel_tool_calls=True),
}


def called(plan):
    """(the pieces, the outcome, what was sent) of a call with tools."""

    async def scenario(upstream):
        upstream.server.plan = plan
        events = [event async for event in events_of(upstream.start(**ASKED))]
        return events[:-1], events[-1], upstream.server.exchanges[0].request

    return against(scenario, capabilities=("tools",))


def put_together(pieces):
    calls = {}
    for piece in pieces:
        for call in piece.tool_calls:
            made = calls.setdefault(call.index, {"id": None, "name": None, "arguments": ""})
            made["id"] = made["id"] or call.call_id
            made["name"] = made["name"] or call.name
            made["arguments"] += call.arguments
    return calls


@pytest.mark.parametrize(
    "shape", [{}, {"split_bytes": 1}, {"whole": True}, {"usage": "running"}], ids=str
)
def test_parallel_calls_come_back_each_whole_however_they_came(shape):
    pieces, outcome, sent = called(Plan(calls=2, finish_reason="tool_calls", **shape))
    assert isinstance(outcome, Completed)
    assert outcome.finish_reason == "tool_calls"
    assert put_together(pieces) == {
        number: {
            "id": f"call_{number}",
            "name": f"weigh_{number}",
            "arguments": "".join(CALL_PIECES),
        }
        for number in range(2)
    }
    assert "".join(piece.text for piece in pieces) == TEXT
    assert (sent["tools"], sent["tool_choice"], sent["parallel_tool_calls"]) == (
        TOOLS,
        "auto",
        True,
    )


def test_a_failure_after_a_piece_of_a_call_is_never_retryable():
    plan = Plan(tokens=0, calls=1, finish_reason="tool_calls")
    pieces, outcome, _ = called(Plan(tokens=0, calls=1, finish_reason="tired"))
    assert pieces and all(piece.text == "" for piece in pieces)
    assert (type(outcome), outcome.retryable) == (Failed, False)
    assert type(called(plan)[1]) is Completed


def test_a_call_holds_no_text_in_its_representation():
    piece = Delta(text="secret", tokens=1, tool_calls=(ToolCallPiece(index=0, arguments="secret"),))
    assert "secret" not in repr(piece)
    assert not isinstance(piece, Outcome)
    assert piece.size_chars == 12
