"""A decision as JSON that a person reads: names, milliseconds and units instead of positions."""

from typing import Any

from gateway.policy.filters import BY_NAME
from gateway.policy.values import Candidate, Decision, Limit, TenantState
from ledger.money import units_text


def decision_view(decision: Decision) -> dict[str, Any]:
    """Returns a decision with names and units a person reads."""
    return {
        "status": decision.status,
        "reason_code": decision.reason_code,
        "http_status": decision.http_status,
        "limits": [_limit(each) for each in decision.limits],
        "conditional_on": decision.conditional_on,
        "retry_after_ms": decision.retry_after_ms,
        "route_id": decision.route_id,
        "reasons": decision.reasons,
        "degraded_from": decision.degraded_from,
        "probe": decision.probe,
        "release_id": decision.release_id,
        "arm": decision.arm,
        "reserves": {
            "kv_tokens": decision.reserve_kv_tokens,
            "cost_units": optional_units(decision.cost_pico),
        },
        "estimate": {"ttft_ms": _ms(decision.ttft_us), "e2e_ms": _ms(decision.e2e_us)},
        "candidates": [_candidate(each) for each in decision.candidates],
    }


def tenant_view(tenant: TenantState) -> dict[str, Any]:
    """Returns what the tenant holds of its own quota."""
    return {
        "in_flight": tenant.in_flight,
        "in_flight_limit": tenant.in_flight_limit,
        "requests_in_minute": tenant.requests_in_minute,
        "requests_per_minute": tenant.requests_per_minute,
        "tokens_in_minute": tenant.tokens_in_minute,
        "tokens_per_minute": tenant.tokens_per_minute,
        "pending_units": optional_units(tenant.pending_pico),
        "spent_this_month_units": optional_units(tenant.spent_pico),
        "month_budget_units": optional_units(tenant.budget_pico),
        "spent_today_units": optional_units(tenant.spent_today_pico),
        "day_budget_units": optional_units(tenant.day_budget_pico),
    }


def _candidate(each: Candidate) -> dict[str, Any]:
    fell_at = BY_NAME.get(each.fell_at or "")
    return {
        "route_id": each.route_id,
        "role": each.role,
        "via_route": each.via_route,
        "passed": each.fell_at is None,
        "fell_at": each.fell_at,
        "reason_code": fell_at.reason_code if fell_at else None,
        "input_tokens": each.input_tokens,
        "queue_ms": _ms(each.queue_us),
        "prefill_ms": _ms(each.prefill_us),
        "ttft_ms": _ms(each.ttft_us),
        "e2e_ms": _ms(each.e2e_us),
        "cost_units": optional_units(each.cost_pico),
    }


def _limit(each: Limit) -> dict[str, Any]:
    return {"name": each.name, "limit": each.limit, "observed": each.observed}


def _ms(value_us: int | None) -> float | None:
    return None if value_us is None else value_us / 1_000


def optional_units(value_pico: int | None) -> str | None:
    return None if value_pico is None else units_text(value_pico)
