"""A receipt as JSON: the one rendering for answers, the native API and the page's raw view.

Names are those of SPEC 9. Times are ISO 8601 in UTC; durations are milliseconds with at most three
decimals, exact to the microsecond that the ledger keeps; money is an exact decimal string in units
beside the integer in pico units; hashes are hexadecimal.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from gateway.policy.objectives import met
from gateway.submission import Filed
from ledger.money import units_text
from ledger.records import ModelIdentity, Receipt

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # of UTC, which "Z" says

_IDENTITY_FIELDS = tuple(name for name in ModelIdentity.__struct_fields__ if name != "identity_id")

_DURATIONS = (
    "queue", "prefill", "first_decode", "first_byte_network", "decode", "first_token", "e2e",
    "cancel_ack",
)  # fmt: skip


def iso_time(at_us: int) -> str:
    """Returns a time in integer microseconds as ISO 8601, UTC, with six decimals."""
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat(timespec="microseconds") + "Z"


def milliseconds(duration_us: int | None) -> int | float | None:
    """Returns µs as ms: an integer where it is whole, else a number with at most 3 decimals.

    The nearest double of such a number prints as its decimals, so nothing is lost on the way.
    """
    if duration_us is None:
        return None
    whole, rest = divmod(duration_us, 1000)
    return duration_us / 1000 if rest else whole


def receipt_json(
    receipt: Receipt,
    *,
    seq: int,
    prev_hash: bytes | None,
    entry_hash: bytes,
    identity: ModelIdentity | None = None,
    currency: str = "units",
) -> dict[str, Any]:
    """Returns the receipt as a JSON object; `identity` adds the eight fields of the model's."""
    shown: dict[str, Any] = {
        "request_id": receipt.request_id,
        "revision": receipt.revision,
        "tenant_id": receipt.tenant_id,
        "key_id": receipt.key_id,
        "priority": receipt.priority,
        "user_path": receipt.user_path,
        "task_type": receipt.task_type,
        "status": receipt.status,
        "logical_model": receipt.logical_model,
        "model_identity_id": receipt.identity_id,
        "model_identity": None
        if identity is None
        else {name: getattr(identity, name) for name in _IDENTITY_FIELDS},
        "route_id": receipt.route_id,
        "route_reason": receipt.route_reason,
        "policy_revision": receipt.policy_revision,
        "prediction_revision": receipt.prediction_revision,
        "snapshot_revision": receipt.snapshot_revision,
        "rate_table_version": receipt.rate_table_version,
        "rate_key": receipt.rate_key,
        "tokenizer_revision": receipt.tokenizer_revision,
        "release_id": receipt.release_id,
        "arm": receipt.arm,
        "degraded": receipt.degraded_from is not None,
        "degraded_from": receipt.degraded_from,
        "simulated": bool(receipt.simulated),
        "input_tokens": receipt.input_tokens,
        "cached_input_tokens": receipt.cached_input_tokens,
        "output_tokens": receipt.output_tokens,
        "max_output_tokens": receipt.max_output_tokens,
        "usage_source": receipt.usage_source,
        "usage_convention": receipt.usage_convention,
        "further_meters": orjson.loads(receipt.usage_json or "{}"),
        "counted_by": receipt.counted_by,
    }
    for name in _DURATIONS:
        shown[f"{name}_ms"] = milliseconds(getattr(receipt, f"{name}_us"))
    shown["itl"] = {
        f"{name}_ms": milliseconds(getattr(receipt, f"itl_{name}_us"))
        for name in ("mean", "p50", "p95", "max")
    }
    shown["objectives"] = _objectives(receipt)
    shown["deadline_ms"] = milliseconds(receipt.deadline_us)
    shown["cost"] = _cost_json(receipt, currency)
    shown |= {
        "attempts": receipt.attempts,
        "terminal_error_code": receipt.terminal_error_code,
        "schema_valid": None if receipt.schema_valid is None else bool(receipt.schema_valid),
        "accepted_at": iso_time(receipt.accepted_at_us),
        "ended_at": iso_time(receipt.ended_at_us),
        "tags": orjson.loads(receipt.tags_json),
        "seq": seq,
        "resolves_hash": None if receipt.resolves_hash is None else receipt.resolves_hash.hex(),
        "prev_hash": None if prev_hash is None else prev_hash.hex(),
        "entry_hash": entry_hash.hex(),
    }
    return shown


def _objectives(receipt: Receipt) -> dict[str, Any] | None:
    """Returns the caller's own objectives and whether they were met; None where it had none.

    Of an answer without a token, or of a single one, it isn't known: null.
    """
    asked = (
        ("ttft", receipt.ttft_objective_us, receipt.first_token_us),
        ("tpot", receipt.tpot_objective_us, receipt.itl_mean_us),
    )
    if all(objective_us is None for _, objective_us, _ in asked):
        return None
    found: dict[str, Any] = {}
    for name, objective_us, measured_us in asked:
        found[f"{name}_ms"] = milliseconds(objective_us)
        found[f"{name}_met"] = met(objective_us, measured_us)
    return found


def filed_json(
    filed: Filed, *, identity: ModelIdentity | None = None, currency: str = "units"
) -> dict[str, Any]:
    """Returns the JSON of a receipt that was just made durable."""
    return receipt_json(
        filed.receipt,
        seq=filed.seq,
        prev_hash=filed.prev_hash,
        entry_hash=filed.entry_hash,
        identity=identity,
        currency=currency,
    )


def _cost_json(receipt: Receipt, currency: str) -> dict[str, Any]:
    parts: dict[str, int | None] = {
        "input": receipt.cost_input_pico,
        "cached_input": receipt.cost_cached_input_pico,
        "output": receipt.cost_output_pico,
        "fixed": receipt.cost_fixed_pico,
        "other": receipt.cost_other_pico,
        "retry_and_hedge": receipt.cost_retry_and_hedge_pico,
        "total": receipt.cost_total_pico,
        "estimated_at_admission": receipt.cost_estimated_pico,
    }
    cost: dict[str, Any] = {"currency": currency}
    for name, pico in parts.items():
        cost[f"{name}_units"] = None if pico is None else units_text(pico)
        cost[f"{name}_pico"] = pico
    return cost
