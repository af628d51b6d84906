"""A receipt as JSON: the one rendering for answers, the native API and the page's raw view.

Names are those of SPEC 9. Times are ISO 8601 in UTC; durations are milliseconds with at most three
decimals, exact to the microsecond that the ledger keeps; money is an exact decimal string in units
beside the integer in pico units; hashes are hexadecimal.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

import orjson

from gateway.policy.objectives import met
from gateway.submission import Filed
from ledger.money import units_text
from ledger.receipt_cost import unpriced
from ledger.records import ModelIdentity, Receipt

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # of UTC, which "Z" says

_IDENTITY_FIELDS = tuple(name for name in ModelIdentity.__struct_fields__ if name != "identity_id")

_DURATIONS = (
    "queue", "prefill", "first_decode", "first_byte_network", "decode", "first_token", "e2e",
    "cancel_ack",
)  # fmt: skip
_GAPS = ("mean", "p50", "p95", "max")
_COSTS = (
    ("input", "cost_input_pico"),
    ("cached_input", "cost_cached_input_pico"),
    ("output", "cost_output_pico"),
    ("fixed", "cost_fixed_pico"),
    ("other", "cost_other_pico"),
    ("retry_and_hedge", "cost_retry_and_hedge_pico"),
    ("total", "cost_total_pico"),
    ("estimated_at_admission", "cost_estimated_pico"),
)
# A receipt is in every answer: names are joined and fields looked up once, not each time.
_DURATION_KEYS = tuple(f"{name}_ms" for name in _DURATIONS)
_DURATION_VALUES = attrgetter(*(f"{name}_us" for name in _DURATIONS))
_GAP_KEYS = tuple(f"{name}_ms" for name in _GAPS)
_GAP_VALUES = attrgetter(*(f"itl_{name}_us" for name in _GAPS))
_COST_KEYS = tuple((f"{name}_units", f"{name}_pico") for name, _ in _COSTS)
_COST_VALUES = attrgetter(*(field for _, field in _COSTS))
_units_text = lru_cache(maxsize=1_024)(units_text)  # most are 0, or the same as the last one's


def iso_time(at_us: int) -> str:
    """Returns a time in integer microseconds as ISO 8601, UTC, with six decimals."""
    second, rest_us = divmod(at_us, 1_000_000)
    return f"{_second_text(second)}.{rest_us:06}Z"


@lru_cache(maxsize=64)
def _second_text(second: int) -> str:
    """Returns the time without its fraction; that of a server's answers is mostly the last one."""
    return (_EPOCH + timedelta(seconds=second)).isoformat(timespec="seconds")


def milliseconds(duration_us: int | None) -> int | float | None:
    """Returns µs as ms: an integer where it is whole, else a number with at most 3 decimals.

    The nearest double of such a number prints as its decimals, so nothing is lost on the way.
    """
    return _milliseconds((duration_us,))[0]


def _milliseconds(durations_us: Sequence[int | None]) -> list[int | float | None]:
    return [None if us is None else us / 1000 if us % 1000 else us // 1000 for us in durations_us]


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
        "model_identity": None if identity is None else _identity_json(identity),
        "route_id": receipt.route_id,
        "route_reason": receipt.route_reason,
        "policy_revision": receipt.policy_revision,
        "prediction_revision": receipt.prediction_revision,
        "snapshot_revision": receipt.snapshot_revision,
        "rate_table_version": receipt.rate_table_version,
        "rate_key": receipt.rate_key,
        "unpriced": unpriced(receipt),
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
        "further_meters": orjson.loads(receipt.usage_json) if receipt.usage_json else {},
        "counted_by": receipt.counted_by,
    }
    shown |= zip(_DURATION_KEYS, _milliseconds(_DURATION_VALUES(receipt)), strict=True)
    shown["itl"] = dict(zip(_GAP_KEYS, _milliseconds(_GAP_VALUES(receipt)), strict=True))
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


@lru_cache(maxsize=256)
def _identity_json(identity: ModelIdentity) -> dict[str, Any]:
    """Returns the eight fields; shared between receipts, never changed."""
    return {name: getattr(identity, name) for name in _IDENTITY_FIELDS}


def _objectives(receipt: Receipt) -> dict[str, Any] | None:
    """Returns the caller's own objectives and whether they were met; None where it had none.

    Of an answer without a token, or of a single one, it isn't known: null.
    """
    if receipt.ttft_objective_us is None and receipt.tpot_objective_us is None:
        return None
    asked = (
        ("ttft", receipt.ttft_objective_us, receipt.first_token_us),
        ("tpot", receipt.tpot_objective_us, receipt.itl_mean_us),
    )
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
    cost: dict[str, Any] = {"currency": currency}
    for (units, whole), pico in zip(_COST_KEYS, _COST_VALUES(receipt), strict=True):
        cost[units] = None if pico is None else _units_text(pico)
        cost[whole] = pico
    return cost
