"""POST /v1/chat/completions over a journey that does as it is told (DLV-1, DLV-2, DLV-5, DLV-6)."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from gateway.submission import Delta, Refusal
from ledger.errors import LedgerUnavailable
from tests.factories import NOW_US
from tests.gateway.api.client import REQUEST_ID, Client, Running, SmallGateway, ended, filed

CHAT_ID = "chatcmpl-" + REQUEST_ID.removeprefix("req_")


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def test_a_whole_answer_carries_text_usage_and_receipt(client):
    reply = client.chat()
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json["id"] == CHAT_ID
    assert reply.json["created"] == NOW_US // 1_000_000
    assert reply.json["system_fingerprint"] == "sim-mid_a"
    assert reply.json["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert reply.json["usage"]["total_tokens"] == 1_200
    assert reply.json["receipt"]["cost"]["total_units"] == "0.0036"
    assert reply.headers["x-request-id"] == REQUEST_ID == reply.json["receipt"]["request_id"]
    assert reply.headers["x-weighbridge-route"] == "route-a"
    assert reply.headers["x-weighbridge-degraded"] == "false"
    assert reply.headers["x-weighbridge-simulated"] == "true"


def test_a_stream_is_role_and_text_then_finish_with_receipt_then_done(client):
    reply = client.chat(stream=True)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    role, first, second, last, done = reply.events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [c["choices"][0]["delta"] for c in (first, second)] == [
        {"content": "Hel"},
        {"content": "lo"},
    ]
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert last["receipt"]["entry_hash"] == "02" * 32
    assert done == "[DONE]"
    heads = {(c["id"], c["created"], c["system_fingerprint"]) for c in reply.events[:-1]}
    assert heads == {(CHAT_ID, NOW_US // 1_000_000, "sim-mid_a")}
    assert all("usage" not in chunk for chunk in reply.events[:-1])


def test_usage_asked_for_is_null_until_its_own_chunk_which_carries_the_receipt(client):
    *chunks, usage, done = client.chat(stream=True, stream_options={"include_usage": True}).events
    assert [chunk["usage"] for chunk in chunks] == [None] * 4
    assert all("receipt" not in chunk for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 1_000,
        "completion_tokens": 200,
        "total_tokens": 1_200,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert usage["receipt"]["request_id"] == REQUEST_ID
    assert done == "[DONE]"


def test_a_client_of_http_1_0_gets_a_stream_whole_and_with_its_length(client):
    """It reads no chunked body."""
    body = json.dumps(
        {
            "model": "assistant-large",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
        }
    ).encode()
    reply = client.call("POST", "/v1/chat/completions", body=body, version="1.0")
    assert reply.messages == 2
    assert int(reply.headers["content-length"]) == len(reply.body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.body.endswith(b"data: [DONE]\n\n")
    whole = client.call("GET", "/v1/models", version="1.0")
    assert int(whole.headers["content-length"]) == len(whole.body) and whole.messages == 2


def test_text_of_any_kind_survives_the_stream_byte_for_byte(client):
    texts = ["\u2028\r\n\n", 'data: [DONE]\n\n"', "\ue000here", "👩🏽‍🚀"]
    client.gateway.journey.pieces = [*(Delta(text=t, tokens=1) for t in texts), ended("length")]
    events = client.chat(stream=True).events
    assert [e["choices"][0]["delta"]["content"] for e in events[1:5]] == texts
    assert events[5]["choices"][0]["finish_reason"] == "length"


def test_an_answer_without_text_still_has_a_role_and_an_end(client):
    client.gateway.journey.pieces = [ended()]
    role, last, done = client.chat(stream=True).events
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert done == "[DONE]"


def test_a_failure_before_the_first_token_has_its_own_status_and_receipt(client):
    client.gateway.journey.pieces = [
        ended(None, status="failed", terminal_error_code="BACKEND_DIED")
    ]
    for stream in (True, False):
        reply = client.chat(stream=stream)
        assert reply.status == 502
        assert reply.error["code"] == "BACKEND_DIED"
        assert reply.headers["x-should-retry"] == "false"
        assert reply.headers["x-request-id"] == REQUEST_ID
        assert reply.json["receipt"]["status"] == "failed"


def test_a_failure_after_the_first_token_is_an_error_event_without_done(client):
    client.gateway.journey.pieces[-1] = ended(
        None, status="failed", terminal_error_code="BACKEND_DIED"
    )
    reply = client.chat(stream=True)
    assert reply.status == 200
    assert reply.events[-1]["error"]["code"] == "BACKEND_DIED"
    assert b"event: error\n" in reply.body
    assert b"[DONE]" not in reply.body


@pytest.mark.parametrize(
    ("status", "code", "http_status"),
    [
        ("unknown", "TIME_OUT", 504),
        ("cancelled", "DEADLINE_EXCEEDED", 504),
        ("cancelled", "CLIENT_GONE", 499),
        ("failed", None, 502),
    ],
)
def test_each_bad_end_has_its_status_and_is_not_to_be_retried(client, status, code, http_status):
    client.gateway.journey.pieces = [ended(None, status=status, terminal_error_code=code)]
    reply = client.chat()
    assert (reply.status, reply.error["retryable"]) == (http_status, False)
    assert reply.error["code"] == (code or "FAILED")


@pytest.mark.parametrize(
    ("status", "code", "http_status", "retried", "action"),
    [
        ("failed", "PROVIDER_OVERLOADED", 503, True, "Send it again later"),
        ("failed", "PROVIDER_RATE_LIMITED", 429, True, "Send it again later"),
        ("failed", "PROVIDER_UNREACHABLE", 503, True, "Send it again later"),
        ("failed", "PROVIDER_REFUSED", 502, False, "Correct the request"),
        ("failed", "PROVIDER_CREDENTIAL_REFUSED", 502, False, "Tell the operator"),
        ("cancelled", "DEADLINE_EXCEEDED", 504, False, "Send it again later"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_where_nothing_ran_the_caller_is_told_so_and_when_to_try_again(
    client, status, code, http_status, retried, action, stream
):
    """RTY-1, DLV-3: the receipt's end state stays; a refusal is told as one."""
    end = ended(None, status=status, terminal_error_code=code)
    client.gateway.journey.pieces = [replace(end, nothing_ran=True, retry_after_ms=7_001)]
    reply = client.chat(stream=stream)
    assert (reply.status, reply.error["retryable"]) == (http_status, retried)
    assert reply.headers["x-should-retry"] == ("true" if retried else "false")
    assert reply.headers.get("retry-after") == ("8" if retried else None)
    assert "nothing ran, and nothing is owed" in reply.error["message"]
    assert "may have run" not in reply.error["message"]
    assert reply.error["caller_action"].startswith(action)
    assert reply.json["receipt"]["status"] == status


