"""What was changed in the running system, by whom or which rule, and on what evidence."""

from typing import ClassVar

from ledger.records.base import Record


class ControlAction(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "control_action"
    LABEL: ClassVar[str] = "subject"
    action: str
    subject: str
    actor: str  # an operator, a command or a rule
    acted_at_us: int
    reason: str
    before_json: str
    after_json: str
    evidence: str = ""
