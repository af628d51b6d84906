"""Which of a caller's records share a row (`ledger.carrying`). Pure; on the path of every commit.

What a commit may share follows from its records' types alone, so it is worked out once for each
shape of a commit and remembered as a plan; whether a record says nothing but what its carrier can
say is asked each time.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from ledger.carrying import FIRST_ATTEMPT, REJECTED, SELECTED, SETTLED_BY
from ledger.records import (
    Attempt,
    AttemptEvent,
    Receipt,
    Record,
    Reservation,
    RouteDecision,
    Settlement,
    TraceEvent,
)

PLANS_LIMIT = 1_024  # shapes of commits that are remembered
PLAN_RECORDS_LIMIT = 32  # records of a commit whose shape is remembered

Values = tuple[Any, ...]
Row = tuple[type[Record], Values]

_OPENED = frozenset((Reservation, Attempt, TraceEvent))
_CLOSED = frozenset((AttemptEvent, Settlement))
_NO_HOLD: Values = (None,) * 5
_NO_ATTEMPT: Values = (None,) * 3
_NO_TRACE: Values = (None,) * 4
_OWN_OF_DECISION = RouteDecision.__struct_fields__.index("hold_kv_tokens")
_OWN_OF_RECEIPT = Receipt.__struct_fields__.index("closes")


def rows_of(records: Sequence[Record]) -> tuple[list[Row], Sequence[int]]:
    """The rows to write for one caller's records, and for each record the place of its row.

    Pure, and exact: `every` of the rows gives the records back.
    """
    shape = tuple(map(type, records))
    plan = _plans.get(shape) or _plan(shape)
    if plan.alone:
        return [(kind, astuple(one)) for kind, one in zip(shape, records, strict=True)], range(
            len(records)
        )
    if plan.several:
        return _several(records)
    return _of_one_request(records, plan)


class _Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where in a caller's records, by their types alone, a carrier and what it may carry stand."""

    alone: bool  # no carrier, or nothing that it could carry
    several: bool  # requests
    decision: int | None
    reservation: int | None
    attempt: int | None
    trace: int | None
    receipt: int | None
    end: int | None
    settlement: int | None


_plans: dict[tuple[type[Record], ...], _Plan] = {}


def _plan(shape: tuple[type[Record], ...]) -> _Plan:
    def first(kind: type[Record]) -> int | None:
        return shape.index(kind) if kind in shape else None

    plan = _Plan(
        alone=not (
            (RouteDecision in shape and not _OPENED.isdisjoint(shape))
            or (Receipt in shape and _CLOSED.issubset(shape))
        ),
        several=shape.count(RouteDecision) > 1 or shape.count(Receipt) > 1,
        decision=first(RouteDecision),
        reservation=first(Reservation),
        attempt=first(Attempt),
        trace=first(TraceEvent),
        receipt=first(Receipt),
        end=first(AttemptEvent),
        settlement=first(Settlement),
    )
    if len(_plans) < PLANS_LIMIT and len(shape) <= PLAN_RECORDS_LIMIT:
        _plans[shape] = plan
    return plan


def _several(records: Sequence[Record]) -> tuple[list[Row], Sequence[int]]:
    """As `rows_of`, request by request: each row stands where its carrier stood."""
    groups: dict[str | None, list[int]] = {}
    for place, record in enumerate(records):
        groups.setdefault(getattr(record, "request_id", None), []).append(place)
    placed: dict[int, Row] = {}
    carrier_of = list(range(len(records)))
    for places in groups.values():
        found = [records[place] for place in places]
        shape = tuple(map(type, found))
        rows, where = _of_one_request(found, _plans.get(shape) or _plan(shape))
        first_of: dict[int, int] = {}
        for place, row in zip(places, where, strict=True):
            if type(records[place]) is rows[row][0]:
                first_of.setdefault(row, place)
        for place, row in zip(places, where, strict=True):
            carrier_of[place] = first_of[row]
            placed[first_of[row]] = rows[row]
    order = sorted(placed)
    row_at = {place: row for row, place in enumerate(order)}
    return [placed[place] for place in order], [row_at[carrier] for carrier in carrier_of]


