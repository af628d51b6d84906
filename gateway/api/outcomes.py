"""POST /api/v1/requests/{id}/outcome and /api/v1/outcomes: what became of answers (CST-3).

A report may come any time after the receipt, and again: what a later one says replaces what an
earlier one said. Sent twice with the same content it is one report. A bulk is all or nothing.
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
from ledger.queries.outcomes import tenants_of
from ledger.records import OutcomeReport
from ledger.store import LedgerUnavailable, RecordRefused

BULK_LIMIT = 1_000
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
        """File what is new of the items: 200 with what was taken, or a problem and nothing."""
        now_us = self._ports.clock.now_us()
        records = [_record(item, caller, now_us) for item in items]
        for record in records:
            if not _says_something(record):
                return failed_natively(
                    errors.of_problem(invalid("A report says at least one thing.", "outcomes"))
                )
        sorted_out = await asyncio.to_thread(self._sorted_out, records, caller.tenant_id)
        if isinstance(sorted_out, Response):
            return sorted_out
        if sorted_out:
            try:
                await self._ports.commit(sorted_out)
            except RecordRefused:  # the same report came twice at once
                return failed_natively(_conflict())
            except LedgerUnavailable:
                return failed_natively(errors.ledger_unavailable())
        taken = {"taken": len(sorted_out), "known": len(items) - len(sorted_out)}
        ids = [record.outcome_id for record in records]
        return Response(body=msgspec.json.encode({**taken, "outcome_ids": ids}))

    def _sorted_out(
        self, records: Sequence[OutcomeReport], tenant_id: str
    ) -> list[OutcomeReport] | Response:
        """The reports that are new, in order; a problem where one can't be taken."""
        connection = self._ports.reader()
        owners = tenants_of(connection, [record.request_id for record in records])
        new: dict[str, OutcomeReport] = {}
        for record in records:
            if owners.get(record.request_id) != tenant_id:
                return failed_natively(
                    absent(connection, tenant_id, record.request_id, "A request of the report "
                           "doesn't exist, or has no receipt yet. Nothing was taken.")
                )  # fmt: skip
            before = new.get(record.outcome_id) or stored_report(connection, record.outcome_id)
            if before is None:
                new[record.outcome_id] = record
            elif not _same(before, record):
                return failed_natively(_conflict())
        return list(new.values())


def _record(item: BulkItem, caller: Caller, now_us: int) -> OutcomeReport:
    said = msgspec.structs.asdict(item)
    digest = hashlib.sha256(f"{caller.tenant_id}\0".encode())
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


def _says_something(record: OutcomeReport) -> bool:
    return any(getattr(record, name) is not None for name in (*FLAGS, "task_id"))


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
