"""GET /api/v1/requests/{id}: what was recorded, to its own tenant alone (SEC-2, RTE-2)."""

import json

import pytest

from tests.factories import (
    attempt,
    attempt_event,
    model_identity,
    rate_table,
    receipt,
    request_id,
    route_decision,
)
from tests.gateway.api.client import Client, SmallGateway

OWN, OTHER, OPEN = request_id(1), request_id(2), request_id(3)
PARTS = ("", "/receipt", "/decision")


@pytest.fixture
def client(store, ledger_path):
    store.append((model_identity(), rate_table())).result()
    for number, tenant in ((1, "tenant-a"), (2, "tenant-b")):
        store.append(
            (
                route_decision(number, tenant_id=tenant),
                attempt(number),
                attempt_event(number),
                receipt(number, tenant_id=tenant),
            )
        ).result()
    store.append((route_decision(3, tenant_id="tenant-a"),)).result()
    return Client(SmallGateway(ledger_path))


def test_a_request_tells_its_state_its_attempts_and_where_the_rest_is(client):
    shown = client.get(f"/api/v1/requests/{OWN}").json
    assert (shown["request_id"], shown["status"]) == (OWN, "completed")
    assert shown["receipt"] == f"/api/v1/requests/{OWN}/receipt"
    assert [len(a["events"]) for a in shown["attempts"]] == [1]


def test_a_receipt_carries_the_identity_and_its_place_in_the_chain(client):
    shown = client.get(f"/api/v1/requests/{OWN}/receipt").json
    assert shown["model_identity"]["tokenizer_revision"] == "tok-1"
    assert shown["cost"]["total_units"] == "0.0036"
    assert len(shown["entry_hash"]) == len(shown["prev_hash"]) == 64
    assert shown["entry_hash"] != shown["prev_hash"]


def test_a_decision_is_shown_as_recorded(client):
    shown = client.get(f"/api/v1/requests/{OWN}/decision").json
    recorded = route_decision(1)
    assert shown["inputs"] == json.loads(recorded.inputs_json)
    assert shown["decision"] == json.loads(recorded.decision_json)
    assert shown["digest"] == recorded.digest.hex()


def test_an_open_request_has_a_decision_and_no_receipt_yet(client):
    assert client.get(f"/api/v1/requests/{OPEN}").json["status"] == "open"
    assert client.get(f"/api/v1/requests/{OPEN}/decision").status == 200
    assert client.get(f"/api/v1/requests/{OPEN}/receipt").status == 404


@pytest.mark.parametrize("part", PARTS)
def test_another_tenants_request_looks_like_one_that_does_not_exist(client, part):
    others = client.get(f"/api/v1/requests/{OTHER}{part}")
    nobodys = client.get(f"/api/v1/requests/{request_id(9)}{part}")
    assert others.status == nobodys.status == 404
    assert others.body == nobodys.body
    assert Client(client.gateway, "tenant-b").get(f"/api/v1/requests/{OTHER}{part}").status == 200


@pytest.mark.parametrize("name", ["a" * 10_000, "%00", "'; DROP TABLE receipt", "..", "é"])
@pytest.mark.parametrize("part", PARTS)
def test_any_other_id_is_not_found(client, name, part):
    assert client.get(f"/api/v1/requests/{name}{part}").status == 404


@pytest.mark.parametrize(
    "query", ["&".join(["tenant=tenant-a"] * 65), "tenant=%FF", "tenant=\u00e9"]
)
@pytest.mark.parametrize("report", ["costs", "slo", "releases"])
def test_a_query_that_can_not_be_read_is_refused_and_not_dropped(client, report, query):
    answer = client.get(f"/api/v1/{report}?{query}")
    assert answer.status == 400
    assert "more than 64 fields" in answer.body.decode()
