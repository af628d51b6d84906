"""Records with plausible values; every field can be overridden by keyword.

`any_record(type, n)` gives the n-th of any type, with keys that no other n has.
"""

from hashlib import sha256
from typing import Any

import msgspec

from ledger import records as r
from ledger.rates import Rate, RateTable
from ledger.records import Record
from ledger.rows import columns

NOW_US = 1_764_000_000_000_000  # 2025-11-24T16:00:00Z
RATE_TABLE = RateTable(
    version="rates-1",
    effective_from_us=0,
    currency="units",
    rates=(
        Rate(
            key="route-a",
            input_micro_per_mtok=2_000_000,
            output_micro_per_mtok=8_000_000,
            cached_input_micro_per_mtok=500_000,
        ),
    ),
)


def request_id(number: int) -> str:
    return f"req_{number:026d}"


def any_record(record_type: type[Record], number: int = 1, **overrides: Any) -> Record:
    """The n-th record of a type: integers n, texts "<field>-n", bytes a hash of n, no None."""
    values: dict[str, Any] = {}
    for column in columns(record_type):
        if column.kind is int:
            values[column.name] = number
        elif column.kind is bytes:
            values[column.name] = sha256(f"{column.name}-{number}".encode()).digest()
        else:
            values[column.name] = f"{column.name}-{number}"
    return record_type(**(values | overrides))


def model_identity(**overrides: Any) -> r.ModelIdentity:
    values: dict[str, Any] = {
        "identity_id": "mid_a",
        "logical_model": "assistant-large",
        "weights_revision": "w-1",
        "tokenizer_revision": "tok-1",
        "runtime_name": "simulator",
        "runtime_revision": "1",
        "quantization": "none",
        "serving_config_revision": "s-1",
        "prompt_policy_revision": "p-1",
    }
    return r.ModelIdentity(**(values | overrides))


def rate_table(table: RateTable = RATE_TABLE, **overrides: Any) -> r.RateTableRecord:
    values: dict[str, Any] = {
        "version": table.version,
        "effective_from_us": table.effective_from_us,
        "currency": table.currency,
        "body_json": msgspec.json.encode(table).decode(),
        "published_at_us": NOW_US,
        "published_by": "operator",
    }
    return r.RateTableRecord(**(values | overrides))


def route_policy(**overrides: Any) -> r.RoutePolicyRecord:
    values: dict[str, Any] = {
        "revision": "policy-1",
        "body_json": "[]",
        "published_at_us": NOW_US,
        "published_by": "operator",
    }
    return r.RoutePolicyRecord(**(values | overrides))


def tenant(**overrides: Any) -> r.Tenant:
    values: dict[str, Any] = {
        "tenant_id": "acme",
        "revision": 1,
        "body_json": "{}",
        "changed_at_us": NOW_US,
        "changed_by": "operator",
    }
    return r.Tenant(**(values | overrides))


def api_key(number: int = 1, **overrides: Any) -> r.ApiKey:
    values: dict[str, Any] = {
        "key_id": f"key_{number}",
        "tenant_id": "acme",
        "prefix": f"wb_{number:06d}",
        "key_hash": sha256(f"key {number}".encode()).digest(),
        "scopes": "inference receipts",
        "created_at_us": NOW_US,
        "created_by": "operator",
    }
    return r.ApiKey(**(values | overrides))


def api_key_revocation(number: int = 1, **overrides: Any) -> r.ApiKeyRevocation:
    values: dict[str, Any] = {
        "key_id": f"key_{number}",
        "revoked_at_us": NOW_US,
        "revoked_by": "operator",
        "reason": "lost",
    }
    return r.ApiKeyRevocation(**(values | overrides))


def evaluation(number: int = 1, **overrides: Any) -> r.EvaluationResult:
    values: dict[str, Any] = {
        "evaluation_id": f"eval_{number}",
        "suite": "core",
        "identity_id": "mid_a",
        "score_milli": 930,
        "passed": 1,
        "measured_at_us": NOW_US,
        "evidence": "run/1",
    }
    return r.EvaluationResult(**(values | overrides))


