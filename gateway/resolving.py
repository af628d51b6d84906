"""How an open unknown is settled: on evidence, by a named person, or written off (PRV-3, LED-6).

Pure: what the ledger holds and what became of the attempt in, rows out. A resolution is a new
entry: an event of the attempt, its settlement, and a receipt that names the one it resolves.
"""

from typing import Literal

import msgspec

from ledger.queries.unknowns import OpenUnknown, last_end
from ledger.rate_lookup import Priced, price_told
from ledger.rates import Cost, RateTable, Usage, batch_priced
from ledger.receipt_cost import meters_json
from ledger.records import AttemptEvent, Receipt, Record, Settlement

Became = Literal["completed", "cancelled", "failed", "not_run", "written_off"]
NOTHING = Cost(input_pico=0, cached_input_pico=0, output_pico=0, fixed_pico=0)
NOT_RUN = "NOT_RUN"
"""The receipt's code of an unknown that turned out never to have run."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an attempt: its end, what it used, and where that is known from."""

    became: Became
    usage: Usage
    usage_source: str = "provider"  # provider | estimated
    error_code: str | None = None
    provider_request_id: str | None = None
    service_tier: str = ""  # the provider's word, "" where it said none


def resolution(
    open_unknown: OpenUnknown, found: Found, rates: RateTable, region: str, now_us: int, by: str
) -> tuple[tuple[Record, ...], Receipt | None]:
    """The rows that settle it, and the receipt among them.

    A write-off gives the hold back and claims nothing: the request's own end stays unknown, so
    there is a receipt only where the attempt ran beside one that ended. ValueError for a usage
    that can't be priced.
    """
    receipt, attempt = open_unknown.receipt.record, open_unknown.attempt
    cost, rate_key = _priced(receipt, open_unknown, found, rates, region)
    status = "failed" if found.became == "not_run" else found.became
    written_off = found.became == "written_off"
    event = AttemptEvent(
        attempt_id=attempt.attempt_id,
        request_id=attempt.request_id,
        event="ended",  # again: of several the last holds
        at_us=max(now_us, attempt.started_at_us),
        outcome="unknown" if written_off else status,
        provider_request_id=found.provider_request_id,
        error_code=_code(found),
        input_tokens=found.usage.input_tokens,
        cached_input_tokens=found.usage.cached_input_tokens,
        output_tokens=found.usage.output_tokens,
        usage_source=found.usage_source,
        cost_pico=cost.total_pico,
        rate_key=rate_key,
        usage_json=meters_json(found.usage.meters),
        service_tier=found.service_tier or None,
    )
    reservation = open_unknown.reservation
    settlement = Settlement(
        reservation_id=reservation.reservation_id,
        request_id=reservation.request_id,
        kind="written_off" if written_off else "posted" if cost.total_pico else "voided",
        settled_at_us=max(now_us, reservation.reserved_at_us),
        cost_pico=cost.total_pico,
        overrun_pico=max(0, cost.total_pico - reservation.cost_pico),
        settled_by=by,
    )
    resolved = _receipt(open_unknown, found, cost, rate_key, status)
    rows: tuple[Record, ...] = (event, settlement)
    return (rows if resolved is None else (*rows, resolved)), resolved


def _priced(
    receipt: Receipt, one: OpenUnknown, found: Found, rates: RateTable, region: str
) -> tuple[Cost, str | None]:
    """What the attempt cost by the table that priced its request; nothing where it did not run."""
    if found.became in ("not_run", "written_off"):
        return NOTHING, None
    keys = (one.attempt.route_id, one.attempt.identity_id)
    priced = price_told(
        rates, keys, found.usage, batch=batch_priced(receipt.priority),
        at_us=receipt.accepted_at_us,
        place=(one.attempt.provider_kind, region, found.service_tier),
    )  # fmt: skip
    return (priced.cost, priced.key) if isinstance(priced, Priced) else (NOTHING, None)


def _receipt(
    one: OpenUnknown, found: Found, cost: Cost, rate_key: str | None, status: str
) -> Receipt | None:
    """The request's next receipt; None where nothing is claimed about its own end."""
    before = one.receipt.record
    beside_pico = sum(
        (last.cost_pico or 0)
        for other in one.found.attempts
        if other.record.attempt_id != one.attempt_id
        and (last := last_end(one.found, other.record.attempt_id)) is not None
    )
    if not one.answering:
        # The answer's own components stay: what it cost beside them is known now.
        answer_pico = before.cost_total_pico - before.cost_retry_and_hedge_pico
        beside_pico += cost.total_pico - _answer_event_pico(one)
        return msgspec.structs.replace(
            before,
            revision=before.revision + 1,
            resolves_hash=one.receipt.entry_hash,
            cost_retry_and_hedge_pico=beside_pico,
            cost_total_pico=answer_pico + beside_pico,
        )
    if found.became == "written_off":
        return None
    return msgspec.structs.replace(
        before,
        revision=before.revision + 1,
        resolves_hash=one.receipt.entry_hash,
        status=status,
        terminal_error_code=_code(found),
        rate_key=rate_key,
        input_tokens=found.usage.input_tokens,
        cached_input_tokens=found.usage.cached_input_tokens,
        output_tokens=found.usage.output_tokens,
        usage_source=found.usage_source,
        usage_json=meters_json(found.usage.meters),
        usage_convention=None,
        cost_input_pico=cost.input_pico,
        cost_cached_input_pico=cost.cached_input_pico,
        cost_output_pico=cost.output_pico,
        cost_fixed_pico=cost.fixed_pico,
        cost_other_pico=cost.other_pico,
        cost_retry_and_hedge_pico=beside_pico,
        cost_total_pico=cost.total_pico + beside_pico,
    )


def _answer_event_pico(one: OpenUnknown) -> int:
    """What the answering attempt's own event says it cost: it is no part of what is beside it."""
    before = one.receipt.record
    return before.cost_total_pico - before.cost_retry_and_hedge_pico


def _code(found: Found) -> str | None:
    if found.became == "not_run":
        return NOT_RUN
    return None if found.became == "completed" else found.error_code
