"""Which fields identify a row, and by which fields rows are looked up.

`seq` is every table's primary key and, as SQLite's rowid, the last part of every index: an index
on a time serves `ORDER BY time, seq` as well.
"""

import msgspec

from ledger import records as r
from ledger.records import Record


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index that is not unique. `present`: it holds only rows where its first field is set."""

    name: str
    fields: tuple[str, ...]
    present: bool = False


UNIQUE: dict[type[Record], tuple[tuple[str, ...], ...]] = {
    r.ModelIdentity: (("identity_id",),),
    r.RateTableRecord: (("version",),),
    r.RoutePolicyRecord: (("revision",),),
    r.Tenant: (("tenant_id", "revision"),),
    r.ApiKey: (("key_id",), ("key_hash",)),
    r.ApiKeyRevocation: (("key_id",),),
    r.EvaluationResult: (("evaluation_id",),),
    r.CapacitySnapshotRecord: (("route_id", "revision"),),
    r.RouteDecision: (("request_id",),),
    r.Reservation: (("reservation_id",),),
    r.Attempt: (("attempt_id",),),
    r.Settlement: (("reservation_id",),),  # a reservation ends once (LED-6)
    r.Receipt: (("request_id", "revision"),),
    r.IdempotencyKey: (("tenant_id", "key_mac"),),
}

INDEXES: dict[type[Record], tuple[Index, ...]] = {
    r.RateTableRecord: (Index(name="rate_table_effective", fields=("effective_from_us",)),),
    r.Reservation: (Index(name="reservation_request", fields=("request_id",)),),
    r.Attempt: (Index(name="attempt_request", fields=("request_id",)),),
    r.AttemptEvent: (Index(name="attempt_event_request", fields=("request_id",)),),
    r.Settlement: (Index(name="settlement_time", fields=("settled_at_us",)),),
    r.Receipt: (
        Index(name="receipt_time", fields=("accepted_at_us",)),
        Index(name="receipt_tenant", fields=("tenant_id", "accepted_at_us")),
        Index(name="receipt_status", fields=("status", "accepted_at_us")),
        Index(name="receipt_route", fields=("route_id", "accepted_at_us"), present=True),
        Index(
            name="receipt_reason", fields=("terminal_error_code", "accepted_at_us"), present=True
        ),
        Index(name="receipt_model", fields=("logical_model", "accepted_at_us")),
    ),
    r.TraceEvent: (Index(name="trace_event_request", fields=("request_id",)),),
}

_LABELS: dict[type[Record], str] = {r.TraceEvent: "request_id", r.ControlAction: "subject"}


def label_field(record_type: type[Record]) -> str:
    """The field by which a person knows a row of this table, for reports and errors."""
    return _LABELS.get(record_type, record_type.__struct_fields__[0])
