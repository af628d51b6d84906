"""Requests, routes, contexts and policies for tests, with the numbers of the source's course.

Each factory returns a valid value; keyword arguments replace single fields. Units as in
`gateway.policy.values`: the course's milliseconds are microseconds here, its cost units pico.
"""

from typing import Any

import msgspec

from gateway.policy.values import (
    AdmissionContext,
    Budget,
    CapacitySnapshot,
    Evaluation,
    FallbackEdge,
    InferenceRequest,
    LogicalModel,
    Prediction,
    Route,
    RoutePolicy,
    RouteState,
    TenantState,
    TokenCount,
)
from ledger.rates import Rate, RateTable

NOW_US = 1_800_000_000_000_000
PICO = 10**12
MODEL = "assistant"


def budget(**changed: Any) -> Budget:
    """The budget of the course's req-normal: 200 tokens out, 8 s, 0.01 units."""
    fields: dict[str, Any] = {
        "max_input_tokens": 65_536,
        "max_output_tokens": 200,
        "max_total_tokens": 65_536,
        "deadline_us": 8_000_000,
        "max_cost_pico": PICO // 100,
    }
    return Budget(**fields | changed)


def request(*, tokens: int = 1_000, **changed: Any) -> InferenceRequest:
    """The course's req-normal; budget fields may be given beside the request's own."""
    of_budget = {name: changed.pop(name) for name in list(changed) if name in _BUDGET_FIELDS}
    fields: dict[str, Any] = {
        "request_id": "req-normal",
        "tenant_id": "tenant-a",
        "logical_model": MODEL,
        "priority": "interactive",
        "budget": budget(**of_budget),
        "input_tokens": (TokenCount(tokenizer_revision="tok-1", tokens=tokens),),
        "required_capabilities": ("json_schema",),
    }
    return InferenceRequest(**fields | changed)


_BUDGET_FIELDS = frozenset(Budget.__struct_fields__)


def prediction(**changed: Any) -> Prediction:
    """The course's prediction of fast-v2: 120 ms queue, 260 ms prefill, 24 ms a token."""
    fields: dict[str, Any] = {
        "revision": "prediction-1",
        "queue_us": 120_000,
        "prefill_base_us": 260_000,
        "prefill_us_per_ktok": 0,
        "inter_token_us": 24_000,
    }
    return Prediction(**fields | changed)


def route(route_id: str = "fast-v2", **changed: Any) -> Route:
    """The course's fast-v2."""
    fields: dict[str, Any] = {
        "route_id": route_id,
        "identity_id": f"identity-of-{route_id}",
        "tokenizer_revision": "tok-1",
        "provider_kind": "simulator",
        "address": "",
        "region": "eu",
        "capabilities": ("json_schema", "tools"),
        "max_input_tokens": 8_192,
        "max_output_tokens": 1_024,
        "max_total_tokens": 8_192,
        "prediction": prediction(),
    }
    return Route(**fields | changed)


def long_route(route_id: str = "long-context-v4", **changed: Any) -> Route:
    """The course's long-context-v4: 260 ms queue, 540 ms prefill, 36 ms a token."""
    fields: dict[str, Any] = {
        "capabilities": ("json_schema", "tools", "long_context"),
        "max_input_tokens": 65_536,
        "max_output_tokens": 2_048,
        "max_total_tokens": 65_536,
        "prediction": prediction(queue_us=260_000, prefill_base_us=540_000, inter_token_us=36_000),
    }
    return route(route_id, **fields | changed)


def model(*primary_routes: str, **changed: Any) -> LogicalModel:
    fields: dict[str, Any] = {
        "name": MODEL,
        "primary_routes": primary_routes,
        "max_input_tokens": 65_536,
        "max_output_tokens": 4_096,
        "max_total_tokens": 65_536,
        "default_output_tokens": 256,
        "default_deadline_us": 30_000_000,
    }
    return LogicalModel(**fields | changed)


def policy(*routes: Route, **changed: Any) -> RoutePolicy:
    """A policy whose one logical model has every route as a primary, unless `models` is given."""
    fields: dict[str, Any] = {
        "revision": "policy-1",
        "models": (model(*(each.route_id for each in routes)),),
        "routes": routes,
    }
    return RoutePolicy(**fields | changed)


def edge(from_route: str, to_route: str, **changed: Any) -> FallbackEdge:
    fields: dict[str, Any] = {
        "from_route": from_route,
        "to_route": to_route,
        "allowed_reasons": ("overloaded", "unhealthy", "deadline_risk"),
        "required_evaluation_suite": "suite-1",
        "quality_floor_milli": 800,
    }
    return FallbackEdge(**fields | changed)


def evaluation(route_id: str, **changed: Any) -> Evaluation:
    fields: dict[str, Any] = {
        "suite": "suite-1",
        "identity_id": f"identity-of-{route_id}",
        "score_milli": 900,
        "passed": True,
    }
    return Evaluation(**fields | changed)


def snapshot(route_id: str = "fast-v2", **changed: Any) -> CapacitySnapshot:
    """An idle backend, observed now, with the course's 24,000 free KV tokens."""
    fields: dict[str, Any] = {
        "route_id": route_id,
        "revision": 1,
        "observed_at_us": NOW_US,
        "waiting_requests": 0,
        "running_requests": 0,
        "waiting_input_tokens": 0,
        "reserved_kv_tokens": 0,
        "free_kv_tokens": 24_000,
        "recent_output_tokens_per_second": 0,
        "queue_p95_us": 0,
        "oldest_wait_us": 0,
    }
    return CapacitySnapshot(**fields | changed)


def state(route_id: str = "fast-v2", **changed: Any) -> RouteState:
    """A healthy route with nothing taken; snapshot fields may be given beside its own."""
    of_snapshot = {
        name: changed.pop(name)
        for name in list(changed)
        if name in CapacitySnapshot.__struct_fields__ and name != "route_id"
    }
    fields: dict[str, Any] = {
        "route_id": route_id,
        "healthy": True,
        "snapshot": snapshot(route_id, **of_snapshot),
    }
    return RouteState(**fields | changed)


def tenant(**changed: Any) -> TenantState:
    fields: dict[str, Any] = {"tenant_id": "tenant-a", "in_flight": 1, "in_flight_limit": 4}
    return TenantState(**fields | changed)


def rate(key: str = "fast-v2", input_units: int = 2, output_units: int = 8, **more: Any) -> Rate:
    """A flat rate in whole units per million tokens."""
    fields: dict[str, Any] = {
        "key": key,
        "input_micro_per_mtok": input_units * 1_000_000,
        "output_micro_per_mtok": output_units * 1_000_000,
        "cached_input_micro_per_mtok": input_units * 1_000_000,
    }
    return Rate(**fields | more)


def rates(*each: Rate) -> RateTable:
    return RateTable(version="rates-1", effective_from_us=0, currency="unit", rates=each)


COURSE_RATES = rates(rate("fast-v2", 2, 8), rate("long-context-v4", 4, 12))


def context(*states: RouteState, **changed: Any) -> AdmissionContext:
    """The course's rates and, unless states are given, both its routes idle and healthy."""
    both = (state("fast-v2"), state("long-context-v4", free_kv_tokens=80_000))
    fields: dict[str, Any] = {
        "now_us": NOW_US,
        "tenant": tenant(),
        "route_states": states or both,
        "rates": COURSE_RATES,
    }
    return AdmissionContext(**fields | changed)


def course_policy(**changed: Any) -> RoutePolicy:
    """Both routes of the source's demonstration as primaries of one model."""
    return policy(route(), long_route(), **changed)


replaced = msgspec.structs.replace
