"""/v1/responses: created, streamed, asked for again, cancelled, in the background (LED-5)."""

import json

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.api.responses_body import Asked, read_responses_body
from gateway.api.responses_events import ResponsesForm
from gateway.api.retained import RETAINED_CHARS, RETAINED_US, Retained
from gateway.submission import Refusal
from tests.factories import NOW_US
from tests.gateway.api.client import REQUEST_ID, Client, Running, SmallGateway, ended, filed
from tests.gateway.api.test_choices import CALLING
from tests.gateway.clock import VirtualClock

WHOLE, EVENT = TypeAdapter(Response), TypeAdapter(ResponseStreamEvent)
ID = f"resp_{REQUEST_ID[4:]}"
TOOL = {"type": "function", "name": "weigh", "parameters": {"type": "object"}, "strict": False}


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def respond(client, given="Hi", **fields):
    body = {"model": "assistant-large", "input": given, **fields}
    return client.call("POST", "/v1/responses", body=json.dumps(body).encode())


def events_of(reply):
    return [EVENT.validate_json(json.dumps(event)) for event in reply.events]


def test_a_whole_response_is_the_clients_type_and_has_its_receipt(client):
    reply = respond(client, instructions="Be short.", metadata={"a": "b"}, temperature=0.5)
    answer = WHOLE.validate_json(reply.body)
    assert (answer.id, answer.status, answer.output_text) == (ID, "completed", "Hello")
    assert answer.usage is not None and answer.usage.output_tokens_details.reasoning_tokens == 0
    assert (answer.instructions, answer.metadata, answer.temperature) == (
        "Be short.", {"a": "b"}, 0.5,
    )  # fmt: skip
    assert reply.json["receipt"]["request_id"] == REQUEST_ID
    (submission,) = client.gateway.journey.submissions
    assert [message.role for message in submission.messages] == ["system", "user"]


def test_an_answer_that_was_cut_off_is_incomplete(client):
    client.gateway.journey.pieces = [ended("length")]
    answer = WHOLE.validate_json(respond(client).body)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_a_stream_has_its_events_in_order_and_ends_with_the_whole_response(client):
    reply = respond(client, stream=True)
    events = events_of(reply)
    assert [event.type for event in events] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(10))
    assert events[-1].response.output_text == "Hello"
    assert reply.events[-1]["response"]["receipt"]["status"] == "completed"


