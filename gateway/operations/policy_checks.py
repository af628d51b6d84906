"""Everything that keeps a policy from being published, also what it leans on: addresses, prices.

`gateway.policy.validation` judges a policy by itself; here it is judged among the identities,
tenants and rate tables that are in force with it. What passes can be followed by a running server.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from django.conf import settings

from gateway.configuration import evaluations_of
from gateway.control import canary_policy, rolling
from gateway.fleet_file.in_force import tables_from
from gateway.fleet_file.named import Fault, instant
from gateway.fleet_file.where import place_of
from gateway.policy.validation import problems, warnings
from gateway.policy.values import Route, RoutePolicy
from gateway.providers import kserve_address, openai_address, simulated
from gateway.quota import Quota
from gateway.tokenizers.registry import REVISIONS
from ledger.queries import configuration as stored
from ledger.rate_changes import times_without_price
from ledger.rates import RateTable
from ledger.records import ModelIdentity

ROUTES_LIMIT = 256
MODELS_LIMIT = 256
EDGES_LIMIT = 1_024
BODY_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a policy leans on: who is registered, who may spend how much, what has a price."""

    identities: Mapping[str, ModelIdentity]
    quotas: Mapping[str, Quota]
    rate_tables: tuple[RateTable, ...]  # in effect now, and those that are to come
    now_us: int = 0


def around(connection: sqlite3.Connection, now_us: int) -> Around:
    """What is in force in a ledger at a time."""
    return Around(
        identities={each.identity_id: each for each in stored.identities(connection)},
        quotas={
            each.tenant_id: msgspec.json.decode(each.body_json, type=Quota)
            for each in stored.tenants(connection)
        },
        rate_tables=tables_from(connection, now_us),
        now_us=now_us,
    )


def policy_faults(policy: RoutePolicy, around: Around) -> tuple[Fault, ...]:
    """Return everything that keeps the policy from being published among what is around it."""
    return tuple(fault for check in CHECKS for fault in check(policy, around))


def policy_warnings(policy: RoutePolicy, connection: sqlite3.Connection) -> tuple[Fault, ...]:
    """Return what is worth a look before it is published, and refuses nothing (FBK-1)."""
    found = warnings(policy, evaluations_of(connection)[0])
    return (
        *(Fault(path=place_of(each, policy), what=each.what, action=each.action) for each in found),
        *_overtakes(policy, connection),
    )


def _overtakes(policy: RoutePolicy, connection: sqlite3.Connection) -> Iterator[Fault]:
    """Yield each rollout under way that goes no further up once the policy is in force (REL-3)."""
    for rollout in rolling.live(connection):
        for what in canary_policy.overtaken(policy, rollout.plan):
            yield Fault(
                path=("models",),
                what=f"the rollout {rollout.plan.rollout_id} is under way, and {what}",
                action="Roll it back or end it first; it is never raised or promoted over this",
            )


def _by_itself(policy: RoutePolicy, around: Around) -> Iterator[Fault]:
    for problem in problems(policy):
        path = place_of(problem, policy)
        yield Fault(path=path, what=problem.what, action=problem.action)


def _sizes(policy: RoutePolicy, around: Around) -> Iterator[Fault]:
    sizes = (
        ("routes", policy.routes, ROUTES_LIMIT),
        ("models", policy.models, MODELS_LIMIT),
        ("edges", policy.edges, EDGES_LIMIT),
    )
    for name, elements, limit in sizes:
        if len(elements) > limit:
            what = f"there are {len(elements)} of at most {limit}"
            yield Fault(path=(name,), what=what, action="Drop some")
    size = len(msgspec.json.encode(policy))
    if size > BODY_LIMIT_BYTES:
        what = f"the policy has {size} bytes of at most {BODY_LIMIT_BYTES}"
        yield Fault(path=(), what=what, action="Make it smaller")


def _identities(policy: RoutePolicy, around: Around) -> Iterator[Fault]:
    """Routes of an identity that nobody registered, or that count with another tokenizer."""
    for index, route in enumerate(policy.routes):
        identity = around.identities.get(route.identity_id)
        if identity is None:
            yield Fault(
                path=("routes", index, "identity_id"),
                what="no such model identity is registered",
                action="Register it first: register_identity, or the fleet file's identities",
            )
        elif identity.tokenizer_revision != route.tokenizer_revision:
            yield Fault(
                path=("routes", index, "tokenizer_revision"),
                what=f"its model identity counts with {identity.tokenizer_revision}",
                action="Name that one (BUD-3)",
            )
        if route.tokenizer_revision not in REVISIONS:
            yield Fault(
                path=("routes", index, "tokenizer_revision"),
                what="this gateway has no such tokenizer",
                action=f"Use one of {', '.join(REVISIONS)}",
            )


def _addresses(policy: RoutePolicy, around: Around) -> Iterator[Fault]:
    """Routes whose address their adapter can't use."""
    for index, route in enumerate(policy.routes):
        try:
            read_address(route)
        except ValueError as problem:  # BadAddress of any adapter, UnknownProfile
            what = str(problem).rstrip(".").removeprefix(f"{route.route_id}: ")
            yield Fault(
                path=("routes", index, "address"),
                what=what.removeprefix(f"the address of route {route.route_id} can't be used: "),
                action="Correct it; docs/backends.md has the forms",
            )


def read_address(route: Route) -> object:
    """Return what the route's adapter reads in its address. ValueError where it can't use it."""
    match route.provider_kind:
        case "simulator":
            return simulated.backend_of(route)
        case "openai":
            return openai_address.backend_of(route, allow_link_local=settings.ALLOW_LINK_LOCAL)
        case "kserve":
            return kserve_address.backend_of(route, allow_link_local=settings.ALLOW_LINK_LOCAL)


def price_faults(policy: RoutePolicy, around: Around) -> Iterator[Fault]:
    """Routes without a price that a tenant with a cost budget may be sent to (CST-7)."""
    budgeted = {name: quota for name, quota in sorted(around.quotas.items()) if has_budget(quota)}
    for table in around.rate_tables:
        for index, route in enumerate(policy.routes):
            keys = (route.route_id, route.identity_id)
            missing = [
                (since_us, until_us)
                for since_us, until_us in times_without_price(
                    table, keys, provider=route.provider_kind, region=route.region
                )
                if until_us is None or until_us > around.now_us
            ]
            if not missing or not route.enabled:
                continue
            tenants = [name for name, quota in budgeted.items() if reaches(quota, route)]
            if tenants:
                yield Fault(
                    path=("routes", index),
                    what=f"route {route.route_id} has no price in {table.version}"
                    f"{_since(missing[0][0], table)}, and {tenants[0]} has a cost budget",
                    action="Publish rates for the route or its model identity first",
                )


def _since(from_us: int, table: RateTable) -> str:
    """From when on a price is missing, where that is not from the table's own start on."""
    if from_us <= table.effective_from_us:
        return ""
    return f" from {instant(from_us).isoformat(timespec='seconds')} on"


def has_budget(quota: Quota) -> bool:
    """Whether a tenant's requests are refused on a model without a price."""
    limits = (quota.budget_pico, quota.day_budget_pico, quota.default_max_cost_pico)
    return any(limit is not None for limit in limits)


def reaches(quota: Quota, route: Route) -> bool:
    return not quota.allowed_regions or route.region in quota.allowed_regions


CHECKS: Final = (_by_itself, _sizes, _identities, _addresses, price_faults)
