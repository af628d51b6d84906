"""What outcome reports add to the rollups: counts under the request that they are about (CST-3).

A request's outcome is the fold of its reports in chain order: what a later one says replaces what
an earlier one said, and what it leaves open stays. A task that several requests serve counts as
completed once, at the first of them by id that was completed. Everything is read as of a chain
position, so that a rebuild gives what was kept.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger.records import OutcomeReport, Receipt
from ledger.rows import record_of, select

Counts = tuple[int, ...]  # of tables.OUTCOME_COUNTS
NONE: Counts = (0, 0, 0, 0, 0)

_OF_REQUEST = f"{select(OutcomeReport)} WHERE request_id = ? AND seq <= ? ORDER BY seq"
_REQUESTS_OF_TASK = (
    "SELECT DISTINCT request_id FROM outcome_report "
    "WHERE task_id = ? AND tenant_id = ? AND seq <= ? ORDER BY request_id"
)
_RECEIPT = f"{select(Receipt)} WHERE request_id = ? AND seq <= ? ORDER BY revision DESC LIMIT 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known of one request's use. None: nobody said."""

    quality_passed: int | None = None
    citations_verified: int | None = None
    schema_valid: int | None = None
    task_completed: int | None = None
    taken_over: int | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Counts to be added where a receipt counts; negative ones take away."""

    receipt: Receipt
    counts: Counts


def folded(reports: Iterable[OutcomeReport]) -> Outcome | None:
    """The outcome that reports in chain order amount to; None where there is none."""
    known: dict[str, int | str | None] = {}
    for report in reports:
        for name in Outcome.__slots__:
            value = getattr(report, name)
            if value is not None or name not in known:
                known[name] = value
    return Outcome(**known) if known else None  # type: ignore[arg-type]  # each by its own name


class Outcomes:
    """Reads the outcomes in one database as they stood at a chain position."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def counts(self, request_id: str, at_seq: int) -> Counts:
        """What a request counts for, by `tables.OUTCOME_COUNTS`."""
        outcome = self._outcome(request_id, at_seq)
        if outcome is None:
            return NONE
        task = outcome.task_completed == 1
        if task and outcome.task_id is not None:
            tenant_id = self._reports(request_id, at_seq)[0].tenant_id
            task = self._holder(outcome.task_id, tenant_id, at_seq) == request_id
        return (
            1,
            int(outcome.quality_passed == 1),
            int(outcome.citations_verified == 1),
            int(task),
            int(outcome.taken_over == 1),
        )

    def changes(self, report: OutcomeReport, seq: int) -> list[Change]:
        """What one report changes, in its own request and in those that serve the same task."""
        touched = {report.request_id}
        for at_seq in (seq - 1, seq):
            outcome = self._outcome(report.request_id, at_seq)
            if outcome is not None and outcome.task_id is not None:
                for before in (seq - 1, seq):
                    holder = self._holder(outcome.task_id, report.tenant_id, before)
                    touched |= {holder} if holder is not None else set()
        found = []
        for request_id in sorted(touched):
            old, new = self.counts(request_id, seq - 1), self.counts(request_id, seq)
            receipt = self._receipt(request_id, seq)
            if old != new and receipt is not None:
                moved = tuple(after - before for before, after in zip(old, new, strict=True))
                found.append(Change(receipt=receipt, counts=moved))
        return found

    def moved(self, old: Receipt, new: Receipt, seq: int) -> list[Change]:
        """What a receipt that replaces another takes with it."""
        counts = self.counts(new.request_id, seq)
        if counts == NONE:
            return []
        gone = tuple(-count for count in counts)
        return [Change(receipt=old, counts=gone), Change(receipt=new, counts=counts)]

    def _reports(self, request_id: str, at_seq: int) -> Sequence[OutcomeReport]:
        rows = self._connection.execute(_OF_REQUEST, (request_id, at_seq)).fetchall()
        return [record_of(OutcomeReport, row) for row in rows]

    def _outcome(self, request_id: str, at_seq: int) -> Outcome | None:
        return folded(self._reports(request_id, at_seq))

    def _holder(self, task_id: str, tenant_id: str, at_seq: int) -> str | None:
        """The request at which a task counts as completed; None where it isn't."""
        rows = self._connection.execute(_REQUESTS_OF_TASK, (task_id, tenant_id, at_seq)).fetchall()
        for (request_id,) in rows:
            outcome = self._outcome(request_id, at_seq)
            if outcome is not None and (outcome.task_id, outcome.task_completed) == (task_id, 1):
                return str(request_id)
        return None

    def _receipt(self, request_id: str, at_seq: int) -> Receipt | None:
        row = self._connection.execute(_RECEIPT, (request_id, at_seq)).fetchone()
        return None if row is None else record_of(Receipt, row)
