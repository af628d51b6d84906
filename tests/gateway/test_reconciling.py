"""Which routes are a provider's where no plan says so: those of real backends, if of one host."""

import contextlib

import msgspec

from gateway.reconciling import default_plan
from ledger.reading import connect_read_only
from ledger.reconcile.values import Binding, Plan, Refused
from tests import factories, policy_factories
from tests.gateway.operations.books import append


def planned(path, *addresses: str, revision: str = "policy-1") -> Plan | Refused:
    routes = tuple(
        policy_factories.route(f"route-{number}", provider_kind=address.split(":")[0],
                               address=address)
        for number, address in enumerate(addresses)
    )  # fmt: skip
    policy = policy_factories.policy(routes=routes, revision=revision)
    body = msgspec.json.encode(policy).decode()
    append(path, [factories.route_policy(revision=revision, body_json=body)])
    with contextlib.closing(connect_read_only(path)) as connection:
        return default_plan(connection, "acme")


def test_every_real_route_is_bound_to_the_model_that_its_address_names(ledger_path):
    found = planned(
        ledger_path,
        "openai:https://api.example.com/v1?model=small-1&key_env=KEY",
        "simulator:fast",
        "openai:https://api.example.com/v1?model=large-1",
    )
    assert isinstance(found, Plan)
    assert found.bindings == (
        Binding(route_id="route-0", model="small-1"),
        Binding(route_id="route-2", model="large-1"),
    )


def test_the_plan_that_nobody_wrote_compares_in_the_currency_of_our_costs(ledger_path):
    address = "openai:https://api.example.com/v1?model=small-1"
    found = planned(ledger_path, address)
    assert isinstance(found, Plan)
    assert found.currency == "USD"  # nothing is priced yet
    table = msgspec.structs.replace(factories.RATE_TABLE, currency="EUR")
    append(ledger_path, [factories.rate_table(table)])
    found = planned(ledger_path, address, revision="policy-2")
    assert isinstance(found, Plan)
    assert found.currency == "EUR"


def test_several_hosts_or_none_are_not_guessed_to_be_the_provider(ledger_path):
    found = planned(ledger_path, "simulator:fast")
    assert isinstance(found, Refused)
    assert found.code == "BINDINGS"
    found = planned(
        ledger_path, "openai:https://a.example.com/v1?model=m",
        "openai:https://b.example.com/v1?model=m", revision="policy-2",
    )  # fmt: skip
    assert isinstance(found, Refused)
    assert found.code == "SEVERAL_HOSTS"
    assert "a.example.com, b.example.com" in found.message
