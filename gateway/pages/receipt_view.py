"""One receipt, made ready to be read: what was predicted against what was measured, the phases of
its time, the lines of its cost, and the decision in words. Pure: records in, values out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.pages.charts import Phase
from gateway.pages.formatting import duration, milliseconds, thousands, units
from gateway.policy.objectives import MET, MISSED, met
from gateway.policy.reasons import REASONS
from gateway.policy.values import Candidate, Decision, Limit
from ledger.rate_lookup import rate_of
from ledger.rates import RateTable, priced_apart, unpriced_meters
from ledger.receipt_cost import unpriced, usage_of
from ledger.records import Receipt

Text = Callable[[int | None], str]

_ORDER_WORDS = {
    "ONLY_CANDIDATE": "the only one left",
    "FIRST_BY_E2E": "the one with the shortest predicted end-to-end time",
    "FIRST_BY_COST": "the cheapest of those with equal times",
    "FIRST_BY_QUALITY": "the one with the highest quality level",
    "FIRST_BY_ROUTE_ID": "equal to the next one in everything but its name, which breaks the tie",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """One line of the weigh ticket: predicted in, measured out, and the difference, as text."""

    label: str
    unit: str
    weighed_in: str
    weighed_out: str
    difference: str
    over: bool = False  # measured above predicted: the prediction was not conservative


def weighings(receipt: Receipt, decision: Decision | None) -> tuple[Weighing, ...]:
    """Each estimate of admission beside what became of it; a dash where there is none."""
    chosen = winner(decision)
    lines = (
        ("Queue", chosen.queue_us if chosen else None, receipt.queue_us),
        ("Prefill", chosen.prefill_us if chosen else None, receipt.prefill_us),
        ("Time to first token", chosen.ttft_us if chosen else None, receipt.first_token_us),
        ("End to end", chosen.e2e_us if chosen else None, _ran(receipt, receipt.e2e_us)),
    )
    timed = [
        _weighing(label, "ms", predicted, measured, milliseconds)
        for label, predicted, measured in lines
    ]
    output = _ran(receipt, receipt.output_tokens)
    return (
        *timed,
        _weighing("Output, of its cap", "tokens", receipt.max_output_tokens, output, thousands),
        _weighing("Cost", "units", receipt.cost_estimated_pico, _priced(receipt), units),
    )


def winner(decision: Decision | None) -> Candidate | None:
    """The candidate that an accepted request was sent to."""
    if decision is None or decision.route_id is None:
        return None
    return next((c for c in decision.candidates if c.route_id == decision.route_id), None)


def _ran(receipt: Receipt, value: int) -> int | None:
    return None if receipt.status == "rejected" else value


def _priced(receipt: Receipt) -> int | None:
    return receipt.cost_total_pico if receipt.rate_key is not None else None


def _weighing(
    label: str, unit: str, predicted: int | None, measured: int | None, text: Text
) -> Weighing:
    known = predicted is not None and measured is not None
    difference = measured - predicted if predicted is not None and measured is not None else None
    sign = "+" if difference is not None and difference > 0 else ""
    return Weighing(
        label=label,
        unit=unit,
        weighed_in=text(predicted),
        weighed_out=text(measured),
        difference=sign + text(difference),
        over=known and difference is not None and difference > 0,
    )


def phases(receipt: Receipt) -> tuple[Phase, ...]:
    """The measured parts of the request's time, one after the other; unmeasured ones left out."""
    parts = (
        ("Queue", receipt.queue_us, 6),
        ("Prefill", receipt.prefill_us, 1),
        ("First decode", receipt.first_decode_us, 3),
        ("Network", receipt.first_byte_network_us, 5),
        ("Decode", receipt.decode_us, 4),
    )
    found, start_us = list[Phase](), 0
    for label, length_us, colour in parts:
        if length_us is not None:
            found.append(Phase(label=label, start_us=start_us, length_us=length_us, colour=colour))
            start_us += length_us
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One of the caller's own objectives (x-slo-ttft-ms, x-slo-tpot-ms) and what became of it."""

    label: str
    header: str
    asked_us: int
    measured_us: int | None
    met: bool | None  # None: nothing was measured, so it isn't known


