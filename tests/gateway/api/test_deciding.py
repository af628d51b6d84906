"""POST /api/v1/decide: a dry run with its whole explanation, and no trace of it (RTE-2)."""

import json

import pytest

from gateway.api.auth import SCOPE_RECEIPTS
from gateway.quota import Quota
from tests.gateway.api.client import Client, SmallGateway
from tests.gateway.scripted import ScriptedProvider, stage

CHAT = {"model": "assist", "messages": [{"role": "user", "content": "How heavy is it?"}]}


class Dry(SmallGateway):
    """The API over a real desk and ledger, for the fleet's first tenant."""

    def __init__(self, on, **fields) -> None:
        super().__init__(on.ledger, **fields)
        self.journey, self.clock = on.journey, on.clock
        self.journey.desk.book.set_quota(
            "tenant-a", Quota(in_flight_limit=2), now_us=on.clock.now_us(), spent_pico=0
        )

    def models(self):
        return tuple(sorted(self.journey.desk.configuration.models))


@pytest.fixture
def on(fleet):
    with stage(fleet.ledger, ScriptedProvider(script=lambda call: [])) as on:
        yield on


def decide(on, headers=None, **fields):
    return Client(Dry(on)).call(
        "POST", "/api/v1/decide", body=json.dumps(CHAT | fields).encode(), headers=headers or {}
    )


def test_an_accepted_dry_run_names_the_choice_its_reasons_and_every_candidate(on):
    shown = decide(on, {"x-deadline-ms": "20000", "x-region": "eu-west"}, max_tokens=40).json
    assert (shown["dry_run"], shown["status"]) == (True, "accepted")
    assert shown["route_id"] in {each["route_id"] for each in shown["candidates"] if each["passed"]}
    assert {"CAPABILITY_MATCH", "REGION_ALLOWED", "DEADLINE_FIT"} <= set(shown["reasons"])
    assert shown["budget"]["deadline_ms"] == 20_000
    chosen = next(each for each in shown["candidates"] if each["route_id"] == shown["route_id"])
    assert chosen["ttft_ms"] == shown["estimate"]["ttft_ms"] > 0
    assert shown["tenant"]["in_flight_limit"] == 2


def test_a_refused_dry_run_says_at_which_filter_each_candidate_falls(on):
    reply = decide(on, {"x-deadline-ms": "5"})
    assert reply.status == 200
    shown = reply.json
    assert (shown["status"], shown["reason_code"]) == ("rejected", "DEADLINE_INSUFFICIENT")
    assert (shown["retryable"], shown["http_status"]) == (False, 422)
    primaries = [each for each in shown["candidates"] if each["role"] == "primary"]
    assert {each["fell_at"] for each in primaries} == {"deadline"}
    assert {each["reason_code"] for each in primaries} == {"DEADLINE_INSUFFICIENT"}
    assert [limit["name"] for limit in shown["limits"]] == ["deadline_us"]


def test_a_dry_run_holds_nothing_records_nothing_and_calls_nobody(on):
    tables = ("route_decision", "receipt", "reservation", "trace_event", "capacity_snapshot")
    for _ in range(5):  # the tenant has two slots
        assert decide(on).json["status"] == "accepted"
    assert [on.rows(f"SELECT count(*) FROM {table}") for table in tables] == [[(0,)]] * 5
    assert on.held() == (0, 0, 0)
    assert on.provider.attempts == []


def test_what_is_no_chat_and_an_unknown_model_are_problems(on):
    assert decide(on, model="nobody").json["code"] == "MODEL_NOT_FOUND"
    assert decide(on, messages=[]).status == 400
    assert decide(on, {"x-deadline-ms": "soon"}).json["code"] == "INVALID_REQUEST"


def test_it_asks_for_the_scope_inference(on):
    client = Client(Dry(on, scopes=(SCOPE_RECEIPTS,)))
    reply = client.call("POST", "/api/v1/decide", body=json.dumps(CHAT).encode())
    assert (reply.status, reply.json["code"]) == (403, "SCOPE_MISSING")
