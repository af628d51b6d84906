"""Headers that come twice, or that promise a body nobody here can read, are named (SEC-3)."""

import pytest

from tests.gateway.api.client import Client, SmallGateway

SINGLE = (
    "authorization", "content-encoding", "content-length", "content-type", "idempotency-key",
    "traceparent", "x-deadline-ms", "x-max-cost-units", "x-max-input-tokens", "x-max-total-tokens",
    "x-priority", "x-quality-floor", "x-region", "x-required-capabilities", "x-session-id",
    "x-task-type", "x-user-path",
)  # fmt: skip


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


@pytest.mark.parametrize("name", SINGLE)
def test_a_header_that_may_come_once_is_refused_when_it_comes_twice(client, name):
    reply = client.chat(again=[(name, "canary-7f3a"), (name, "canary-7f3a")])
    assert (reply.status, reply.error["code"]) == (400, "INVALID_REQUEST")
    assert reply.error["param"] == name
    assert reply.error["message"].startswith(f"The header {name} came more than once; ")
    assert client.gateway.journey.submissions == []
    assert b"canary" not in reply.body


def test_a_second_key_is_refused_on_the_native_api_in_its_own_format(client):
    reply = client.call("GET", "/api/v1/requests/req_1", again=[("authorization", "Bearer other")])
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert reply.headers["content-type"] == "application/problem+json"


def test_headers_that_mean_nothing_here_and_different_tags_may_come_more_than_once(client):
    again = [("accept", "a"), ("accept", "b"), ("x-tag-a", "1"), ("x-tag-b", "2")]
    assert client.chat(again=again).status == 200
    assert client.gateway.journey.submissions[0].tags == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "canary-7f3a"])
def test_an_encoded_body_is_refused_by_its_header(client, encoding):
    reply = client.chat(headers={"content-encoding": encoding})
    assert (reply.status, reply.error["param"]) == (400, "content-encoding")
    assert b"canary" not in reply.body
    assert client.gateway.journey.submissions == []


def test_identity_is_no_encoding(client):
    assert client.chat(headers={"content-encoding": "Identity"}).status == 200
