"""How a request ends on paper: its attempt's end, its settlement and its receipt.

Pure but for the book: values in, rows out. Every accepted request is posted, voided or left open
as an unknown; every request, rejected ones too, gets one receipt (LED-1, LED-6).
"""

import orjson

from gateway.desk import Weighed
from gateway.providers.outcomes import Completed, Outcome, Rejected, Timings, Unknown, error_code
from ledger.rate_lookup import Priced, price
from ledger.rates import Cost, batch_priced
from ledger.receipt_cost import meters_json
from ledger.records import AttemptEvent, Receipt, Record, Settlement

NOTHING = Cost(input_pico=0, cached_input_pico=0, output_pico=0, fixed_pico=0)


def refusal_receipt(weighed: Weighed, ended_at_us: int) -> Receipt:
    """Return the receipt of a rejected request: nothing ran, nothing is owed."""
    return _receipt(
        weighed, ended_at_us, status="rejected", code=weighed.decision.reason_code,
        outcome=None, cost=NOTHING, rate_key=None, attempts=0,
    )  # fmt: skip


def closing_records(
    weighed: Weighed, outcome: Outcome, ended_at_us: int
) -> tuple[tuple[Record, ...], Receipt]:
    """Return the rows that close an accepted request, the receipt last, and the receipt.

    An unknown is not settled: its money stays held until evidence or a named person settles it.
    What an unknown is known to have generated is priced on its receipt all the same.
    """
    request, route = weighed.request, weighed.route
    if route is None:
        raise ValueError(f"{request.request_id} was not accepted; it has a refusal_receipt")
    ran = not isinstance(outcome, Rejected)
    cost, rate_key = NOTHING, None
    if ran:
        batch = batch_priced(request.priority)
        keys = (route.route_id, route.identity_id)
        priced = price(
            weighed.rates, keys, outcome.usage, batch=batch,
            at_us=weighed.decided_at_us, place=("", route.region, ""),
        )  # fmt: skip
        if isinstance(priced, Priced):
            cost, rate_key = priced.cost, priced.key
    code = error_code(outcome)
    rows: list[Record] = _cancel_events(request.request_id, outcome.timings, ended_at_us)
    rows.append(
        AttemptEvent(
            attempt_id=f"{request.request_id}.0",
            request_id=request.request_id,
            event="ended",
            at_us=ended_at_us,
            outcome=outcome.status,
            provider_request_id=outcome.provider_request_id,
            error_code=code,
            input_tokens=outcome.usage.input_tokens if ran else 0,
            cached_input_tokens=outcome.usage.cached_input_tokens if ran else 0,
            output_tokens=outcome.usage.output_tokens if ran else 0,
            usage_source=outcome.usage_source,
            cost_pico=cost.total_pico,
            rate_key=rate_key,
            usage_convention=outcome.usage_convention if ran else None,
            usage_json=meters_json(outcome.usage.meters) if ran else None,
        )
    )
    if not isinstance(outcome, Unknown):
        rows.append(_settlement(weighed, cost.total_pico, ended_at_us))
    receipt = _receipt(
        weighed, ended_at_us, status=outcome.status, code=code,
        outcome=outcome if ran else None, cost=cost, rate_key=rate_key, attempts=1,
    )  # fmt: skip
    rows.append(receipt)
    return tuple(rows), receipt


def _cancel_events(request_id: str, timings: Timings, ended_at_us: int) -> list[Record]:
    if timings.cancel_ack_us is None:
        return []
    return [
        AttemptEvent(attempt_id=f"{request_id}.0", request_id=request_id, event=event, at_us=at_us)
        for event, at_us in (
            ("cancel_sent", ended_at_us - timings.cancel_ack_us),
            ("cancel_acknowledged", ended_at_us),
        )
    ]


def _settlement(weighed: Weighed, spent_pico: int, ended_at_us: int) -> Settlement:
    """Posted where something was spent, voided where nothing was; an overrun is posted in full."""
    reserved_pico = weighed.decision.cost_pico or 0
    return Settlement(
        reservation_id=weighed.request.request_id,
        request_id=weighed.request.request_id,
        kind="posted" if spent_pico else "voided",
        settled_at_us=ended_at_us,
        cost_pico=spent_pico,
        overrun_pico=max(0, spent_pico - reserved_pico),
    )


def _receipt(
    weighed: Weighed, ended_at_us: int, *, status: str, code: str | None,
    outcome: Outcome | None, cost: Cost, rate_key: str | None, attempts: int,
) -> Receipt:  # fmt: skip
    request, decision, route = weighed.request, weighed.decision, weighed.route
    timings = outcome.timings if outcome else Timings()
    usage = outcome.usage if outcome else None
    itl = timings.itl
    schema_valid = outcome.schema_valid if isinstance(outcome, Completed) else None
    return Receipt(
        request_id=request.request_id,
        revision=0,
        resolves_hash=None,
        tenant_id=request.tenant_id,
        key_id=request.key_id,
        priority=request.priority,
        user_path=request.user_path,
        task_type=request.task_type,
        status=status,
        logical_model=request.logical_model,
        identity_id=route.identity_id if route else None,
        route_id=route.route_id if route else None,
        route_reason=" ".join(decision.reasons) if route else (decision.reason_code or ""),
        policy_revision=weighed.policy_revision,
        prediction_revision=route.prediction.revision if route else None,
        snapshot_revision=weighed.snapshot_revision,
        rate_table_version=weighed.rates.version,
        rate_key=rate_key,
        tokenizer_revision=decision.tokenizer_revision,
        release_id=decision.release_id,
        arm=decision.arm,
        degraded_from=decision.degraded_from,
        input_tokens=usage.input_tokens if usage else decision.input_tokens,
        cached_input_tokens=usage.cached_input_tokens if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
        usage_source=outcome.usage_source if outcome else None,
        counted_by=request.counted_by,
        queue_us=timings.queue_us,
        prefill_us=timings.prefill_us,
        first_decode_us=timings.first_decode_us,
        first_byte_network_us=timings.first_byte_network_us,
        decode_us=timings.decode_us,
        first_token_us=timings.first_token_us,
        itl_mean_us=itl.mean_us if itl else None,
        itl_p50_us=itl.p50_us if itl else None,
        itl_p95_us=itl.p95_us if itl else None,
        itl_max_us=itl.max_us if itl else None,
        e2e_us=ended_at_us - weighed.decided_at_us,
        cancel_ack_us=timings.cancel_ack_us,
        cost_input_pico=cost.input_pico,
        cost_cached_input_pico=cost.cached_input_pico,
        cost_output_pico=cost.output_pico,
        cost_fixed_pico=cost.fixed_pico,
        cost_other_pico=cost.other_pico,
        cost_retry_and_hedge_pico=0,
        cost_total_pico=cost.total_pico,
        cost_estimated_pico=decision.cost_pico,
        terminal_error_code=code,
        schema_valid=None if schema_valid is None else int(schema_valid),
        deadline_us=request.budget.deadline_us,
        max_output_tokens=request.budget.max_output_tokens,
        attempts=attempts,
        simulated=int(route is not None and route.provider_kind == "simulator"),
        accepted_at_us=weighed.decided_at_us,
        ended_at_us=ended_at_us,
        tags_json=orjson.dumps(dict(request.tags)).decode() if request.tags else "{}",
        usage_convention=outcome.usage_convention if outcome else None,
        usage_json=meters_json(usage.meters) if usage else None,
    )