def _of_one_request(records: Sequence[Record], plan: _Plan) -> tuple[list[Row], Sequence[int]]:
    carried_by: dict[int, int] = {}
    opening = closing = None
    if plan.decision is not None:
        opening = _opening(records, plan, plan.decision, carried_by)
    if plan.receipt is not None and plan.end is not None and plan.settlement is not None:
        closing = _closing(records[plan.receipt], records[plan.end], records[plan.settlement])
        if closing is not None:
            carried_by[plan.end] = carried_by[plan.settlement] = plan.receipt
    rows: list[Row] = []
    row_of: list[int] = []
    for place, record in enumerate(records):
        row_of.append(len(rows))
        if place in carried_by:
            continue
        if opening is not None and place == plan.decision:
            rows.append((RouteDecision, opening))
        elif closing is not None and place == plan.receipt:
            rows.append((Receipt, closing))
        else:
            rows.append((type(record), astuple(record)))
    for place, carrier in carried_by.items():
        row_of[place] = row_of[carrier]
    return rows, row_of


def _opening(
    records: Sequence[Record], plan: _Plan, at: int, carried_by: dict[int, int]
) -> Values | None:
    """The values of a decision's row that carries what else is there of it; None: nothing is."""
    of = records[at]
    if not isinstance(of, RouteDecision) or not (
        of.hold_kv_tokens is None and of.attempt_kind is None and of.trace_reasons is None
    ):
        return None
    hold, attempt, trace = _NO_HOLD, _NO_ATTEMPT, _NO_TRACE
    if plan.reservation is not None and (says := _hold(records[plan.reservation], of)):
        hold, carried_by[plan.reservation] = says, at
    if plan.attempt is not None and (says := _attempt(records[plan.attempt], of)):
        attempt, carried_by[plan.attempt] = says, at
    if plan.trace is not None and (says := _trace(records[plan.trace], of)):
        trace, carried_by[plan.trace] = says, at
    return astuple(of)[:_OWN_OF_DECISION] + hold + attempt + trace if carried_by else None


def _closing(of: Record, end: Record, settlement: Record) -> Values | None:
    """The values of a receipt's row that is its attempt's end and its settlement as well."""
    if (
        not isinstance(of, Receipt)
        or of.revision != 0
        or of.attempts != 1
        or of.closes != 0
        or not isinstance(end, AttemptEvent)
        or not isinstance(settlement, Settlement)
        or not _is_end_of(end, of)
        or not _settles(settlement, of)
    ):
        return None
    return (*astuple(of)[:_OWN_OF_RECEIPT], 1, end.provider_request_id, end.service_tier)


def _hold(one: Record, of: RouteDecision) -> Values | None:
    if (
        not isinstance(one, Reservation)
        or one.request_id != of.request_id
        or one.reservation_id != of.request_id
        or one.tenant_id != of.tenant_id
        or one.route_id != of.route_id
        or one.reserved_at_us != of.decided_at_us
    ):
        return None
    return one.kv_tokens, one.input_tokens, one.output_tokens, one.cost_pico, one.bound_at_us


def _attempt(one: Record, of: RouteDecision) -> Values | None:
    if (
        not isinstance(one, Attempt)
        or one.request_id != of.request_id
        or one.attempt_id != of.request_id + FIRST_ATTEMPT
        or one.ordinal != 0
        or one.route_id != of.route_id
        or one.started_at_us != of.decided_at_us
    ):
        return None
    return one.kind, one.identity_id, one.provider_kind


def _trace(one: Record, of: RouteDecision) -> Values | None:
    if (
        not isinstance(one, TraceEvent)
        or one.request_id != of.request_id
        or one.event != (SELECTED if of.status == "accepted" else REJECTED)
        or one.observed_at_us != of.decided_at_us
        or one.policy_revision != of.policy_revision
        or one.route_id != of.route_id
    ):
        return None
    return one.reasons, one.budget_json, one.snapshot_revision, one.trace_id


def _is_end_of(one: AttemptEvent, of: Receipt) -> bool:
    return (
        one.event == "ended"
        and one.request_id == of.request_id
        and one.attempt_id == of.request_id + FIRST_ATTEMPT
        and one.at_us == of.ended_at_us
        and one.outcome == of.status
        and one.error_code == of.terminal_error_code
        and one.input_tokens == of.input_tokens
        and one.cached_input_tokens == of.cached_input_tokens
        and one.output_tokens == of.output_tokens
        and one.usage_source == of.usage_source
        and one.cost_pico == of.cost_total_pico
        and one.rate_key == of.rate_key
        and one.usage_convention == of.usage_convention
        and one.usage_json == of.usage_json
    )


def _settles(one: Settlement, of: Receipt) -> bool:
    cost_pico = of.cost_total_pico
    return (
        one.reservation_id == one.request_id == of.request_id
        and one.kind == ("posted" if cost_pico else "voided")
        and one.settled_at_us == of.ended_at_us
        and one.cost_pico == cost_pico
        and one.overrun_pico == max(0, cost_pico - (of.cost_estimated_pico or 0))
        and one.settled_by == SETTLED_BY
    )
