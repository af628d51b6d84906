"""What the console's sample ledger has beside its requests: a fleet, drafts, and a month of books.

`python -m tests.sample_books COUNT` makes the whole console of its environment, with that many
requests, and prints its logins as JSON: in a process of its own, for operations need Django.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from gateway.policy.values import (
    AttemptRules,
    BreakerRule,
    CanaryArm,
    CanaryPlan,
    HedgeRule,
    LearningRule,
    Route,
    RoutePolicy,
)
from gateway.quota import Quota
from ledger import records as r
from ledger.rates import RateTable
from tests import factories, policy_factories
from tests.sample_console import RELEASE, TABLE, fill

MINUTE_US = 60_000_000
SPAN_US = 9 * 60 * MINUTE_US  # of the requests, up to now
SUITE = "assistant-core-2026-10"
TOKENIZER = "o200k_base/chat-1"
ADDRESS = "sim:llama-3.1-8b-rtx4090"


def policy(revision: str, *, canary_permille: int, hedged: bool) -> RoutePolicy:
    """The sample's policy: four routes, a canary, four edges of which two lack their evidence."""
    routes = (
        _route("fast-v2", "mid_7c1f", "eu-west"),
        _route("fast-v3", "mid_b04e", "eu-west"),
        policy_factories.long_route(
            "long-context-v4", identity_id="mid_19ad", region="us-east", address=ADDRESS,
            tokenizer_revision=TOKENIZER, queue_limit=64,
        ),
        _route("compact-v1", "mid_e552", "eu-west"),
    )  # fmt: skip
    edge = policy_factories.edge
    suite = {"required_evaluation_suite": SUITE}
    return policy_factories.policy(
        *routes,
        revision=revision,
        models=(
            policy_factories.model("fast-v2", "fast-v3", canary=_canary(canary_permille)),
            policy_factories.model("compact-v1", name="assistant-mini", max_input_tokens=8_192),
        ),
        edges=(
            edge("fast-v2", "long-context-v4", **suite),
            edge("fast-v3", "long-context-v4", **suite),
            edge("fast-v3", "compact-v1", **suite, quality_floor_milli=900),
            edge("long-context-v4", "compact-v1", **suite, quality_floor_milli=850),
        ),
        attempts=AttemptRules(
            limit=3,
            hedge=HedgeRule(delay_us=900_000) if hedged else None,
            breaker=BreakerRule(when_all_unhealthy="try_all"),
        ),
        learning=LearningRule(),
    )


def _route(route_id: str, identity_id: str, region: str) -> Route:
    return policy_factories.route(
        route_id, identity_id=identity_id, region=region, address=ADDRESS,
        tokenizer_revision=TOKENIZER, queue_limit=64,
    )  # fmt: skip


def _canary(permille: int) -> CanaryPlan:
    return CanaryPlan(
        release_id=RELEASE,
        key="request",
        salt=f"{RELEASE}/1",
        arms=(
            CanaryArm(arm="baseline", share_permille=1000 - permille, route_ids=("fast-v2",)),
            CanaryArm(arm="canary", share_permille=permille, route_ids=("fast-v3",)),
        ),
    )


def fleet_records(now_us: int) -> list[r.Record]:
    """Two policies, a rate table to come, drafts, evidence, snapshots, a drain and a breaker."""
    earlier = policy("policy-6", canary_permille=100, hedged=False)
    current = policy("policy-7", canary_permille=350, hedged=False)
    next_one = policy("policy-8", canary_permille=500, hedged=True)
    dearer = _dearer("rates-2027-01", now_us + 30 * 24 * 60 * MINUTE_US)
    day_us = 24 * 60 * MINUTE_US
    return [
        _published(earlier, now_us - 9 * day_us),
        _published(current, now_us - 3 * day_us),
        factories.rate_table(dearer, published_at_us=now_us - day_us),
        _draft("route_policy", next_one, "policy-8", "policy-7", now_us - 90 * MINUTE_US),
        _draft("rate_table", _dearer("rates-2027-02", 0), "rates-2027-02", dearer.version, now_us),
        factories.evaluation(1, suite=SUITE, identity_id="mid_19ad", score_milli=862),
        factories.evaluation(2, suite=SUITE, identity_id="mid_e552", score_milli=874),
        *_snapshots(now_us),
        factories.control_action(
            action="drain_route", subject="compact-v1", actor="console:operator",
            acted_at_us=now_us - 42 * MINUTE_US, reason="driver update on its host",
            before_json='{"drained":false}', after_json='{"drained":true}',
        ),
        factories.control_action(
            action="route_breaker", subject="fast-v3", actor="circuit breaker",
            acted_at_us=now_us - 4 * MINUTE_US, reason="connection_lost", evidence="",
            before_json='{"state":"closed"}',
            after_json=f'{{"state":"open","until_us":{now_us + MINUTE_US}}}',
        ),
    ]  # fmt: skip


def _published(value: RoutePolicy, at_us: int) -> r.RoutePolicyRecord:
    return factories.route_policy(
        revision=value.revision,
        body_json=msgspec.json.encode(value).decode(),
        published_at_us=at_us,
        published_by="console:admin",
    )


