"""The demonstration's fleet as records: tenants, identities, rates, evidence and a route policy.

`fast-v2` and `long-context-v4` are the two routes of the source's demonstration with its numbers:
at 1,000 and 12,000 input tokens their predictions are the source's, to the millisecond.
"""

from collections.abc import Iterable

import msgspec

from gateway.fleet_file.identities import Identity, identity_record
from gateway.policy.values import (
    AttemptRules,
    BreakerRule,
    CanaryArm,
    CanaryPlan,
    FallbackEdge,
    HedgeRule,
    LearningRule,
    LogicalModel,
    Prediction,
    PriorityShare,
    RetryRule,
    Route,
    RoutePolicy,
)
from gateway.quota import Quota
from ledger.rates import Rate, RateTable
from ledger.records import (
    EvaluationResult,
    ModelIdentity,
    RateTableRecord,
    Record,
    RoutePolicyRecord,
    Tenant,
)

AUTHOR = "demo"
SUITE = "core-chat-v1"
DAY_US = 86_400_000_000
UNIT_MICRO = 1_000_000  # one unit per million tokens, in the rate table's micro-units

TENANTS: dict[str, Quota] = {
    "support-desk": Quota(in_flight_limit=96, default_deadline_us=30_000_000),
    "research-lab": Quota(
        in_flight_limit=24,
        tokens_per_minute=220_000,
        budget_pico=40 * 10**12,
        default_deadline_us=120_000_000,
    ),
    "back-office": Quota(
        in_flight_limit=12,
        requests_per_minute=90,
        budget_pico=20 * 10**12,
        time_zone="Asia/Kolkata",
        allowed_regions=("eu-west",),
        default_deadline_us=60_000_000,
    ),
}


def identity(logical_model: str, weights: str, tokenizer: str, runtime: str, quantization: str,
             serving: str) -> ModelIdentity:  # fmt: skip
    """Return the identity of a simulated model."""
    return identity_record(
        Identity(
            logical_model=logical_model,
            weights_revision=weights,
            tokenizer_revision=tokenizer,
            runtime_name="weighbridge-simulator",
            runtime_revision=runtime,
            quantization=quantization,
            serving_config_revision=serving,
            prompt_policy_revision="prompt-1",
        )
    )


FAST_V2 = identity("assist", "model-fast-sha256-a1", "o200k_base/chat-1", "sim-1", "bf16", "fast-2")
FAST_V3 = identity("assist", "model-fast-sha256-a1", "o200k_base/chat-1", "sim-2", "fp8", "fast-3")
LONG_V4 = identity(
    "assist-long", "model-long-sha256-b7", "cl100k_base/chat-1", "sim-1", "bf16", "long-4"
)
IDENTITIES = (FAST_V2, FAST_V3, LONG_V4)

_FAST = Prediction(
    revision="declared-1", queue_us=120_000, prefill_base_us=170_000,
    prefill_us_per_ktok=90_000, inter_token_us=24_000,
)  # fmt: skip
_LONG = Prediction(
    revision="declared-1", queue_us=260_000, prefill_base_us=60_000,
    prefill_us_per_ktok=40_000, inter_token_us=36_000,
)  # fmt: skip


def _fast(route_id: str, who: ModelIdentity, region: str, address: str) -> Route:
    return Route(
        route_id=route_id, identity_id=who.identity_id, tokenizer_revision=who.tokenizer_revision,
        provider_kind="simulator", address=address, region=region,
        capabilities=("json_schema", "tools"), max_input_tokens=8_192, max_output_tokens=1_024,
        max_total_tokens=8_192, prediction=_FAST, quality_milli=900, queue_limit=64,
    )  # fmt: skip


def _long(route_id: str, region: str) -> Route:
    return Route(
        route_id=route_id, identity_id=LONG_V4.identity_id,
        tokenizer_revision=LONG_V4.tokenizer_revision, provider_kind="simulator",
        address="sim:llama-3.1-8b-rtxpro6000?kv_blocks=8000", region=region,
        capabilities=("json_schema", "long_context", "tools"), max_input_tokens=65_536,
        max_output_tokens=2_048, max_total_tokens=65_536, prediction=_LONG, quality_milli=850,
        queue_limit=64,
    )  # fmt: skip


