"""How a request and each of its attempts end on paper: events, settlements and the receipt.

Pure: values in, rows out. Every attempt's reservation is posted, voided or left open as an
unknown; every request, rejected ones too, gets one receipt (LED-1, LED-6). Each attempt is priced
at its own route and model (CST-8): the one that answers is the receipt's components, the others
together its retries and hedges.
"""

from collections.abc import Sequence

import msgspec
import orjson
from msgspec.structs import replace

from gateway.desk import Weighed
from gateway.policy.values import Route
from gateway.providers.outcomes import Completed, Outcome, Timings, Unknown, error_code, ran
from ledger.money import int64
from ledger.rate_lookup import Priced, price_told
from ledger.rates import Cost, batch_priced
from ledger.receipt_cost import meters_json
from ledger.records import AttemptEvent, Receipt, Record, Settlement

NOTHING = Cost(input_pico=0, cached_input_pico=0, output_pico=0, fixed_pico=0)


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that has ended: where it was, what it held, what became of it."""

    ordinal: int
    route: Route
    reservation_id: str
    reserved_pico: int
    input_tokens: int  # as counted with the route's tokenizer
    tokenizer_revision: str | None
    outcome: Outcome
    ended_at_us: int
    reasons: tuple[str, ...] = ()  # why it was on this route
    snapshot_revision: int | None = None
    degraded_from: str | None = None

    @property
    def ran(self) -> bool:
        return ran(self.outcome)


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """An ended attempt with what it cost, and the key of the rate that says so (CST-8)."""

    tried: Tried
    cost: Cost
    rate_key: str | None


def primary(weighed: Weighed, outcome: Outcome, ended_at_us: int) -> Tried:
    """Return the ended first attempt of an accepted request."""
    route, decision = weighed.route, weighed.decision
    if route is None:
        raise ValueError(f"{weighed.request.request_id} was not accepted; it has a refusal_receipt")
    return Tried(
        ordinal=0,
        route=route,
        reservation_id=weighed.request.request_id,
        reserved_pico=decision.cost_pico or 0,
        input_tokens=decision.input_tokens,
        tokenizer_revision=decision.tokenizer_revision,
        outcome=outcome,
        ended_at_us=ended_at_us,
        reasons=decision.reasons,
        snapshot_revision=weighed.snapshot_revision,
        degraded_from=decision.degraded_from,
    )


def refusal_receipt(weighed: Weighed, ended_at_us: int) -> Receipt:
    """Return the receipt of a rejected request: nothing ran, nothing is owed."""
    return _receipt(
        weighed, None, ended_at_us, status="rejected", code=weighed.decision.reason_code,
        cost=NOTHING, rate_key=None, attempts=0, beside_pico=0,
    )  # fmt: skip


def counted(weighed: Weighed, tried: Tried) -> Counted:
    """Return an attempt with what it cost at its own route or model (CST-8), priced once.

    By the rate of the service tier that the provider said, else by the standard one.

    What a provider refused or never had cost nothing, and where there is no price no key is named.
    Raises ValueError for a usage that can't be priced or whose cost no column could hold.
    """
    if not tried.ran:
        return Counted(tried=tried, cost=NOTHING, rate_key=None)
    usage, route = tried.outcome.usage, tried.route
    batch = batch_priced(weighed.request.priority)
    priced = price_told(
        weighed.rates, (route.route_id, route.identity_id), usage, batch=batch,
        at_us=weighed.decided_at_us,
        place=(route.provider_kind, route.region, tried.outcome.service_tier),
    )  # fmt: skip
    try:
        int64(max(usage.input_tokens, usage.output_tokens), "tokens")
        if isinstance(priced, Priced):
            int64(priced.cost.total_pico, "cost_pico")
    except OverflowError as fault:
        raise ValueError(str(fault)) from fault
    if not isinstance(priced, Priced):
        return Counted(tried=tried, cost=NOTHING, rate_key=None)
    return Counted(tried=tried, cost=priced.cost, rate_key=priced.key)


def within_cap(outcome: Outcome, cap: int) -> Outcome:
    """Return an end whose output is at most the request's cap, which makes it an estimate (CST-6).

    Only for a count that the provider hasn't said: what it says, it will charge.
    """
    usage = outcome.usage
    if usage.output_tokens <= cap:
        return outcome
    capped = replace(usage, output_tokens=cap, meters=())
    return replace(outcome, usage=capped, usage_source="estimated")


def attempt_records(weighed: Weighed, one: Counted) -> tuple[Record, ...]:
    """Return the rows of an attempt's end: its events and, unless it is unknown, its settlement.

    An unknown is not settled: its money stays held until evidence or a named person settles it.
    What it is known to have generated is priced all the same.
    """
    tried, spent_pico = one.tried, one.cost.total_pico
    request_id, outcome, may_have_run = weighed.request.request_id, tried.outcome, tried.ran
    attempt_id = f"{request_id}.{tried.ordinal}"
    rows: list[Record] = _cancel_events(request_id, attempt_id, outcome.timings, tried.ended_at_us)
    rows.append(
        AttemptEvent(
            attempt_id=attempt_id,
            request_id=request_id,
            event="ended",
            at_us=tried.ended_at_us,
            outcome=outcome.status,
            provider_request_id=outcome.provider_request_id,
            error_code=error_code(outcome),
            input_tokens=outcome.usage.input_tokens if may_have_run else 0,
            cached_input_tokens=outcome.usage.cached_input_tokens if may_have_run else 0,
            output_tokens=outcome.usage.output_tokens if may_have_run else 0,
            usage_source=outcome.usage_source,
            cost_pico=spent_pico,
            rate_key=one.rate_key,
            usage_convention=outcome.usage_convention if may_have_run else None,
            usage_json=meters_json(outcome.usage.meters) if may_have_run else None,
            service_tier=outcome.service_tier or None,
        )
    )
    if not isinstance(outcome, Unknown):
        rows.append(_settlement(request_id, tried, spent_pico))
    return tuple(rows)


def receipt_of(
    weighed: Weighed, tries: Sequence[Counted], answering: Counted, ended_at_us: int
) -> Receipt:
    """Return the receipt of an accepted request: the end of `answering` is the request's own.

    The other attempts are its retries, fallbacks and hedges; what they cost is one component. An
    unknown one among them doesn't make the request unknown.
    """
    beside_pico = sum([each.cost.total_pico for each in tries if each is not answering])
    tried = answering.tried
    return _receipt(
        weighed, tried, ended_at_us, status=tried.outcome.status,
        code=error_code(tried.outcome), cost=answering.cost, rate_key=answering.rate_key,
        attempts=len(tries), beside_pico=beside_pico,
    )  # fmt: skip


def closing_records(
    weighed: Weighed, outcome: Outcome, ended_at_us: int
) -> tuple[tuple[Record, ...], Receipt]:
    """Return the rows that close a request of one attempt, the receipt last, and the receipt."""
    one = counted(weighed, primary(weighed, outcome, ended_at_us))
    receipt = receipt_of(weighed, (one,), one, ended_at_us)
    return (*attempt_records(weighed, one), receipt), receipt


def _cancel_events(
    request_id: str, attempt_id: str, timings: Timings, ended_at_us: int
) -> list[Record]:
    if timings.cancel_ack_us is None:
        return []
    return [
        AttemptEvent(attempt_id=attempt_id, request_id=request_id, event=event, at_us=at_us)
        for event, at_us in (
            ("cancel_sent", ended_at_us - timings.cancel_ack_us),
            ("cancel_acknowledged", ended_at_us),
        )
    ]


def _settlement(request_id: str, tried: Tried, spent_pico: int) -> Settlement:
    """Posted where something was spent, voided where nothing was; an overrun is posted in full."""
    return Settlement(
        reservation_id=tried.reservation_id,
        request_id=request_id,
        kind="posted" if spent_pico else "voided",
        settled_at_us=tried.ended_at_us,
        cost_pico=spent_pico,
        overrun_pico=max(0, spent_pico - tried.reserved_pico),
    )


def _receipt(
    weighed: Weighed, tried: Tried | None, ended_at_us: int, *, status: str, code: str | None,
    cost: Cost, rate_key: str | None, attempts: int, beside_pico: int,
) -> Receipt:  # fmt: skip
    request, decision = weighed.request, weighed.decision
    route = tried.route if tried else None
    outcome = tried.outcome if tried and tried.ran else None
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
        route_reason=" ".join(tried.reasons) if tried else (decision.reason_code or ""),
        policy_revision=weighed.policy_revision,
        prediction_revision=route.prediction.revision if route else None,
        snapshot_revision=(tried or weighed).snapshot_revision,
        rate_table_version=weighed.rates.version,
        rate_key=rate_key,
        tokenizer_revision=tried.tokenizer_revision if tried else decision.tokenizer_revision,
        release_id=decision.release_id,
        arm=decision.arm,
        degraded_from=tried.degraded_from if tried else None,
        input_tokens=usage.input_tokens if usage else (tried or decision).input_tokens,
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
        cancel_ack_us=tried.outcome.timings.cancel_ack_us if tried else None,
        cost_input_pico=cost.input_pico,
        cost_cached_input_pico=cost.cached_input_pico,
        cost_output_pico=cost.output_pico,
        cost_fixed_pico=cost.fixed_pico,
        cost_other_pico=cost.other_pico,
        cost_retry_and_hedge_pico=beside_pico,
        cost_total_pico=cost.total_pico + beside_pico,
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
        ttft_objective_us=request.ttft_objective_us,
        tpot_objective_us=request.tpot_objective_us,
    )
