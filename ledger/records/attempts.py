"""Why a request was tried again, elsewhere or twice at once, or why not (SPEC 6)."""

from typing import ClassVar

from ledger.records.base import Index, Indexes, Record, Unique


class AttemptDecision(Record, frozen=True, kw_only=True):
    """One question after the first attempt of a request, and its answer; it can be replayed."""

    TABLE: ClassVar[str] = "attempt_decision"
    UNIQUE: ClassVar[Unique] = (("request_id", "number"),)
    INDEXES: ClassVar[Indexes] = (Index("attempt_decision_time", "decided_at_us"),)
    request_id: str
    number: int  # 0, 1, … of the request's questions
    asked: str  # ended | hedge_due: what made the gateway ask
    action: str  # retry | fallback | hedge | none
    reason: str  # why so; of `none`, why nothing could follow
    decided_at_us: int
    ordinal: int | None  # of the attempt that it starts
    route_id: str | None
    policy_revision: str
    rate_table_version: str
    code_revision: str  # of the deciding code
    inputs_json: str  # what next_step() was given besides the request's own decision
    decision_json: str  # what it returned
    digest: bytes  # sha256(inputs_json + 0x00 + decision_json)
