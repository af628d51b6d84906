"""One simulated request: what it reserves, how it ends, and the rows of each."""

import random
from dataclasses import dataclass

from gateway.book import Hold
from ledger.records import Record
from tests import factories

BOUND_US = 60_000_000


@dataclass(slots=True, kw_only=True)
class Request:
    """What the simulation knows of a request that the ledger has accepted."""

    number: int
    tenant_id: str
    hold: Hold
    begun_us: int
    unknown_hash: bytes | None = None  # of its receipt, once it is an unknown


def opening(request: Request) -> tuple[Record, ...]:
    """The rows that have to be durable before a byte leaves."""
    number, at_us = request.number, request.begun_us
    shares = {"event": "inference.route.selected"} if _shares_rows(number) else {}
    return (
        factories.route_decision(number, decided_at_us=at_us, tenant_id=request.tenant_id),
        factories.reservation(
            number,
            reservation_id=request.hold.reservation_id,
            tenant_id=request.tenant_id,
            cost_pico=request.hold.cost_pico,
            reserved_at_us=at_us,
            bound_at_us=at_us + BOUND_US,
        ),
        factories.attempt(number, attempt_id=_attempt_id(number), started_at_us=at_us),
        factories.trace_event(number, observed_at_us=at_us, **shares),
    )


def reservation_id(number: int) -> str:
    """Of every other request as the gateway names it: its records share rows."""
    if _shares_rows(number):
        return factories.request_id(number)
    return factories.reservation(number).reservation_id


def refusal(number: int, tenant_id: str, at_us: int) -> tuple[Record, ...]:
    return (
        factories.route_decision(
            number, status="rejected", decided_at_us=at_us, tenant_id=tenant_id
        ),
        factories.rejected_receipt(
            number, tenant_id=tenant_id, accepted_at_us=at_us, ended_at_us=at_us + 400
        ),
    )


def ending(request: Request, cost_pico: int, at_us: int) -> tuple[Record, ...]:
    """A known end: posted, voided where it cost nothing, with an overrun where it cost more."""
    number = request.number
    return (
        factories.attempt_event(
            number, attempt_id=_attempt_id(number), at_us=at_us, cost_pico=cost_pico
        ),
        _settlement(request, cost_pico, at_us),
        _receipt(request, at_us, status="completed", cost_total_pico=cost_pico),
    )


def losing(request: Request, at_us: int) -> tuple[Record, ...]:
    """An end that nobody knows: a receipt that says so, and no settlement."""
    number = request.number
    return (
        factories.attempt_event(
            number, attempt_id=_attempt_id(number), at_us=at_us, outcome="unknown", cost_pico=0
        ),
        _receipt(request, at_us, status="unknown", cost_total_pico=0),
    )


def resolving(request: Request, cost_pico: int, at_us: int) -> tuple[Record, ...]:
    """Evidence for an unknown: its settlement, and the receipt that resolves the one before."""
    return (
        _settlement(request, cost_pico, at_us, settled_by="operator"),
        _receipt(
            request,
            at_us,
            status="completed",
            cost_total_pico=cost_pico,
            revision=1,
            resolves_hash=request.unknown_hash,
        ),
    )


def writing_off(request: Request, at_us: int) -> tuple[Record, ...]:
    return (
        factories.settlement(
            request.number, reservation_id=request.hold.reservation_id, kind="written_off",
            cost_pico=0, settled_at_us=at_us, settled_by="operator",
        ),
    )  # fmt: skip


def any_cost(request: Request, chance: random.Random) -> int:
    """Nothing, less than was reserved, all of it, or more."""
    reserved = request.hold.cost_pico
    return chance.choice(
        [0, chance.randint(1, reserved), reserved, reserved + chance.randint(1, 9)]
    )


def _shares_rows(number: int) -> bool:
    return number % 2 == 1


def _attempt_id(number: int) -> str:
    if _shares_rows(number):
        return f"{factories.request_id(number)}.0"
    return factories.attempt(number).attempt_id


def _settlement(request: Request, cost_pico: int, at_us: int, **more: str) -> Record:
    return factories.settlement(
        request.number,
        reservation_id=request.hold.reservation_id,
        kind="posted" if cost_pico else "voided",
        cost_pico=cost_pico,
        overrun_pico=max(0, cost_pico - request.hold.cost_pico),
        settled_at_us=at_us,
        **more,
    )


def _receipt(request: Request, at_us: int, **fields: object) -> Record:
    cost = fields["cost_total_pico"]
    return factories.receipt(
        request.number,
        tenant_id=request.tenant_id,
        rate_key=None,
        cost_input_pico=0,
        cost_output_pico=0,
        cost_retry_and_hedge_pico=cost,
        cost_estimated_pico=request.hold.cost_pico,
        accepted_at_us=request.begun_us,
        ended_at_us=at_us,
        e2e_us=at_us - request.begun_us,
        **fields,
    )
