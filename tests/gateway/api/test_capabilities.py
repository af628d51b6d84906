"""GET /api/v1/capabilities: the matrix as data, without an address or a credential's name."""

import msgspec
import pytest

from gateway.policy.values import RoutePolicy
from ledger.store import Store
from tests import factories
from tests import policy_factories as make
from tests.gateway.api.client import Client, SmallGateway
from tests.gateway.providers.calls import kserve_route, route


@pytest.fixture
def client(ledger_path):
    return Client(SmallGateway(ledger_path))


def publish(ledger_path, *routes):
    policy = make.policy(*routes, revision="policy-1")
    assert isinstance(policy, RoutePolicy)
    body = msgspec.json.encode(policy).decode()
    with Store.open(ledger_path) as store:
        store.append([factories.route_policy(revision="policy-1", body_json=body)]).result()


def test_prv_4_each_kind_and_each_route_has_its_row(client, ledger_path):
    publish(
        ledger_path,
        make.route("simulated", address="sim:llama-3.1-8b-rtx4090"),
        route("http://10.0.0.7/v1", key_env="EXAMPLE_KEY", asks="chat", close_cancels=1),
        kserve_route(counts="deltas"),
        make.route("old", provider_kind="openai", address="openai:nowhere"),
    )
    reply = client.get("/api/v1/capabilities")
    kinds = {each["kind"]: each for each in reply.json["kinds"]}
    assert list(kinds) == ["simulator", "openai", "kserve"]
    assert kinds["openai"]["error_classes"]["silent"] == "unknown"
    assert kinds["kserve"]["tools"] is False
    simulated, real, served, old = reply.json["routes"]
    assert simulated["provider"]["cancellation"] == "acknowledged"
    assert (real["route_id"], real["provider"]["status_enquiry"]) == ("real-1", "by_provider_id")
    assert real["provider"]["cancellation"] == "closing_acknowledges"
    assert served["provider"]["usage_timing"] == "in_each_chunk"
    assert served["tokenizer_revision"] == "o200k_base/chat-1"
    assert old["provider"] is None
    assert b"10.0.0.7" not in reply.body and b"EXAMPLE_KEY" not in reply.body


def test_without_a_policy_the_kinds_are_shown_alone(client):
    assert client.get("/api/v1/capabilities").json["routes"] == []
