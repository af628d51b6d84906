"""Several answers of one call, tool calls and log probabilities, as OpenAI's clients read them."""

import json

import pytest

from gateway.submission import Delta, Ended, ToolCallPiece
from ledger.errors import LedgerUnavailable
from tests.factories import receipt
from tests.gateway.api.client import Client, Running, SmallGateway, ended, filed

TOOL = {"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}
CALLING = [
    Delta(text="", tokens=1, tool_calls=(ToolCallPiece(index=0, call_id="call_1", name="weigh"),)),
    Delta(text="", tokens=1, tool_calls=(ToolCallPiece(index=0, arguments='{"t'),)),
    Delta(text="", tokens=1, tool_calls=(ToolCallPiece(index=0, arguments='":1}'),)),
    ended("tool_calls"),
]


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def several(client, *pieces):
    """Have each run deliver pieces of its own."""
    journey = client.gateway.journey
    journey.runs = tuple(Running(request_id=f"req_{index}") for index in range(len(pieces)))
    scripts = dict(zip((run.request_id for run in journey.runs), pieces, strict=True))

    async def deliver(run):
        for piece in scripts[run.request_id]:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    journey.deliver = deliver


def end_of(request_id, finish_reason="stop", **fields):
    return Ended(finish_reason=finish_reason, filed=filed_as(request_id, **fields))


def filed_as(request_id, **fields):
    made = filed()
    return type(made)(
        receipt=receipt(request_id=request_id, **fields),
        seq=made.seq,
        prev_hash=made.prev_hash,
        entry_hash=made.entry_hash,
    )


def two(client, second_end=None):
    several(
        client,
        [Delta(text="a", tokens=1), Delta(text="b", tokens=1), end_of("req_0")],
        [Delta(text="c", tokens=1), second_end or end_of("req_1", "length")],
    )


def test_n_answers_are_one_answer_with_indexes_summed_usage_and_all_receipts(client):
    two(client)
    reply = client.chat(n=2)
    assert [
        (c["index"], c["message"]["content"], c["finish_reason"]) for c in reply.json["choices"]
    ] == [
        (0, "ab", "stop"),
        (1, "c", "length"),
    ]
    assert reply.json["usage"]["total_tokens"] == 2 * 1_200
    assert [each["request_id"] for each in reply.json["receipts"]] == ["req_0", "req_1"]
    assert "receipt" not in reply.json
    assert reply.headers["x-request-id"] == "req_0"
    assert reply.json["id"] == "chatcmpl-0"


def test_n_streams_are_interleaved_by_index_and_end_once(client):
    two(client)
    *chunks, usage, done = client.chat(
        n=2, stream=True, stream_options={"include_usage": True}
    ).events
    texts = {0: "", 1: ""}
    roles, finishes = [], {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content") or ""
        roles += [choice["index"]] if "role" in choice["delta"] else []
        if choice["finish_reason"]:
            finishes[choice["index"]] = choice["finish_reason"]
    assert (texts, sorted(roles)) == ({0: "ab", 1: "c"}, [0, 1])
    assert finishes == {0: "stop", 1: "length"}
    assert {chunk["id"] for chunk in [*chunks, usage]} == {"chatcmpl-0"}
    assert usage["choices"] == [] and len(usage["receipts"]) == 2
    assert done == "[DONE]"


@pytest.mark.parametrize("stream", [True, False])
def test_one_failed_answer_of_several_is_a_failure_and_the_others_are_cancelled(client, stream):
    two(client, end_of("req_1", None, status="failed", terminal_error_code="BACKEND_DIED"))
    reply = client.chat(n=2, stream=stream)
    assert b"BACKEND_DIED" in reply.body and b"[DONE]" not in reply.body
    assert client.gateway.journey.cancelled.is_set()


def test_an_end_of_several_that_could_not_be_recorded_is_no_answer(client):
    two(client, LedgerUnavailable("disk"))
    assert client.chat(n=2).error["code"] == "RECEIPT_PENDING"


def test_each_answer_of_several_with_a_seed_has_a_seed_of_its_own(client):
    client.chat(n=3, seed=2**63 - 2)
    client.chat(n=2)
    seeds = [submission.seed for submission in client.gateway.journey.submissions]
    assert seeds == [2**63 - 2, 2**63 - 1, -(2**63), None, None]


def test_bud_2_a_cost_budget_is_that_of_all_answers_together(client):
    client.chat(n=3, headers={"x-max-cost-units": "0.01"})
    client.chat(headers={"x-max-cost-units": "0.01"})
    budgets = [each.max_cost_pico for each in client.gateway.journey.submissions]
    assert budgets == [3_333_333_333] * 3 + [10_000_000_000]


def test_a_tool_call_is_handed_on_whole(client):
    client.gateway.journey.pieces = CALLING
    choice = client.chat(tools=[TOOL]).json["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weigh", "arguments": '{"t":1}'},
            }
        ],
    }
    assert choice["finish_reason"] == "tool_calls"


