"""POST /api/v1/requests/{id}/outcome and /api/v1/outcomes: what became of answers (CST-3).

A report may come any time after the receipt, and again: what a later one says replaces what an
earlier one said. What says nothing new is no report. A bulk is all or nothing.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Annotated

import msgspec

from gateway.api import errors
from gateway.api.absent import absent
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.problems import invalid
from gateway.api.replies import failed_natively
from gateway.submission import Caller
from ledger.queries.outcomes import report as stored_report
from ledger.queries.outcomes import reports_of, tenants_of
from ledger.records import OutcomeReport
from ledger.rollups.outcomes import folded
from ledger.store import LedgerUnavailable, RecordRefused

BULK_LIMIT = 1_000
TRIES = 5  # where reports of one request come at once
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[!-~]+$")]


class OutcomeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said of one request; what is left out stays as it was."""

    quality_passed: bool | None = None
    citations_verified: bool | None = None
    schema_valid: bool | None = None
    task_completed: bool | None = None
    taken_over: bool | None = None
    task_id: Text | None = None
    task_type: Text | None = None
    evidence: Text | None = None  # a reference to it, never content
    outcome_id: Text | None = None  # made of the content where it is left out


class BulkItem(OutcomeBody, frozen=True, kw_only=True):
    request_id: Text


class Bulk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    outcomes: Annotated[list[BulkItem], msgspec.Meta(min_length=1, max_length=BULK_LIMIT)]


class Outcomes:
    """Takes reports of a tenant's own requests."""

    def __init__(self, ports: Ports, body_limit_bytes: int) -> None:
        self._ports, self._limit = ports, body_limit_bytes

    async def one(self, request: Request, caller: Caller) -> Response:
        body = await request.body(self._limit)
        try:
            said = msgspec.json.decode(body, type=OutcomeBody)
        except (msgspec.ValidationError, msgspec.DecodeError) as problem:
            return _unreadable(problem)
        item = BulkItem(request_id=request.parameter, **msgspec.structs.asdict(said))
        return await self._taken((item,), caller)

    async def bulk(self, request: Request, caller: Caller) -> Response:
        body = await request.body(self._limit)
        try:
            said = msgspec.json.decode(body, type=Bulk)
        except (msgspec.ValidationError, msgspec.DecodeError) as problem:
            return _unreadable(problem)
        return await self._taken(said.outcomes, caller)

    async def _taken(self, items: Sequence[BulkItem], caller: Caller) -> Response:
        """File what says something new: 200 with what was taken, or a problem and nothing."""
        if not all(_says_something(item) for item in items):
            return failed_natively(
                errors.of_problem(invalid("A report says at least one thing.", "outcomes"))
            )
        for _ in range(TRIES):
            sorted_out = await asyncio.to_thread(self._sorted_out, items, caller)
            if isinstance(sorted_out, Response):
                return sorted_out
            new, ids = sorted_out
            try:
                if new:
                    await self._ports.commit(new)
            except RecordRefused:  # reports of the same request came at once: look again
                continue
            except LedgerUnavailable:
                return failed_natively(errors.ledger_unavailable())
            taken = {"taken": len(new), "known": len(items) - len(new)}
            return Response(body=msgspec.json.encode({**taken, "outcome_ids": ids}))
        return failed_natively(_conflict())

    def _sorted_out(
        self, items: Sequence[BulkItem], caller: Caller
    ) -> tuple[list[OutcomeReport], list[str]] | Response:
        """The reports that are new, in order, and the id of each item's report; or a problem.

        What is compared is what counts now: a report that goes back to an earlier value is new.
        """
        connection, now_us = self._ports.reader(), self._ports.clock.now_us()
        owners = tenants_of(connection, [item.request_id for item in items])
        said: dict[str, list[OutcomeReport]] = {}
        new: list[OutcomeReport] = []
        ids: list[str] = []
        for item in items:
            if owners.get(item.request_id) != caller.tenant_id:
                return failed_natively(
                    absent(connection, caller.tenant_id, item.request_id, "A request of the report "
                           "doesn't exist, or has no receipt yet. Nothing was taken.")
                )  # fmt: skip
            if item.request_id not in said:
                said[item.request_id] = reports_of(connection, item.request_id)
            before = said[item.request_id]
            record = _record(item, caller, now_us, len(before))
            known = next((one for one in before if one.outcome_id == record.outcome_id), None)
            known = known or stored_report(connection, record.outcome_id)
            if known is not None and not _same(known, record):
                return failed_natively(_conflict())
            if known is None and item.outcome_id is None and _is_said(before, record):
                known = before[-1]
            ids.append((known or record).outcome_id)
            if known is None:
                new.append(record)
                before.append(record)
        return new, ids


def _is_said(before: Sequence[OutcomeReport], record: OutcomeReport) -> bool:
    """Whether everything that a report says is what the reports before it amount to."""
    now = folded(before)
    fields = (*FLAGS, "task_id")
    return now is not None and all(
        getattr(record, name) in (None, getattr(now, name)) for name in fields
    )


def _record(item: BulkItem, caller: Caller, now_us: int, before: int) -> OutcomeReport:
    """The record of a report that follows `before` others of its request."""
    said = msgspec.structs.asdict(item)
    digest = hashlib.sha256(f"{caller.tenant_id}\0{before}\0".encode())
    digest.update(msgspec.json.encode(item))
    outcome_id = item.outcome_id or f"out_{digest.hexdigest()[:32]}"
    if item.outcome_id is not None:  # a tenant's own ids can't meet another's
        outcome_id = f"{caller.tenant_id}/{item.outcome_id}"
    flags = {name: None if said[name] is None else int(said[name]) for name in FLAGS}
    return OutcomeReport(
        outcome_id=outcome_id,
        request_id=item.request_id,
        tenant_id=caller.tenant_id,
        **flags,
        task_id=item.task_id,
        task_type=item.task_type,
        reported_at_us=now_us,
        reported_by=caller.key_id,
        evidence=item.evidence or "",
    )


FLAGS = ("quality_passed", "citations_verified", "schema_valid", "task_completed", "taken_over")


def _says_something(item: BulkItem) -> bool:
    return any(getattr(item, name) is not None for name in (*FLAGS, "task_id"))


def _same(one: OutcomeReport, two: OutcomeReport) -> bool:
    """Whether two reports of one id say the same, whenever and by whichever key they came."""
    when = {"reported_at_us": 0, "reported_by": ""}
    return msgspec.structs.replace(one, **when) == msgspec.structs.replace(two, **when)


def _conflict() -> errors.Failure:
    return errors.of_http(
        "OUTCOME_CONFLICT", "A report of this outcome_id says something else. Nothing was taken."
    )


def _unreadable(problem: Exception) -> Response:
    """A body that isn't what is expected; msgspec names the field and never quotes a value."""
    return failed_natively(errors.of_problem(invalid(f"The report can't be read: {problem}")))
