"""Records that are written together share a row: one key, one hash, one insert for all of them.

A decision's row carries the reservation and the attempt that it opens, and its trace event; the
receipt of a request of one attempt carries that attempt's end and its settlement. What is carried
is what a row of its own would say, field by field (`ledger.sharing` takes nothing else), so that
readers ask for both kinds of rows at once: `source` and `every`. A record that stands alone, or
says anything that its carrier doesn't, has a row of its own in its own table.
"""

from collections.abc import Mapping
from functools import cache

import msgspec

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
from ledger.rows import HEAD_COLUMNS, columns

SELECTED = "inference.route.selected"
REJECTED = "inference.rejected"
"""The trace event that a decision's row carries: of an accepted request, of a rejected one."""
FIRST_ATTEMPT = ".0"
SETTLED_BY = "gateway"
"""Who settles what a receipt settles."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """How a carrier's row says a record: each field as SQL over it, where `present` holds."""

    carrier: type[Record]
    present: str
    fields: Mapping[str, str]


_END = {
    "attempt_id": f"request_id || '{FIRST_ATTEMPT}'",
    "request_id": "request_id",
    "event": "'ended'",
    "at_us": "ended_at_us",
    "outcome": "status",
    "provider_request_id": "provider_request_id",
    "error_code": "terminal_error_code",
    "input_tokens": "input_tokens",
    "cached_input_tokens": "cached_input_tokens",
    "output_tokens": "output_tokens",
    "usage_source": "usage_source",
    "cost_pico": "cost_total_pico",
    "rate_key": "rate_key",
    "usage_convention": "usage_convention",
    "usage_json": "usage_json",
    "service_tier": "service_tier",
}
_SETTLED = {
    "reservation_id": "request_id",
    "request_id": "request_id",
    "kind": "CASE WHEN cost_total_pico = 0 THEN 'voided' ELSE 'posted' END",
    "settled_at_us": "ended_at_us",
    "cost_pico": "cost_total_pico",
    "overrun_pico": "max(0, cost_total_pico - coalesce(cost_estimated_pico, 0))",
    "settled_by": f"'{SETTLED_BY}'",
}
_HELD = {
    "reservation_id": "request_id",
    "request_id": "request_id",
    "tenant_id": "tenant_id",
    "route_id": "route_id",
    "reserved_at_us": "decided_at_us",
    "kv_tokens": "hold_kv_tokens",
    "input_tokens": "hold_input_tokens",
    "output_tokens": "hold_output_tokens",
    "cost_pico": "hold_cost_pico",
    "bound_at_us": "hold_bound_at_us",
}
_BEGUN = {
    "attempt_id": f"request_id || '{FIRST_ATTEMPT}'",
    "request_id": "request_id",
    "ordinal": "0",
    "kind": "attempt_kind",
    "route_id": "route_id",
    "identity_id": "attempt_identity_id",
    "provider_kind": "attempt_provider_kind",
    "started_at_us": "decided_at_us",
}
_TRACED = {
    "event": f"CASE status WHEN 'accepted' THEN '{SELECTED}' ELSE '{REJECTED}' END",
    "request_id": "request_id",
    "observed_at_us": "decided_at_us",
    "policy_revision": "policy_revision",
    "route_id": "route_id",
    "reasons": "trace_reasons",
    "budget_json": "trace_budget_json",
    "snapshot_revision": "trace_snapshot_revision",
    "trace_id": "trace_id",
}
CARRIED: dict[type[Record], Carried] = {
    Reservation: Carried(carrier=RouteDecision, present="hold_kv_tokens IS NOT NULL", fields=_HELD),
    Attempt: Carried(carrier=RouteDecision, present="attempt_kind IS NOT NULL", fields=_BEGUN),
    TraceEvent: Carried(carrier=RouteDecision, present="trace_reasons IS NOT NULL", fields=_TRACED),
    AttemptEvent: Carried(carrier=Receipt, present="closes = 1", fields=_END),
    Settlement: Carried(carrier=Receipt, present="closes = 1", fields=_SETTLED),
}


@cache
def source(record_type: type[Record]) -> str:
    """A parenthesised SELECT of all rows of a record, its own and the carried: to stand in FROM.

    It has seq, v and entry_hash (a carried record has its carrier's seq and hash), then the fields.
    SQLite folds it into a statement around it that is no aggregate, and looks up by the request's
    id in both parts; by the id of an attempt it can't: name the request's too.
    """
    carried = CARRIED[record_type]
    own = ", ".join((*HEAD_COLUMNS, *record_type.__struct_fields__))
    kinds = {column.name: "INTEGER" if column.kind is int else "TEXT"
             for column in columns(record_type)}  # fmt: skip
    # Both parts need the same affinity, column by column: an expression has none without a CAST.
    picked = ", ".join(
        f"{sql} AS {name}" if sql.isidentifier() else f"CAST({sql} AS {kinds[name]}) AS {name}"
        for name, sql in carried.fields.items()
    )
    return (
        f"(SELECT {own} FROM {record_type.TABLE} UNION ALL "
        f"SELECT seq, CAST({record_type.VERSION} AS INTEGER) AS v, entry_hash, {picked} "
        f"FROM {carried.carrier.TABLE} WHERE {carried.present})"
    )


@cache
def every(record_type: type[Record]) -> str:
    """As `rows.select`, of a record's own rows and the carried ones."""
    names = ", ".join((*HEAD_COLUMNS, *record_type.__struct_fields__))
    return f"SELECT {names} FROM {source(record_type)}"