def test_an_end_that_could_not_be_recorded_is_no_answer(client):
    client.gateway.journey.pieces[-1] = LedgerUnavailable("disk")
    whole, streamed = client.chat(), client.chat(stream=True)
    assert (whole.status, whole.error["code"]) == (504, "RECEIPT_PENDING")
    assert streamed.events[-1]["error"]["code"] == "RECEIPT_PENDING"
    assert b"[DONE]" not in streamed.body


def test_a_ledger_that_cannot_record_is_a_503_to_be_retried(client):
    client.gateway.journey.fault = LedgerUnavailable("disk")
    reply = client.chat()
    assert (reply.status, reply.error["code"]) == (503, "LEDGER_UNAVAILABLE")
    assert reply.headers["x-should-retry"] == "true"
    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("1", "1000")


def test_a_refusal_says_which_limit_and_what_to_do_and_has_a_receipt(client):
    client.gateway.journey.refusal = Refusal(
        request_id=REQUEST_ID,
        reason_code="TENANT_CONCURRENCY_LIMIT",
        http_status=429,
        retryable=True,
        retry_after_ms=1_500,
        limits=(("tenant_in_flight", 4, 4),),
        conditional_on=(),
        caller_action="Wait for Retry-After, then retry with fewer requests in flight.",
        filed=filed(status="rejected", terminal_error_code="TENANT_CONCURRENCY_LIMIT"),
    )
    reply = client.chat()
    assert reply.status == 429
    assert reply.error["type"] == "rate_limit_error"
    assert reply.error["limits"] == [{"name": "tenant_in_flight", "limit": 4, "observed": 4}]
    assert reply.json["receipt"]["status"] == "rejected"
    assert reply.headers["retry-after"] == "2"
    assert reply.headers["retry-after-ms"] == "1500"
    assert reply.headers["x-should-retry"] == "true"


