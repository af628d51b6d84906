"""What was learned of a route's speed, revision by revision (ADM-5)."""

from typing import ClassVar

from ledger.records.base import Record, Unique


class PredictionRevision(Record, frozen=True, kw_only=True):
    """What a route's receipts say of its speed, and which receipts: anyone can learn it again."""

    TABLE: ClassVar[str] = "prediction_revision"
    UNIQUE: ClassVar[Unique] = (("route_id", "revision"),)
    route_id: str
    revision: str
    identity_id: str  # it holds for this model identity on the route, and no other
    policy_revision: str  # whose learning rule made it
    body_json: str  # a tuple of gateway.policy.values.PredictionBucket
    receipts: int  # how many were used,
    first_seq: int  # from this place in the chain
    last_seq: int  # to this one
    learned_at_us: int
