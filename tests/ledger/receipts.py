"""Receipts for tests of what is computed from them: valid as they stand, changed by the test."""

from typing import Any

from ledger.records import Receipt

HOUR_US = 3_600_000_000
T0_US = 1_750_000_000_000_000 - 1_750_000_000_000_000 % (24 * HOUR_US)  # a midnight, UTC

_DEFAULTS: dict[str, Any] = {
    "request_id": "req_1",
    "revision": 0,
    "resolves_hash": None,
    "tenant_id": "acme",
    "key_id": "key_1",
    "priority": "interactive",
    "user_path": "interactive",
    "task_type": "chat",
    "status": "completed",
    "logical_model": "chat-large",
    "identity_id": "mid_a",
    "route_id": "route_a",
    "route_reason": "CAPABILITY_MATCH",
    "policy_revision": "policy-1",
    "prediction_revision": "prediction-1",
    "snapshot_revision": 1,
    "rate_table_version": "rates-1",
    "rate_key": "route_a",
    "tokenizer_revision": "tokenizer-1",
    "release_id": None,
    "arm": None,
    "degraded_from": None,
    "input_tokens": 1_000,
    "cached_input_tokens": 0,
    "output_tokens": 200,
    "usage_source": "counted",
    "counted_by": "tokenizer",
    "queue_us": 20_000,
    "prefill_us": 100_000,
    "first_decode_us": 0,
    "first_byte_network_us": 20_000,
    "decode_us": 2_000_000,
    "first_token_us": 140_000,
    "itl_mean_us": 10_000,
    "itl_p50_us": 10_000,
    "itl_p95_us": 12_000,
    "itl_max_us": 15_000,
    "e2e_us": 2_140_000,
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
    "deadline_us": 30_000_000,
    "max_output_tokens": 256,
    "attempts": 1,
    "simulated": 1,
    "accepted_at_us": T0_US,
    "ended_at_us": T0_US + 2_140_000,
}


def receipt(**changes: Any) -> Receipt:
    """A completed receipt with `changes`; components given without a total are added up."""
    fields = {**_DEFAULTS, **changes}
    if "cost_total_pico" not in changes:
        fields["cost_total_pico"] = sum(
            fields[f"cost_{part}_pico"]
            for part in ("input", "cached_input", "output", "fixed", "retry_and_hedge")
        )
    if "ended_at_us" not in changes:
        fields["ended_at_us"] = fields["accepted_at_us"] + fields["e2e_us"]
    return Receipt(**fields)
