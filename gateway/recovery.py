"""What a crash left open becomes unknown, with a receipt, before new requests are taken (LED-1).

Nothing is assumed: the reservation stays unsettled, so its money stays held until evidence or a
named person settles it. Slot and KV are free: this process had the transport, and it is gone.
"""

import sqlite3

import msgspec

from gateway.desk import Weighed
from gateway.policy import replay
from gateway.policy.attempt_replay import decode_step_inputs
from gateway.policy.attempting import Step
from gateway.policy.values import RoutePolicy
from gateway.providers.outcomes import Cancelled, Failed, Outcome, Rejected, Unknown
from gateway.settling import (
    Tried,
    attempt_records,
    counted,
    primary,
    receipt_of,
    refusal_receipt,
)
from ledger.queries import configuration as stored
from ledger.queries.decisions import attempt_decisions
from ledger.rates import RateTable, Usage
from ledger.receipt_cost import read_meters
from ledger.records import Attempt, AttemptDecision, AttemptEvent, Record
from ledger.recovery import Unfinished, unfinished


def unknown_receipts(connection: sqlite3.Connection, now_us: int) -> list[tuple[Record, ...]]:
    """Return, for each request without an end, the rows that file it."""
    return [_rows(connection, left, now_us) for left in unfinished(connection)]


def _rows(connection: sqlite3.Connection, left: Unfinished, now_us: int) -> tuple[Record, ...]:
    weighed = _weighed(connection, left)
    ended_at_us = max(now_us, weighed.decided_at_us)
    if left.reservation is None:
        return (refusal_receipt(weighed, ended_at_us),)
    steps = {
        each.record.ordinal: each.record
        for each in attempt_decisions(connection, request_id=weighed.request.request_id)
        if each.record.ordinal is not None
    }
    ends = {each.attempt_id: each for each in left.events if each.event == "ended"}
    tries, lost = [], []
    for attempt in left.attempts:
        end = ends.get(attempt.attempt_id)
        at_us = ended_at_us if end is None else end.at_us
        if attempt.ordinal == 0:
            tried = primary(weighed, _outcome(end, weighed.decision.input_tokens), at_us)
        else:
            tried = _later(connection, attempt, steps[attempt.ordinal], end, at_us)
        one = counted(weighed, tried)
        tries.append(one)
        if end is None:
            lost.append(one)
    # Whatever else is known: an attempt without an end may have answered.
    answering = lost[-1] if lost else tries[-1]
    receipt = receipt_of(weighed, tries, answering, ended_at_us)
    return (*(row for one in lost for row in attempt_records(weighed, one)), receipt)


def _outcome(end: AttemptEvent | None, input_tokens: int) -> Outcome:
    """Return how an attempt ended, by its record; without one it was lost with the process."""
    if end is None:
        return Unknown(
            reason="PROCESS_ENDED",
            usage=Usage(input_tokens=input_tokens, output_tokens=0),
            usage_source="estimated",
        )
    usage = Usage(
        input_tokens=end.input_tokens or 0,
        output_tokens=end.output_tokens or 0,
        cached_input_tokens=end.cached_input_tokens or 0,
        meters=read_meters(end.usage_json),
    )
    reason = end.error_code or ""
    if end.outcome == "cancelled":
        return Cancelled(usage=usage, reason=reason)
    if end.outcome == "failed":
        refused = end.rate_key is None and not usage.input_tokens
        return (
            Rejected(usage=usage, reason=reason) if refused else Failed(usage=usage, reason=reason)
        )
    # A completed one without its receipt can't be: both are written at once.
    return Unknown(usage=usage, reason=reason)


def _later(
    connection: sqlite3.Connection,
    attempt: Attempt,
    asked: AttemptDecision,
    end: AttemptEvent | None,
    at_us: int,
) -> Tried:
    """Return a retry, fallback or hedge as its decision made it."""
    step = msgspec.json.decode(asked.decision_json, type=Step)
    inputs = decode_step_inputs(asked.inputs_json)
    policy = _policy(connection, asked.policy_revision, attempt.request_id)
    route = next(r for r in policy.routes if r.route_id == attempt.route_id)
    snapshots = {each.route_id: each.snapshot_revision for each in inputs.routes}
    return Tried(
        ordinal=attempt.ordinal,
        route=route,
        reservation_id=attempt.attempt_id,
        reserved_pico=step.cost_pico or 0,
        input_tokens=step.input_tokens,
        tokenizer_revision=step.tokenizer_revision,
        outcome=_outcome(end, step.input_tokens),
        ended_at_us=at_us,
        reasons=(step.action.upper(), step.reason),
        snapshot_revision=snapshots.get(attempt.route_id),
        degraded_from=step.degraded_from,
    )


def _policy(connection: sqlite3.Connection, revision: str, request_id: str) -> RoutePolicy:
    row = stored.policy(connection, revision)
    if row is None:
        raise LookupError(f"a decision of {request_id} names policy {revision}: it is not there")
    return msgspec.json.decode(row.body_json, type=RoutePolicy)


def _weighed(connection: sqlite3.Connection, left: Unfinished) -> Weighed:
    """Return the decision as the desk had it, from its record alone."""
    record = left.decision
    inputs = replay.decode_inputs(record.inputs_json)
    policy = _policy(connection, record.policy_revision, record.request_id)
    rates_row = stored.rate_table(connection, record.rate_table_version)
    if rates_row is None:
        raise LookupError(f"the decision of {record.request_id} names rates that are not there")
    snapshots = {route.route_id: route.snapshot_revision for route in inputs.routes}
    return Weighed(
        request=inputs.request,
        decision=replay.decode_decision(record.decision_json),
        rates=msgspec.json.decode(rates_row.body_json, type=RateTable),
        policy_revision=record.policy_revision,
        snapshot_revision=snapshots.get(record.route_id or ""),
        decided_at_us=record.decided_at_us,
        records=(),
        route=next((r for r in policy.routes if r.route_id == record.route_id), None),
    )