def capacity_snapshot(**overrides: Any) -> r.CapacitySnapshotRecord:
    values: dict[str, Any] = {
        "route_id": "route-a",
        "revision": 1,
        "observed_at_us": NOW_US,
        "waiting_requests": 0,
        "running_requests": 1,
        "waiting_input_tokens": 0,
        "reserved_kv_tokens": 1_200,
        "free_kv_tokens": 60_000,
        "recent_output_tokens_per_second": 900,
        "queue_p95_us": 12_000,
        "oldest_wait_us": 0,
    }
    return r.CapacitySnapshotRecord(**(values | overrides))


def route_decision(number: int = 1, **overrides: Any) -> r.RouteDecision:
    values: dict[str, Any] = {
        "request_id": request_id(number),
        "decided_at_us": NOW_US + number,
        "status": "accepted",
        "reason_code": None,
        "route_id": "route-a",
        "tenant_id": "acme",
        "policy_revision": "policy-1",
        "rate_table_version": "rates-1",
        "code_revision": "code-1",
        "inputs_json": "[]",
        "decision_json": "[]",
    }
    values |= overrides
    covered = f"{values['inputs_json']}\0{values['decision_json']}".encode()
    return r.RouteDecision(**({"digest": sha256(covered).digest()} | values))


def reservation(number: int = 1, **overrides: Any) -> r.Reservation:
    values: dict[str, Any] = {
        "reservation_id": f"res_{number:026d}",
        "request_id": request_id(number),
        "tenant_id": "acme",
        "route_id": "route-a",
        "reserved_at_us": NOW_US + number,
        "kv_tokens": 1_200,
        "input_tokens": 1_000,
        "output_tokens": 200,
        "cost_pico": 3_600_000_000,
        "bound_at_us": NOW_US + number + 60_000_000,
    }
    return r.Reservation(**(values | overrides))


def attempt(number: int = 1, **overrides: Any) -> r.Attempt:
    values: dict[str, Any] = {
        "attempt_id": f"att_{number:026d}",
        "request_id": request_id(number),
        "ordinal": 0,
        "kind": "primary",
        "route_id": "route-a",
        "identity_id": "mid_a",
        "provider_kind": "simulator",
        "started_at_us": NOW_US + number,
    }
    return r.Attempt(**(values | overrides))


def attempt_event(number: int = 1, **overrides: Any) -> r.AttemptEvent:
    values: dict[str, Any] = {
        "attempt_id": f"att_{number:026d}",
        "request_id": request_id(number),
        "event": "ended",
        "at_us": NOW_US + number + 2_000_000,
        "outcome": "completed",
        "provider_request_id": f"prov-{number}",
        "input_tokens": 1_000,
        "cached_input_tokens": 0,
        "output_tokens": 200,
        "usage_source": "counted",
        "cost_pico": 3_600_000_000,
    }
    return r.AttemptEvent(**(values | overrides))


def settlement(number: int = 1, **overrides: Any) -> r.Settlement:
    values: dict[str, Any] = {
        "reservation_id": f"res_{number:026d}",
        "request_id": request_id(number),
        "kind": "posted",
        "settled_at_us": NOW_US + number + 2_000_000,
        "cost_pico": 3_600_000_000,
    }
    return r.Settlement(**(values | overrides))


