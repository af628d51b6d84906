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
_ALONE = range(1)
_OWN_OF_DECISION = RouteDecision.__struct_fields__.index("hold_kv_tokens")
_OWN_OF_RECEIPT = Receipt.__struct_fields__.index("closes")


def rows_of(records: Sequence[Record]) -> tuple[list[Row], Sequence[int]]:
    """The rows to write for one caller's records, and for each record the place of its row.

    Pure, and exact: `every` of the rows gives the records back.
    """
    if len(records) == 1:
        (record,) = records
        return [(type(record), astuple(record))], _ALONE
    shape = tuple(map(type, records))
    plan = _plans.get(shape) or _plan(shape)
    if plan.alone:
        return [(kind, astuple(one)) for kind, one in zip(shape, records, strict=True)], plan.row_of
    if plan.several:
        return _several(records)
    return _of_one_request(records, plan)


class _Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where in a caller's records, by their types alone, a carrier and what it may carry stand."""

    alone: bool  # no carrier, or nothing that it could carry
    several: bool  # requests
    row_of: Sequence[int]  # where all is carried that may be, and where nothing can be
    decision: int | None
    reservation: int | None
    attempt: int | None
    trace: int | None
    receipt: int | None
    end: int | None
    settlement: int | None
    others: tuple[int, ...]  # places of records that nothing carries, the carriers among them
    carried: int  # records beside them


_plans: dict[tuple[type[Record], ...], _Plan] = {}


def _plan(shape: tuple[type[Record], ...]) -> _Plan:
    def first(kind: type[Record]) -> int | None:
        return shape.index(kind) if kind in shape else None

    opens = RouteDecision in shape and not _OPENED.isdisjoint(shape)
    closes = Receipt in shape and _CLOSED.issubset(shape)
    if not opens and not closes:
        return _remembered(shape, _apart(len(shape)))
    carrier_of = {
        shape.index(kind): shape.index(carrier)
        for carrier, kinds, may in ((RouteDecision, _OPENED, opens), (Receipt, _CLOSED, closes))
        for kind in kinds
        if may and kind in shape
    }
    others = tuple(place for place in range(len(shape)) if place not in carrier_of)
    row_at = {place: row for row, place in enumerate(others)}
    plan = _Plan(
        alone=False,
        several=shape.count(RouteDecision) > 1 or shape.count(Receipt) > 1,
        row_of=tuple(row_at[carrier_of.get(place, place)] for place in range(len(shape))),
        decision=first(RouteDecision) if opens else None,
        reservation=first(Reservation),
        attempt=first(Attempt),
        trace=first(TraceEvent),
        receipt=first(Receipt) if closes else None,
        end=first(AttemptEvent),
        settlement=first(Settlement),
        others=others,
        carried=len(carrier_of),
    )
    return _remembered(shape, plan)


def _apart(records: int) -> _Plan:
    """The plan of records that can't share a row."""
    return _Plan(
        alone=True,
        several=False,
        row_of=range(records),
        decision=None,
        reservation=None,
        attempt=None,
        trace=None,
        receipt=None,
        end=None,
        settlement=None,
        others=tuple(range(records)),
        carried=0,
    )


def _remembered(shape: tuple[type[Record], ...], plan: _Plan) -> _Plan:
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
    whole = len(carried_by) == plan.carried
    if whole and len(plan.others) == 1:
        if closing is not None:
            return [(Receipt, closing)], plan.row_of
        if opening is not None:
            return [(RouteDecision, opening)], plan.row_of
    places = plan.others if whole else [n for n in range(len(records)) if n not in carried_by]
    rows: list[Row] = []
    for place in places:
        if place == plan.decision and opening is not None:
            rows.append((RouteDecision, opening))
        elif place == plan.receipt and closing is not None:
            rows.append((Receipt, closing))
        else:
            record = records[place]
            rows.append((type(record), astuple(record)))
    if whole:
        return rows, plan.row_of
    row_at = {place: row for row, place in enumerate(places)}
    return rows, [row_at[carried_by.get(place, place)] for place in range(len(records))]


def _opening(
    records: Sequence[Record], plan: _Plan, at: int, carried_by: dict[int, int]
) -> Values | None:
    """The values of a decision's row that carries what else is there of it; None: nothing is."""
    of = records[at]
    if not isinstance(of, RouteDecision) or not (
        of.hold_kv_tokens is None and of.attempt_kind is None and of.trace_reasons is None
    ):
        return None
    request_id, route_id, at_us = of.request_id, of.route_id, of.decided_at_us
    hold, attempt, trace = _NO_HOLD, _NO_ATTEMPT, _NO_TRACE
    if plan.reservation is not None:
        held = records[plan.reservation]
        if (
            isinstance(held, Reservation)
            and held.request_id == request_id
            and held.reservation_id == request_id
            and held.tenant_id == of.tenant_id
            and held.route_id == route_id
            and held.reserved_at_us == at_us
        ):
            carried_by[plan.reservation] = at
            hold = (
                held.kv_tokens,
                held.input_tokens,
                held.output_tokens,
                held.cost_pico,
                held.bound_at_us,
            )
    if plan.attempt is not None:
        begun = records[plan.attempt]
        if (
            isinstance(begun, Attempt)
            and begun.request_id == request_id
            and begun.attempt_id == request_id + FIRST_ATTEMPT
            and begun.ordinal == 0
            and begun.route_id == route_id
            and begun.started_at_us == at_us
        ):
            carried_by[plan.attempt] = at
            attempt = (begun.kind, begun.identity_id, begun.provider_kind)
    if plan.trace is not None:
        traced = records[plan.trace]
        if (
            isinstance(traced, TraceEvent)
            and traced.request_id == request_id
            and traced.event == (SELECTED if of.status == "accepted" else REJECTED)
            and traced.observed_at_us == at_us
            and traced.policy_revision == of.policy_revision
            and traced.route_id == route_id
        ):
            carried_by[plan.trace] = at
            trace = (
                traced.reasons,
                traced.budget_json,
                traced.snapshot_revision,
                traced.trace_id,
            )
    if not carried_by:
        return None
    return (*astuple(of)[:_OWN_OF_DECISION], *hold, *attempt, *trace)


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