def test_a_tool_call_streams_as_deltas_of_its_index(client):
    client.gateway.journey.pieces = CALLING
    role, named, first, second, last, done = client.chat(tools=[TOOL], stream=True).events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert named["choices"][0]["delta"]["tool_calls"] == [
        {
            "index": 0,
            "id": "call_1",
            "type": "function",
            "function": {"arguments": "", "name": "weigh"},
        }
    ]
    assert [c["choices"][0]["delta"]["tool_calls"] for c in (first, second)] == [
        [{"index": 0, "function": {"arguments": part}}] for part in ('{"t', '":1}')
    ]
    assert (last["choices"][0]["finish_reason"], done) == ("tool_calls", "[DONE]")


def test_log_probabilities_imply_a_capability_and_are_handed_on(client):
    told = {"content": [{"token": "a", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    pieces = [Delta(text="a", tokens=1, logprobs_json=json.dumps(told)), ended()]
    client.gateway.journey.pieces = pieces
    whole = client.chat(logprobs=True, top_logprobs=0).json["choices"][0]
    streamed = client.chat(logprobs=True, stream=True).events[1]["choices"][0]
    assert whole["logprobs"] == {**told, "refusal": None}
    assert (streamed["delta"], streamed["logprobs"]) == ({"content": "a"}, told)
    submissions = client.gateway.journey.submissions
    assert [each.required_capabilities for each in submissions] == [("logprobs",)] * 2
    assert submissions[0].parameters.logprobs and submissions[0].parameters.top_logprobs == 0


def test_sampling_stop_tools_and_form_reach_the_journey_as_they_were_asked(client):
    schema = {"type": "object", "$defs": {}, "properties": {"t": {"type": "integer"}}}
    client.chat(
        temperature=0.5, top_p=0.9, presence_penalty=1, frequency_penalty=-1, stop=["\n", "END"],
        logit_bias={"7": -100}, tools=[TOOL], tool_choice="required", parallel_tool_calls=False,
        reasoning_effort="low", user="someone", metadata={"team": "a"}, unheard_of=1,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "weight", "strict": True, "schema": schema},
        },
    )  # fmt: skip
    asked = client.gateway.journey.submissions[0].parameters
    assert (asked.temperature, asked.top_p) == (0.5, 0.9)
    assert (asked.presence_penalty, asked.frequency_penalty) == (1, -1)
    assert asked.stop == ("\n", "END")
    assert json.loads(asked.logit_bias_json) == {"7": -100}
    assert (asked.tool_choice_json, asked.parallel_tool_calls) == ('"required"', False)
    assert asked.reasoning_effort == "low"
    assert json.loads(asked.response_format_json) == {
        "type": "json_schema",
        "json_schema": {"name": "weight", "strict": True, "schema": schema},
    }


def test_a_callers_trace_is_carried_on_and_without_one_a_new_one_begins(client):
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    sent = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01", "tracestate": "vendor=1"}
    client.chat(headers=sent)
    client.chat(headers={"traceparent": "00-junk"})
    client.chat(n=2)
    carried, junk, *several = [each.trace for each in client.gateway.journey.submissions]
    assert (carried.trace_id, carried.parent_id) == (trace_id, "b7ad6b7169203331")
    assert carried.tracestate == "vendor=1"
    assert junk.parent_id is None and junk.trace_id != trace_id
    assert several[0] == several[1] != junk
