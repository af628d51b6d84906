"""What became of an answer once it was used: arrives later than the receipt (SPEC 2)."""

from typing import ClassVar

from ledger.records.base import Index, Indexes, Record, Unique


class OutcomeReport(Record, frozen=True, kw_only=True):
    """What is known of a request's use. None: not said; a later report says more, or otherwise."""

    TABLE: ClassVar[str] = "outcome_report"
    UNIQUE: ClassVar[Unique] = (("outcome_id",),)
    INDEXES: ClassVar[Indexes] = (
        Index("outcome_report_request", "request_id"),
        Index("outcome_report_task", "task_id", "tenant_id", present=True),
    )
    LABEL: ClassVar[str] = "request_id"
    outcome_id: str  # of a report that is sent again, the same
    request_id: str
    tenant_id: str  # whose request it is
    quality_passed: int | None  # each 0, 1 or None
    citations_verified: int | None
    schema_valid: int | None
    task_completed: int | None
    taken_over: int | None  # by a person
    task_id: str | None  # several requests may serve one task
    task_type: str | None
    reported_at_us: int
    reported_by: str
    evidence: str = ""  # a reference, never content
