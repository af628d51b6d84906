"""What a crash left open becomes unknown, with a receipt, before new requests are taken (LED-1).

Nothing is assumed: the reservation stays unsettled, so its money stays held until evidence or a
named person settles it. Slot and KV are free: this process had the transport, and it is gone.
"""

import sqlite3

import msgspec

from gateway.desk import Weighed
from gateway.policy import replay
from gateway.policy.values import RoutePolicy
from gateway.providers.outcomes import Unknown
from gateway.settling import closing_records, refusal_receipt
from ledger.queries import configuration as stored
from ledger.rates import RateTable, Usage
from ledger.records import Record
from ledger.recovery import Unfinished, unfinished


def unknown_receipts(connection: sqlite3.Connection, now_us: int) -> list[tuple[Record, ...]]:
    """Return, for each request without an end, the rows that file it."""
    return [_rows(connection, left, now_us) for left in unfinished(connection)]


def _rows(connection: sqlite3.Connection, left: Unfinished, now_us: int) -> tuple[Record, ...]:
    weighed = _weighed(connection, left)
    ended_at_us = max(now_us, weighed.decided_at_us)
    if left.reservation is None:
        return (refusal_receipt(weighed, ended_at_us),)
    outcome = Unknown(
        reason="PROCESS_ENDED",
        usage=Usage(input_tokens=weighed.decision.input_tokens, output_tokens=0),
        usage_source="estimated",
    )
    return closing_records(weighed, outcome, ended_at_us)[0]


def _weighed(connection: sqlite3.Connection, left: Unfinished) -> Weighed:
    """Return the decision as the desk had it, from its record alone."""
    record = left.decision
    inputs = replay.decode_inputs(record.inputs_json)
    policy_row = stored.policy(connection, record.policy_revision)
    rates_row = stored.rate_table(connection, record.rate_table_version)
    if policy_row is None or rates_row is None:
        raise LookupError(f"the decision of {record.request_id} names what the ledger lacks")
    policy = msgspec.json.decode(policy_row.body_json, type=RoutePolicy)
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