def policy() -> RoutePolicy:
    """Return the demonstration's route policy."""
    return RoutePolicy(
        revision="route-policy-v1",
        models=(
            LogicalModel(
                name="assist", primary_routes=("fast-v2", "fast-us-v2", "fast-v3"),
                max_input_tokens=8_192, max_output_tokens=1_024, max_total_tokens=8_192,
                default_output_tokens=256, default_deadline_us=30_000_000,
                canary=CanaryPlan(
                    release_id="fast-v3-rollout", key="request", salt="fast-v3-rollout/1",
                    arms=(
                        CanaryArm(
                            arm="baseline", share_permille=800, route_ids=("fast-v2", "fast-us-v2")
                        ),
                        CanaryArm(arm="canary", share_permille=200, route_ids=("fast-v3",)),
                    ),
                ),
            ),
            LogicalModel(
                name="assist-long", primary_routes=("long-context-v4", "long-context-us-v4"),
                max_input_tokens=65_536, max_output_tokens=2_048, max_total_tokens=65_536,
                default_output_tokens=512, default_deadline_us=60_000_000,
            ),
        ),
        routes=(
            _fast("fast-v2", FAST_V2, "eu-west", "sim:llama-3.1-8b-rtx4090"),
            _fast("fast-us-v2", FAST_V2, "us-east", "sim:llama-3.1-8b-rtx4090"),
            _fast("fast-v3", FAST_V3, "eu-west", "sim:llama-3.1-8b-rtx4090?kv_blocks=3600"),
            _long("long-context-v4", "eu-west"),
            _long("long-context-us-v4", "us-east"),
        ),
        edges=tuple(
            FallbackEdge(
                from_route=origin, to_route="long-context-v4",
                allowed_reasons=("overloaded", "unhealthy", "deadline_risk"),
                required_evaluation_suite=SUITE, quality_floor_milli=800,
            )
            for origin in ("fast-v2", "fast-v3")
        ),
        queue_shares=(
            PriorityShare(priority="interactive", queue_permille=1000),
            PriorityShare(priority="normal", queue_permille=600),
            PriorityShare(priority="batch", queue_permille=250),
        ),
    )  # fmt: skip


def shown_policy() -> RoutePolicy:
    """Return `policy` with what the demonstration serves by beside it.

    Batch is shed first also where KV runs out; what a full backend refused is tried again and what
    failed goes along an edge, within a budget; who is silent for 2 s gets a hedge; a failing route
    is taken out. Predictions are learned once the server runs.
    """
    return msgspec.structs.replace(
        policy(),
        queue_shares=(
            PriorityShare(priority="interactive", queue_permille=1000, kv_permille=1000),
            PriorityShare(priority="normal", queue_permille=600, kv_permille=900),
            PriorityShare(priority="batch", queue_permille=250, kv_permille=600),
        ),
        attempts=AttemptRules(
            limit=3,
            retry=RetryRule(budget_permille=100),
            hedge=HedgeRule(delay_us=2_000_000, budget_permille=50),
            breaker=BreakerRule(),
        ),
        learning=LearningRule(),
    )


def _rate(key: str, input_units: int, output_units: int, cached_micro: int) -> Rate:
    return Rate(
        key=key,
        input_micro_per_mtok=input_units * UNIT_MICRO,
        output_micro_per_mtok=output_units * UNIT_MICRO,
        cached_input_micro_per_mtok=cached_micro,
    )


def rate_table(effective_from_us: int) -> RateTable:
    """Return the demonstration's prices in abstract units, those of the source."""
    return RateTable(
        version="rates-1",
        effective_from_us=effective_from_us,
        currency="units",
        rates=(
            _rate(FAST_V2.identity_id, 2, 8, UNIT_MICRO // 2),
            _rate(FAST_V3.identity_id, 2, 8, UNIT_MICRO // 2),
            _rate(LONG_V4.identity_id, 4, 12, UNIT_MICRO),
        ),
    )


def fleet_records(published_at_us: int, route_policy: RoutePolicy | None = None) -> list[Record]:
    """Return the whole configuration as rows, all in effect from `published_at_us` on.

    `route_policy`: None: that of `policy`, one attempt a request.
    """
    rates, route_policy = rate_table(published_at_us), route_policy or policy()
    rows: list[Record] = list(IDENTITIES)
    rows.append(
        RateTableRecord(
            version=rates.version,
            effective_from_us=rates.effective_from_us,
            currency=rates.currency,
            body_json=msgspec.json.encode(rates).decode(),
            published_at_us=published_at_us,
            published_by=AUTHOR,
        )
    )
    rows += _evidence(published_at_us)
    rows.append(
        RoutePolicyRecord(
            revision=route_policy.revision,
            body_json=msgspec.json.encode(route_policy).decode(),
            published_at_us=published_at_us,
            published_by=AUTHOR,
        )
    )
    rows += [
        Tenant(
            tenant_id=tenant_id,
            revision=1,
            body_json=msgspec.json.encode(quota).decode(),
            changed_at_us=published_at_us,
            changed_by=AUTHOR,
        )
        for tenant_id, quota in TENANTS.items()
    ]
    return rows


def _evidence(measured_at_us: int) -> Iterable[Record]:
    return [
        EvaluationResult(
            evaluation_id=f"{SUITE}/{who.serving_config_revision}",
            suite=SUITE,
            identity_id=who.identity_id,
            score_milli=score_milli,
            passed=1,
            measured_at_us=measured_at_us,
            evidence="declared by the demonstration",
        )
        for who, score_milli in ((FAST_V2, 912), (FAST_V3, 908), (LONG_V4, 874))
    ]