def wishes(receipt: Receipt) -> tuple[Wish, ...]:
    """The caller's own objectives; empty where it had none."""
    lines = (
        (
            "Time to first token",
            "x-slo-ttft-ms",
            receipt.ttft_objective_us,
            receipt.first_token_us,
        ),
        (
            "Time per token after it, on average",
            "x-slo-tpot-ms",
            receipt.tpot_objective_us,
            receipt.itl_mean_us,
        ),
    )
    return tuple(
        Wish(
            label=label,
            header=header,
            asked_us=asked_us,
            measured_us=measured_us,
            met=met(asked_us, measured_us),
        )
        for label, header, asked_us, measured_us in lines
        if asked_us is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line of the bill. `price_micro_per_mtok` is None where no single price made it, and
    `cost_pico` where there is no price: that is no cost of nothing (CST-7)."""

    label: str
    tokens: int | None
    price_micro_per_mtok: int | None
    cost_pico: int | None


def cost_lines(receipt: Receipt, rates: RateTable | None) -> tuple[CostLine, ...]:
    """The receipt's cost, component by component; they add up to its total.

    Tokens are those of the component: of what a further meter's own price is for it has none. A
    meter that the rate has no price for is a line of its own, with its count.
    """
    rate = None
    if rates and receipt.rate_key:
        rate = rate_of(rates, receipt.rate_key, receipt.accepted_at_us)
    usage, lacking = usage_of(receipt), unpriced(receipt)
    apart = priced_apart(rate, usage) if rate else (0, 0, 0)
    missing = unpriced_meters(rate, usage) if rate else ()
    fresh = receipt.input_tokens - receipt.cached_input_tokens - apart[0]
    tokens = (
        ("Input", fresh, rate.input_micro_per_mtok if rate else None, receipt.cost_input_pico),
        (
            "Cached input",
            receipt.cached_input_tokens - apart[1],
            rate.cached_input_micro_per_mtok if rate else None,
            receipt.cost_cached_input_pico,
        ),
        (
            "Output",
            receipt.output_tokens - apart[2],
            rate.output_micro_per_mtok if rate else None,
            receipt.cost_output_pico,
        ),
    )
    by_token = [
        CostLine(
            label=label,
            tokens=count,
            price_micro_per_mtok=price if price is not None and count * price == cost else None,
            cost_pico=None if lacking else cost,
        )
        for label, count, price, cost in tokens
    ]
    flat = (
        *((("Further meters", receipt.cost_other_pico),) if receipt.cost_other_pico else ()),
        *(() if lacking else (("Fixed, per request", receipt.cost_fixed_pico),)),
        ("Retries and hedges", receipt.cost_retry_and_hedge_pico),
    )
    return (
        *by_token,
        *(
            CostLine(label=label, tokens=None, price_micro_per_mtok=None, cost_pico=cost)
            for label, cost in flat
        ),
        *(
            CostLine(label=name, tokens=count, price_micro_per_mtok=None, cost_pico=None)
            for name, count in usage.meters
            if name in missing
        ),
    )


def in_words(decision: Decision) -> tuple[str, ...]:
    """What was decided and why, in sentences."""
    passed = sum(candidate.fell_at is None for candidate in decision.candidates)
    seen = len(decision.candidates)
    if decision.status == "rejected":
        return _refused(decision, seen)
    order = next((_ORDER_WORDS[code] for code in decision.reasons if code in _ORDER_WORDS), "")
    said = [
        f"Accepted, and sent to {decision.route_id}.",
        f"{passed} of {seen} candidate{'' if seen == 1 else 's'} passed every filter; "
        f"{decision.route_id} was {order}."
        if order
        else f"{passed} of {seen} candidate{'' if seen == 1 else 's'} passed every filter.",
    ]
    if MET in decision.reasons:
        said.append("It was predicted to keep the caller's own objectives, so it came first.")
    elif MISSED in decision.reasons:
        said.append("None was predicted to keep the caller's own objectives; that refuses nothing.")
    if decision.degraded_from is not None:
        said.append(
            f"It was reached along a fallback edge from {decision.degraded_from}, "
            "so the answer counts as degraded."
        )
    if decision.arm is not None:
        said.append(f"The request belongs to arm {decision.arm} of release {decision.release_id}.")
    if decision.probe:
        said.append("The route had no fresh capacity snapshot: this request was its probe.")
    return tuple(said)


def _refused(decision: Decision, seen: int) -> tuple[str, ...]:
    code = decision.reason_code or ""
    reason = REASONS.get(code)
    said = [f"Rejected with {code}, HTTP {decision.http_status}. Nothing ran, nothing is owed."]
    if reason is not None:
        said += [reason.description, f"What the caller can do: {reason.caller_action}"]
    if not seen:
        said.append("It was refused before any candidate was looked at.")
    if decision.retry_after_ms is not None:
        said.append(f"Retry after {duration(decision.retry_after_ms * 1000)}.")
    return tuple(said)


def limit_value(limit: Limit, value: int) -> str:
    """A limit's number in the unit that its name ends in."""
    if limit.name.endswith("_us"):
        return duration(value)
    if limit.name.endswith("_pico"):
        return f"{units(value)} units"
    return thousands(value)


def limit_lines(limits: Sequence[Limit]) -> tuple[tuple[str, str, str], ...]:
    """(name, limit, observed) of each limit that a rejection names, as text."""
    return tuple(
        (limit.name, limit_value(limit, limit.limit), limit_value(limit, limit.observed))
        for limit in limits
    )
