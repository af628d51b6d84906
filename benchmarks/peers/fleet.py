"""What our gateway is given to serve: two models, two vocabularies, one tenant with every limit.

As in the demonstration a request may be retried, hedged and broken off by a breaker, and
predictions are learned. The limits are too wide to be met, and each is kept and checked.
"""

import os

import msgspec

from gateway.api.auth import ALL_SCOPES, KEY_RANDOM_BYTES, mint_key
from gateway.demo.fleet import identity
from gateway.policy.values import (
    AttemptRules,
    BreakerRule,
    HedgeRule,
    LearningRule,
    LogicalModel,
    Prediction,
    RetryRule,
    Route,
    RoutePolicy,
)
from gateway.quota import Quota
from ledger.rates import Rate, RateTable
from ledger.records import ApiKey, RateTableRecord, Record, RoutePolicyRecord, Tenant

AUTHOR = "benchmark"
TENANT = "bench"
MODELS = {"mote": "o200k_base/chat-1", "mote-long": "cl100k_base/chat-1"}
QUOTA = Quota(
    in_flight_limit=4_096,
    requests_per_minute=100_000_000,
    tokens_per_minute=100_000_000_000,
    budget_pico=1_000_000 * 10**12,
    default_deadline_us=60_000_000,
)
SIMULATOR = "sim:llama-3.1-8b-rtxpro6000?replicas=4"


def upstream_address(port: int) -> str:
    return f"openai:http://127.0.0.1:{port}/v1?model=mote&close_cancels=1&kv_tokens=100000000"


def policy(address: str) -> RoutePolicy:
    """Return the policy whose routes all have this address; "": one without any route."""
    models = MODELS if address else {}
    return RoutePolicy(
        revision="bench-1",
        models=tuple(_model(name) for name in models),
        routes=tuple(_route(name, tokenizer, address) for name, tokenizer in models.items()),
        attempts=AttemptRules(
            limit=3,
            retry=RetryRule(budget_permille=100),
            hedge=HedgeRule(delay_us=2_000_000),
            breaker=BreakerRule(),
        ),
        learning=LearningRule(),
    )


def _model(name: str) -> LogicalModel:
    return LogicalModel(
        name=name, primary_routes=(f"{name}-1",), max_input_tokens=8_192, max_output_tokens=1_024,
        max_total_tokens=8_192, default_output_tokens=256, default_deadline_us=60_000_000,
    )  # fmt: skip


def _identity(name: str, tokenizer: str):
    return identity(name, f"{name}-a1", tokenizer, "bench-1", "bf16", f"{name}-1")


def _route(name: str, tokenizer: str, address: str) -> Route:
    return Route(
        route_id=f"{name}-1", identity_id=_identity(name, tokenizer).identity_id,
        tokenizer_revision=tokenizer, provider_kind="openai" if "http" in address else "simulator",
        address=address, region="eu-west", capabilities=("json_schema",), max_input_tokens=8_192,
        max_output_tokens=1_024, max_total_tokens=8_192, queue_limit=1_024,
        prediction=Prediction(
            revision="declared-1", queue_us=1_000, prefill_base_us=1_000,
            prefill_us_per_ktok=1_000, inter_token_us=1_000,
        ),
    )  # fmt: skip


def records(address: str, now_us: int) -> tuple[list[Record], str]:
    """Return (the whole configuration as rows, in effect from `now_us` on; the tenant's key)."""
    key, key_record = minted(now_us)
    who = [_identity(name, tokenizer) for name, tokenizer in MODELS.items()]
    rates = RateTable(
        version="bench-rates-1",
        effective_from_us=now_us,
        currency="units",
        rates=tuple(
            Rate(
                key=each.identity_id,
                input_micro_per_mtok=2_000_000,
                output_micro_per_mtok=8_000_000,
                cached_input_micro_per_mtok=500_000,
            )
            for each in who
        ),
    )
    published = policy(address)
    rows: list[Record] = [
        *who,
        RateTableRecord(
            version=rates.version,
            effective_from_us=now_us,
            currency=rates.currency,
            body_json=msgspec.json.encode(rates).decode(),
            published_at_us=now_us,
            published_by=AUTHOR,
        ),
        RoutePolicyRecord(
            revision=published.revision,
            body_json=msgspec.json.encode(published).decode(),
            published_at_us=now_us,
            published_by=AUTHOR,
        ),
        Tenant(
            tenant_id=TENANT,
            revision=1,
            body_json=msgspec.json.encode(QUOTA).decode(),
            changed_at_us=now_us,
            changed_by=AUTHOR,
        ),
        key_record,
    ]
    return rows, key


def minted(now_us: int) -> tuple[str, ApiKey]:
    return mint_key(
        os.urandom(KEY_RANDOM_BYTES),
        tenant_id=TENANT,
        created_at_us=now_us,
        created_by=AUTHOR,
        scopes=ALL_SCOPES,
    )