def test_a_degraded_answer_names_where_it_came_from(client):
    client.gateway.journey.run = Running(degraded_from="route-b")
    reply = client.chat()
    assert reply.headers["x-weighbridge-degraded"] == "true"
    assert reply.headers["x-weighbridge-degraded-from"] == "route-b"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_cancels_at_once(client, stream):
    client.gateway.journey.hold_before = 2  # what is left waits for the cancel
    client.gateway.journey.pieces[-1] = ended(
        None, status="cancelled", terminal_error_code="CLIENT_GONE"
    )
    body = b'{"model":"assistant-large","messages":[{"role":"user","content":"Hi"}],"stream":%s}'
    client.call(
        "POST",
        "/v1/chat/completions",
        body=body % (b"true" if stream else b"false"),
        hang_up_after=2 if stream else 0,
    )
    assert client.gateway.journey.cancelled.is_set()


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_a_stopping_server_cuts_off_says_that_it_is_not_to_be_sent_again(
    client, stream
):
    client.gateway.journey.hold_before = 2  # what is left never comes
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "assistant-large", "messages": messages, "stream": stream}

    async def cut_off():
        sent = ("POST", "/v1/chat/completions", json.dumps(body).encode(), {})
        exchange = asyncio.create_task(client.exchange(*sent))
        for _ in range(100):  # turns of the event loop: more than it takes to come to the wait
            await asyncio.sleep(0)
        exchange.cancel()
        return await exchange

    reply = asyncio.run(cut_off())
    said = reply.events[-1]["error"] if stream else reply.error
    assert (said["code"], said["retryable"]) == ("RECEIPT_PENDING", False)
    assert reply.headers["x-request-id"] == REQUEST_ID
    if not stream:
        assert (reply.status, reply.headers["x-should-retry"]) == (504, "false")


def test_a_client_that_closes_after_the_end_is_not_cancelled(client):
    reply = client.call(
        "POST",
        "/v1/chat/completions",
        body=b'{"model":"assistant-large","messages":[{"role":"user","content":"Hi"}],'
        b'"stream":true}',
        hang_up_after=4,  # start, first text, second text, the end with [DONE]
    )
    assert reply.events[-1] == "[DONE]"
    assert not client.gateway.journey.cancelled.is_set()


def test_tools_and_a_schema_imply_capabilities_and_tools_imply_side_effects(client):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    client.chat(
        tools=[tool],
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        headers={"x-required-capabilities": "vision"},
    )
    client.chat()
    with_tools, without = client.gateway.journey.submissions
    assert with_tools.required_capabilities == ("json_schema", "tools", "vision")
    assert with_tools.side_effects and with_tools.schema == schema
    assert without.required_capabilities == () and not without.side_effects


def test_a_fault_of_ours_is_a_500_that_quotes_nothing_and_logs_no_message(client, caplog):
    client.gateway.journey.fault = RuntimeError("canary in an exception")
    reply = client.chat()
    assert (reply.status, reply.error["code"]) == (500, "INTERNAL_ERROR")
    assert reply.error["request_id"].startswith("xch_")
    assert b"canary" not in reply.body and b"Traceback" not in reply.body
    assert "RuntimeError in chat_completions" in caplog.text
    assert "canary" not in caplog.text


def test_a_fault_in_mid_stream_ends_it_with_an_error_event(client):
    client.gateway.journey.pieces[1] = RuntimeError("canary")
    reply = client.chat(stream=True)
    assert reply.events[-1]["error"]["code"] == "INTERNAL_ERROR"
    assert b"[DONE]" not in reply.body and b"canary" not in reply.body
