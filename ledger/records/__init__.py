"""Every append-only record, field by field: the one truth for tables, hashes and rows (SPEC 2).

`ledger.models` makes a table of each, `ledger.chain` hashes the fields in this order, and
`ledger.store` writes them. `base` says how to add a record or a field.
"""

from ledger.records.attempts import AttemptDecision
from ledger.records.base import Index, Record, label_field
from ledger.records.control import ControlAction
from ledger.records.fleet import (
    ApiKey,
    ApiKeyRevocation,
    Draft,
    EvaluationResult,
    ModelIdentity,
    RateTableRecord,
    RoutePolicyRecord,
    Tenant,
)
from ledger.records.reconciliation import (
    CurrencyRate,
    Discrepancy,
    Invoice,
    InvoiceLine,
    PeriodLock,
    Reconciliation,
    ReconciliationSignOff,
)
from ledger.records.requests import (
    Attempt,
    AttemptEvent,
    CapacitySnapshotRecord,
    IdempotencyKey,
    Receipt,
    Reservation,
    RouteDecision,
    Settlement,
    TraceEvent,
)

RECORDS: tuple[type[Record], ...] = (
    ModelIdentity,
    RateTableRecord,
    RoutePolicyRecord,
    Tenant,
    ApiKey,
    ApiKeyRevocation,
    EvaluationResult,
    CapacitySnapshotRecord,
    RouteDecision,
    Reservation,
    Attempt,
    AttemptEvent,
    Settlement,
    Receipt,
    TraceEvent,
    ControlAction,
    IdempotencyKey,
    Draft,
    AttemptDecision,
    Invoice,
    InvoiceLine,
    CurrencyRate,
    Reconciliation,
    Discrepancy,
    ReconciliationSignOff,
    PeriodLock,
)

__all__ = [
    "RECORDS",
    "ApiKey",
    "ApiKeyRevocation",
    "Attempt",
    "AttemptDecision",
    "AttemptEvent",
    "CapacitySnapshotRecord",
    "ControlAction",
    "CurrencyRate",
    "Discrepancy",
    "Draft",
    "EvaluationResult",
    "IdempotencyKey",
    "Index",
    "Invoice",
    "InvoiceLine",
    "ModelIdentity",
    "PeriodLock",
    "RateTableRecord",
    "Receipt",
    "Reconciliation",
    "ReconciliationSignOff",
    "Record",
    "Reservation",
    "RouteDecision",
    "RoutePolicyRecord",
    "Settlement",
    "Tenant",
    "TraceEvent",
    "label_field",
]
