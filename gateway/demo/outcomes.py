"""What became of the demonstration's answers: reports drawn from a seed, and marked as such.

Tenants report on every fifth of their completed answers, later than the answer: whether it passed
their quality gate, whether its citations were verified, and whether the task was completed, which
may have taken several requests. Nobody measured any of it.
"""

import random
from dataclasses import dataclass

from ledger.records import OutcomeReport, Receipt

REPORTED_EVERY = 5
REPORTED_BY = "demo"
EVIDENCE = "drawn from the demonstration's seed"
LATEST_US = 240_000_000
"""How long after an answer its report comes, at most."""
TASK_REQUESTS = (1, 1, 1, 2, 3)
PASSED_SHARE = {"fast-v2": 0.93, "fast-us-v2": 0.93, "fast-v3": 0.90}
OTHERWISE_PASSED_SHARE = 0.87
CITED = frozenset({"summary", "extract"})
CITATIONS_SHARE, COMPLETED_SHARE, TAKEN_OVER_SHARE = 0.85, 0.8, 0.04


@dataclass(slots=True, kw_only=True)
class _Task:
    task_id: str
    requests_left: int


class Reporter:
    """Takes receipts as they are made; `reports` are the rows to be filed after them."""

    def __init__(self, seed: int, now_us: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a draw, not a secret
        self._now_us = now_us
        self._tasks: dict[str, _Task] = {}
        self._begun = self._completed = 0
        self.reports: list[OutcomeReport] = []

    def add(self, receipt: Receipt) -> None:
        if receipt.status != "completed" or receipt.ended_at_us is None:
            return
        self._completed += 1
        if self._completed % REPORTED_EVERY == 0:
            self.reports.append(self._report(receipt, receipt.ended_at_us))

    def _report(self, receipt: Receipt, ended_at_us: int) -> OutcomeReport:
        draw = self._random.random
        task = self._task_of(receipt.tenant_id)
        last = task.requests_left == 0
        share = PASSED_SHARE.get(receipt.route_id or "", OTHERWISE_PASSED_SHARE)
        passed = draw() < share
        cited = draw() < CITATIONS_SHARE if receipt.task_type in CITED else None
        completed = passed and draw() < COMPLETED_SHARE if last else None
        return OutcomeReport(
            outcome_id=f"{receipt.tenant_id}/demo-{len(self.reports)}",
            request_id=receipt.request_id,
            tenant_id=receipt.tenant_id,
            quality_passed=int(passed),
            citations_verified=None if cited is None else int(cited),
            schema_valid=None,
            task_completed=None if completed is None else int(completed),
            taken_over=int(draw() < TAKEN_OVER_SHARE) if last else None,
            task_id=task.task_id,
            task_type=receipt.task_type,
            reported_at_us=min(self._now_us, ended_at_us + int(draw() * LATEST_US)),
            reported_by=REPORTED_BY,
            evidence=EVIDENCE,
        )

    def _task_of(self, tenant_id: str) -> _Task:
        """The tenant's task, one request further on; a new one where the last is done."""
        task = self._tasks.get(tenant_id)
        if task is None or not task.requests_left:
            self._begun += 1
            task = self._tasks[tenant_id] = _Task(
                task_id=f"task-{self._begun}",
                requests_left=self._random.choice(TASK_REQUESTS),
            )
        task.requests_left -= 1
        return task
