"""Every append-only record, field by field: the one truth for tables, hashes and rows (SPEC 2).

`ledger.models` makes a table of each, `ledger.chain` hashes the fields in this order, and
`ledger.store` writes them. `base` says how to add a record or a field.
"""

from ledger.records.archived import ArchivedRow
from ledger.records.attempts import AttemptDecision
from ledger.records.base import Index, Record, label_field
from ledger.records.control import (
    ActionOverride,
    ControlAction,
    Notification,
    ReleaseRecord,
    RolloutEvaluation,
    RolloutRecord,
    SloDefinitionRecord,
    SloEvaluation,
)
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
from ledger.records.outcomes import OutcomeReport
from ledger.records.predictions import PredictionRevision
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
    ActionOverride,
    Notification,
    ReleaseRecord,
    RolloutEvaluation,
    RolloutRecord,
    SloDefinitionRecord,
    SloEvaluation,
    OutcomeReport,
    PredictionRevision,
)

CHAINED: tuple[type[Record], ...] = (*RECORDS, ArchivedRow)
"""Every table that can hold a row of the chain."""

__all__ = [
    "CHAINED",
    "RECORDS",
    "ActionOverride",
    "ApiKey",
    "ApiKeyRevocation",
    "ArchivedRow",
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
    "Notification",
    "OutcomeReport",
    "PeriodLock",
    "PredictionRevision",
    "RateTableRecord",
    "Receipt",
    "Reconciliation",
    "ReconciliationSignOff",
    "Record",
    "ReleaseRecord",
    "Reservation",
    "RolloutEvaluation",
    "RolloutRecord",
    "RouteDecision",
    "RoutePolicyRecord",
    "Settlement",
    "SloDefinitionRecord",
    "SloEvaluation",
    "Tenant",
    "TraceEvent",
    "label_field",
]
