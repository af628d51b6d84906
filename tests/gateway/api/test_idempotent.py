"""Idempotency-Key over HTTP: what is replayed says so, and what is the same request (LED-5)."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api import errors
from gateway.api.idempotent import fingerprint
from gateway.submission import Refusal
from tests.gateway.api.client import REQUEST_ID, Client, SmallGateway, filed

REPLAY = "x-weighbridge-idempotent-replay"
BODY = json.dumps(
    {"model": "assistant-large", "messages": [{"role": "user", "content": "Hi"}]}
).encode()
STREAMED = BODY[:-1] + b', "stream": true}'


@dataclass(frozen=True, kw_only=True)
class Sent:
    body: bytes = BODY
    headers: tuple[tuple[str, str], ...] = ()


def replies(client, *sent):
    """The replies to requests with one key, one after another in one event loop."""

    async def work():
        return [
            await client.exchange(
                "POST",
                "/v1/chat/completions",
                each.body,
                {"idempotency-key": "order-7", **dict(each.headers)},
            )
            for each in sent
        ]

    return asyncio.run(work())


@pytest.fixture
def client(ledger_path, store):
    return Client(SmallGateway(ledger_path))


@pytest.mark.parametrize("body", [BODY, STREAMED], ids=["whole", "streamed"])
def test_only_the_replayed_answer_says_that_it_is_one(client, body):
    first, second = replies(client, Sent(body=body), Sent(body=body))
    assert (first.status, second.status) == (200, 200)
    assert REPLAY not in first.headers
    assert second.headers[REPLAY] == "true"
    assert first.body == second.body
    assert len(client.gateway.journey.submissions) == 1


@pytest.mark.parametrize(
    ("status", "told"), [("unknown", "it may have run, and its money stays held"), ("failed", "")]
)
def test_an_output_that_is_not_kept_of_an_unknown_is_not_to_be_run_again_blindly(status, told):
    """LED-5, PRV-3: a new key could pay twice."""
    failure = errors.not_retained("It isn't kept.", REQUEST_ID, {"status": status})
    assert (failure.status, failure.code) == (410, "OUTPUT_NOT_RETAINED")
    assert told in failure.message
    assert ("send a new key" in failure.caller_action) == (status != "unknown")
    assert ("may run twice" in failure.caller_action) == (status == "unknown")


def test_another_budget_header_under_the_same_key_is_a_conflict(client):
    cheap = Sent(headers=(("x-max-cost-units", "0.01"),))
    dear = Sent(headers=(("x-max-cost-units", "0.02"),))
    first, other, without, again = replies(client, cheap, dear, Sent(), cheap)
    assert [r.status for r in (first, other, without, again)] == [200, 422, 422, 200]
    assert other.error["code"] == "IDEMPOTENCY_CONFLICT"
    assert again.headers[REPLAY] == "true"


def test_a_header_that_is_no_budget_does_not_make_another_request(client):
    first, second = replies(client, Sent(), Sent(headers=(("traceparent", "00-a-b-01"),)))
    assert (first.status, second.headers[REPLAY]) == (200, "true")


def test_neither_a_bad_value_nor_a_refusal_takes_the_key(client):
    client.gateway.journey.refusal = Refusal(
        request_id=REQUEST_ID,
        reason_code="INVALID_REQUEST",
        http_status=400,
        retryable=False,
        retry_after_ms=None,
        limits=(("deadline_us", 1, 0),),
        conditional_on=(),
        caller_action="Correct it.",
        filed=filed(status="rejected", terminal_error_code="INVALID_REQUEST"),
    )
    unread, refused = replies(
        client, Sent(headers=(("x-region", ","),)), Sent(headers=(("x-deadline-ms", "0"),))
    )
    client.gateway.journey.refusal = None
    (corrected,) = replies(client, Sent(headers=(("x-deadline-ms", "3000"),)))
    assert [r.status for r in (unread, refused, corrected)] == [400, 400, 200]
    assert REPLAY not in corrected.headers


HEADERS = st.dictionaries(
    st.sampled_from(["x-priority", "x-region", "x-tag-a", "x-tag-b", "accept"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=4),
)


@given(HEADERS, HEADERS)
def test_fingerprints_are_equal_exactly_where_the_budget_headers_are(left, right):
    asked = [{n: v for n, v in each.items() if n != "accept"} for each in (left, right)]
    same = fingerprint(b"{}", left) == fingerprint(b"{}", right)
    assert same == (asked[0] == asked[1])
    assert fingerprint(b"{}", dict(reversed(left.items()))) == fingerprint(b"{}", left)