def receipt(number: int = 1, **overrides: Any) -> r.Receipt:
    """A completed request of 1,000 in and 200 out on route-a at rates-1: 0.0036 units."""
    values: dict[str, Any] = {
        "request_id": request_id(number),
        "revision": 0,
        "resolves_hash": None,
        "tenant_id": "acme",
        "key_id": "key_1",
        "priority": "interactive",
        "user_path": "interactive",
        "task_type": "chat",
        "status": "completed",
        "logical_model": "assistant-large",
        "identity_id": "mid_a",
        "route_id": "route-a",
        "route_reason": "CAPABILITY_MATCH DEADLINE_FIT COST_FIT",
        "policy_revision": "policy-1",
        "prediction_revision": "pred-1",
        "snapshot_revision": 1,
        "rate_table_version": "rates-1",
        "rate_key": "route-a",
        "tokenizer_revision": "tok-1",
        "release_id": None,
        "arm": None,
        "degraded_from": None,
        "input_tokens": 1_000,
        "cached_input_tokens": 0,
        "output_tokens": 200,
        "usage_source": "counted",
        "counted_by": "tokenizer",
        "queue_us": 20_000,
        "prefill_us": 300_000,
        "first_decode_us": 40_000,
        "first_byte_network_us": 20_000,
        "decode_us": 1_980_000,
        "first_token_us": 380_000,
        "itl_mean_us": 10_000,
        "itl_p50_us": 9_800,
        "itl_p95_us": 14_000,
        "itl_max_us": 31_000,
        "e2e_us": 2_360_000,
        "cancel_ack_us": None,
        "cost_input_pico": 2_000_000_000,
        "cost_cached_input_pico": 0,
        "cost_output_pico": 1_600_000_000,
        "cost_fixed_pico": 0,
        "cost_retry_and_hedge_pico": 0,
        "cost_total_pico": 3_600_000_000,
        "cost_estimated_pico": 3_600_000_000,
        "terminal_error_code": None,
        "schema_valid": None,
        "deadline_us": 10_000_000,
        "max_output_tokens": 200,
        "attempts": 1,
        "simulated": 1,
        "accepted_at_us": NOW_US + number,
        "ended_at_us": NOW_US + number + 2_360_000,
    }
    return r.Receipt(**(values | overrides))


_NOT_RUN = (
    "identity_id",
    "route_id",
    "prediction_revision",
    "snapshot_revision",
    "rate_key",
    "tokenizer_revision",
    "usage_source",
    "queue_us",
    "prefill_us",
    "first_decode_us",
    "first_byte_network_us",
    "decode_us",
    "first_token_us",
    "itl_mean_us",
    "itl_p50_us",
    "itl_p95_us",
    "itl_max_us",
    "cost_estimated_pico",
)


def rejected_receipt(number: int = 1, **overrides: Any) -> r.Receipt:
    """The receipt of a request that was refused at admission: nothing run, nothing priced."""
    values: dict[str, Any] = dict.fromkeys(_NOT_RUN)
    values |= {
        "status": "rejected",
        "route_reason": "",
        "output_tokens": 0,
        "e2e_us": 400,
        "cost_input_pico": 0,
        "cost_output_pico": 0,
        "cost_total_pico": 0,
        "terminal_error_code": "DEADLINE_INSUFFICIENT",
        "attempts": 0,
        "ended_at_us": NOW_US + number + 400,
    }
    return receipt(number, **(values | overrides))


def trace_event(number: int = 1, **overrides: Any) -> r.TraceEvent:
    values: dict[str, Any] = {
        "event": "request.accepted",
        "request_id": request_id(number),
        "observed_at_us": NOW_US + number,
        "policy_revision": "policy-1",
        "route_id": "route-a",
        "reasons": "CAPABILITY_MATCH",
        "budget_json": "[]",
        "snapshot_revision": 1,
    }
    return r.TraceEvent(**(values | overrides))


def control_action(**overrides: Any) -> r.ControlAction:
    values: dict[str, Any] = {
        "action": "policy.publish",
        "subject": "policy-1",
        "actor": "operator",
        "acted_at_us": NOW_US,
        "reason": "first policy",
        "before_json": "{}",
        "after_json": "{}",
    }
    return r.ControlAction(**(values | overrides))


def gateway_records(number: int = 1) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """As `request_records`, with the ids and times that the gateway gives: they share rows."""
    name, attempt_id = request_id(number), f"{request_id(number)}.0"
    first = (
        route_decision(number),
        trace_event(number, event="inference.route.selected"),
        reservation(number, reservation_id=name),
        attempt(number, attempt_id=attempt_id),
    )
    end = receipt(number)
    last = (
        attempt_event(number, attempt_id=attempt_id, at_us=end.ended_at_us, rate_key=end.rate_key),
        settlement(number, reservation_id=name, settled_at_us=end.ended_at_us),
        end,
    )
    return first, last


def request_records(number: int = 1) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """The two commits of one completed request: before its first byte leaves, and at its end."""
    first = (route_decision(number), reservation(number), attempt(number), trace_event(number))
    return first, (attempt_event(number), settlement(number), receipt(number))