def _dearer(version: str, effective_from_us: int) -> RateTable:
    rates = tuple(
        msgspec.structs.replace(rate, output_micro_per_mtok=rate.output_micro_per_mtok * 5 // 4)
        for rate in TABLE.rates
    )
    return msgspec.structs.replace(
        TABLE, version=version, effective_from_us=effective_from_us, rates=rates
    )


def _draft(kind: str, body: msgspec.Struct, name: str, based_on: str, at_us: int) -> r.Draft:
    return r.Draft(
        kind=kind, name=name, revision=1, body_json=msgspec.json.encode(body).decode(),
        based_on=based_on, drafted_at_us=at_us, drafted_by="console:operator",
        note="half of the traffic to v3" if kind == "route_policy" else "the new contract",
    )  # fmt: skip


def _snapshots(now_us: int) -> list[r.Record]:
    seen = (
        ("fast-v2", 400_000, 7, 23, 41_300, 22_700),
        ("fast-v3", 600_000, 2, 11, 18_900, 45_100),
        ("long-context-v4", 95_000_000, 31, 6, 58_200, 5_800),
        ("compact-v1", 300_000, 0, 1, 900, 63_100),
    )
    return [
        factories.capacity_snapshot(
            route_id=route_id, observed_at_us=now_us - age_us, waiting_requests=waiting,
            running_requests=running, reserved_kv_tokens=used, free_kv_tokens=free,
            queue_p95_us=waiting * 48_000, oldest_wait_us=waiting * 71_000,
        )
        for route_id, age_us, waiting, running, used, free in seen
    ]  # fmt: skip


def tenant_records(now_us: int) -> list[r.Record]:
    """Three tenants with quotas and a key each, one of them with a revoked key too."""
    quotas = {
        "acme": Quota(
            in_flight_limit=32, requests_per_minute=600, tokens_per_minute=900_000,
            budget_pico=12 * 10**12, time_zone="Europe/Berlin",
        ),
        "borealis": Quota(in_flight_limit=16, budget_pico=2 * 10**11),
        "cobalt-labs": Quota(in_flight_limit=8, requests_per_minute=120),
    }  # fmt: skip
    rows: list[r.Record] = []
    for number, (name, quota) in enumerate(quotas.items(), start=1):
        body = msgspec.json.encode(quota).decode()
        at_us = now_us - (30 - number) * 24 * 60 * MINUTE_US
        shared = {"tenant_id": name, "created_at_us": at_us, "created_by": "console:admin"}
        rows += [
            factories.tenant(tenant_id=name, body_json=body, changed_at_us=at_us),
            factories.api_key(number, **shared, key_id=f"key_{name}", prefix=f"wb_{name[:4]}7"),
        ]
    lost = {"key_id": "key_acme_old", "prefix": "wb_acme1", "created_at_us": now_us}
    gone = factories.api_key_revocation(9, key_id="key_acme_old", revoked_at_us=now_us)
    return [*rows, factories.api_key(9, **lost), gone]


def keep_books(ledger: Path) -> None:
    """September with one provider: ten requests, an invoice that differs, one run of it."""
    from gateway.operations.reconciliation import ImportInvoice
    from tests.gateway.operations import books

    for number in range(10):
        at_us = books.START_US + number // 2 * books.DAY_US + number * MINUTE_US
        books.append(ledger, _september(900_000_001 + number, at_us, unknown=number in (7, 9)))
    report = books.costs(
        (0, books.usual(2)),
        (1, [("gpt-5, input", 0.0043, 2_000), ("gpt-5, output", 0.0032, 400)]),
        (2, []),
        (3, [*books.usual(1), ("web search", 0.05, None)]),
        (4, books.usual(1)),
        *((day, []) for day in range(5, 30)),
    )
    books.perform(ledger, ImportInvoice(files=(report,)))
    books.perform(ledger, books.compare())


def _september(number: int, at_us: int, *, unknown: bool) -> list[r.Record]:
    """One request at the provider, with its decision; an unknown one has cost nothing yet."""
    from tests.gateway.operations import books

    nothing: dict[str, Any] = {"cost_pico": 0, "input_tokens": 0, "output_tokens": 0}
    ended: dict[str, Any] = {"outcome": "unknown", **nothing} if unknown else {}
    *before, receipt = books.request(number, at_us, **ended)
    changed = {"rate_table_version": TABLE.version, "policy_revision": "policy-7"}
    free = dict.fromkeys(("cost_input_pico", "cost_output_pico", "cost_total_pico"), 0)
    free["output_tokens"] = 0
    holds = [
        msgspec.structs.replace(each, bound_at_us=at_us + MINUTE_US)
        if isinstance(each, r.Reservation) else each
        for each in before
    ]  # fmt: skip
    decided = factories.route_decision(number, decided_at_us=at_us)
    priced = msgspec.structs.replace(receipt, **changed, **(free if unknown else {}))
    return [decided, *holds, priced]


def logins() -> dict[str, dict[str, str]]:
    """A login of each role, named as it: its password, and the cookie of a session of it."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore

    from gateway.auth_roles import ROLES
    from gateway.management.commands.create_operator import make_operator

    passwords: dict[str, str] = {}
    sessions: dict[str, str] = {}
    for role in ROLES:
        passwords[role] = make_operator(role, role)
        user, session = User.objects.get(username=role), SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.create()
        sessions[role] = session.session_key or ""
    return {"passwords": passwords, "sessions": sessions}


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from tests.gateway.operations.books import append

    for database in ("ledger", "default"):
        call_command("migrate", database=database, verbosity=0, skip_checks=True)
    ledger, now_us = Path(settings.WEIGHBRIDGE_DB), time.time_ns() // 1_000
    fill(ledger, count=int(sys.argv[1]), end_us=now_us, span_us=SPAN_US)
    append(ledger, fleet_records(now_us))
    append(ledger, tenant_records(now_us))
    keep_books(ledger)
    print(json.dumps(logins()))


if __name__ == "__main__":
    main()