def test_calls_are_output_items_whole_and_streamed(client):
    client.gateway.journey.pieces = CALLING
    whole = WHOLE.validate_json(respond(client, tools=[TOOL]).body)
    calls = [item for item in whole.output if item.type == "function_call"]
    assert calls and all(json.loads(call.arguments) is not None for call in calls)
    streamed = events_of(respond(client, tools=[TOOL], stream=True))
    done = [e for e in streamed if e.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == [call.arguments for call in calls]
    added = [e for e in streamed if e.type == "response.output_item.added"]
    assert [event.output_index for event in added] == list(range(len(whole.output)))


def test_items_of_an_earlier_turn_become_its_messages(client):
    respond(
        client,
        [
            {"role": "user", "content": [{"type": "input_text", "text": "Weigh it"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "weigh", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "weigh", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "7 t"},
            {"type": "function_call_output", "call_id": "c2", "output": "8 t"},
        ],
        tools=[TOOL],
        tool_choice={"type": "function", "name": "weigh"},
        text={"format": {"type": "json_object"}},
    )
    (submission,) = client.gateway.journey.submissions
    assert [m.role for m in submission.messages] == ["user", "assistant", "tool", "tool"]
    assert len(json.loads(submission.messages[1].tool_calls_json)) == 2
    assert submission.side_effects and submission.schema == {"type": "object"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True, "store": False}, "background"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"given": []}, "input"),
        ({"given": [{"role": "user"}]}, "input[0].content"),
        ({"given": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        ({"given": [{"type": "function_call"}]}, "input[0]"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ],
)
def test_what_is_not_taken_is_refused_by_name_and_nothing_runs(client, fields, param):
    reply = respond(client, **fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert client.gateway.journey.submissions == []


def test_a_stored_response_is_shown_again_to_its_tenant_alone(client):
    first = respond(client)
    again = client.get(f"/v1/responses/{ID}")
    assert (again.status, again.json) == (200, first.json)
    client.tenant = "tenant-b"
    assert client.get(f"/v1/responses/{ID}").status == 404
    assert client.call("POST", f"/v1/responses/{ID}/cancel").status == 404


@pytest.mark.parametrize(
    ("limit", "field"),
    [("max_output_tokens", "max_output_tokens"), ("max_input_tokens", "input")],
)
def test_a_refusal_names_the_field_by_this_bodys_name(client, limit, field):
    client.gateway.journey.refusal = Refusal(
        request_id=REQUEST_ID, reason_code="TOKEN_BUDGET_EXCEEDED", http_status=400,
        retryable=False, retry_after_ms=None, limits=((limit, 1, 2),), conditional_on=(),
        caller_action="Send less.", filed=filed(status="rejected"),
    )  # fmt: skip
    assert respond(client).error["param"] == field


def test_a_kept_response_is_no_stream_and_says_so(client):
    """Else a client that waits for events would read none, and take that for an answer."""
    respond(client)
    for asked, status in (("stream=true", 400), ("stream=false", 200), ("include=x", 200)):
        assert client.get(f"/v1/responses/{ID}?{asked}").status == status


def test_a_deleted_response_is_shown_no_more_and_its_receipt_stays(client):
    """LED-5: what memory held is gone at once; whoever asks again is told so, by its tenant."""
    respond(client)
    client.tenant = "tenant-b"
    assert client.call("DELETE", f"/v1/responses/{ID}").status == 404
    client.tenant = "tenant-a"
    gone = client.call("DELETE", f"/v1/responses/{ID}")
    assert (gone.status, gone.json) == (200, {"id": ID, "object": "response", "deleted": True})
    assert client.get(f"/v1/responses/{ID}").status in (404, 410)
    assert client.call("DELETE", f"/v1/responses/{ID}").status in (404, 410)


def test_a_response_that_is_not_to_be_stored_is_not_kept(client):
    assert respond(client, store=False).status == 200
    assert client.get(f"/v1/responses/{ID}").status == 404


def test_a_background_response_is_queued_at_once_and_asked_for_later(client):
    begun = WHOLE.validate_json(respond(client, background=True).body)
    assert (begun.status, begun.output, begun.background) == ("queued", [], True)
    assert WHOLE.validate_json(client.get(f"/v1/responses/{ID}").body).output_text == "Hello"


def test_a_failure_of_the_background_is_a_failed_response_with_its_receipt(client):
    failing = [ended(None, status="failed", terminal_error_code="BACKEND_DIED")]
    client.gateway.journey.pieces = failing
    respond(client, background=True)
    reply = client.get(f"/v1/responses/{ID}")
    shown = WHOLE.validate_json(reply.body)
    assert (shown.status, shown.error.code) == ("failed", "server_error")
    assert "BACKEND_DIED" in shown.error.message
    assert reply.json["receipt"]["status"] == "failed"


@pytest.mark.parametrize("unknown", ["resp_none", "chatcmpl-1", "resp_", "x" * 500])
def test_an_id_of_no_response_is_not_found(client, unknown):
    assert client.get(f"/v1/responses/{unknown}").status == 404


class Over(Running):
    def kept_output(self):
        return True, 1


def test_what_is_over_is_kept_for_minutes_and_within_a_size():
    clock = VirtualClock(NOW_US)

    class Big(Running):
        def kept_output(self):
            return True, RETAINED_CHARS // 2

    retained, asked = Retained(clock), read_responses_body(b'{"model": "m", "input": "x"}')
    assert isinstance(asked, Asked)
    form = ResponsesForm(asked=asked)
    for name in ("req_a", "req_b", "req_c", "req_d"):
        retained.keep("t", Big(request_id=name), form)
    assert [retained.find("t", name) is not None for name in ("req_a", "req_b", "req_c")] == [
        False, False, True,
    ]  # fmt: skip
    assert retained.find("other", "req_d") is None
    clock.set_us(NOW_US + RETAINED_US + 1)
    assert retained.find("t", "req_d") is None


def test_led_5_what_a_response_repeats_of_its_request_counts_too():
    """Else thousands of metadata of a megabyte would stay for ten minutes."""
    clock = VirtualClock(NOW_US)
    retained = Retained(clock)
    body = {"model": "m", "input": "x", "metadata": {"note": "x" * (RETAINED_CHARS // 2)}}
    asked = read_responses_body(json.dumps(body).encode())
    assert isinstance(asked, Asked)
    form = ResponsesForm(asked=asked)
    assert form.kept_chars() > RETAINED_CHARS // 2
    for name in ("req_a", "req_b"):
        retained.keep("t", Over(request_id=name), form, form.kept_chars())
    assert [retained.find("t", name) is not None for name in ("req_a", "req_b")] == [False, True]


def test_a_response_is_kept_for_a_few_looks_however_many_are():
    looks = 0

    class Looked(Over):
        def kept_output(self):
            nonlocal looks
            looks += 1
            return super().kept_output()

    retained, asked = (
        Retained(VirtualClock(NOW_US)),
        read_responses_body(b'{"model":"m","input":"x"}'),
    )
    assert isinstance(asked, Asked)
    form = ResponsesForm(asked=asked)
    for number in range(2_000):
        retained.keep("t", Looked(request_id=f"req_{number}"), form)
        retained.find("t", "req_0")
    assert looks < 2_000 * 2 * 16  # a quadratic one would be 4,000,000
