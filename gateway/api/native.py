"""GET /api/v1/requests/{id}, /receipt and /decision: what the ledger holds of a request; reports.

Another tenant's request and one that doesn't exist are told apart by nothing (SEC-2).
"""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import orjson

from gateway.api import errors, reports
from gateway.api.absent import NO_RECEIPT, absent
from gateway.api.auth import SCOPE_REPORTS
from gateway.api.decisions import decision_view
from gateway.api.http import JSON, PROBLEM_JSON, Request, Response
from gateway.api.ports import Ports
from gateway.api.receipts import iso_time, receipt_json
from gateway.api.replies import failed_natively
from gateway.api.reports import ReportAnswer
from gateway.policy.replay import CODE_REVISION, decode_decision
from gateway.policy.values import Decision
from gateway.replaying import NotInLedger, Other, Replayer
from gateway.submission import Caller
from gateway.unknown_report import unknowns_body
from ledger.money import units_text
from ledger.queries.decisions import attempt_decisions, decision_of
from ledger.queries.dossier import Dossier, dossier
from ledger.records import Attempt, AttemptDecision, AttemptEvent, RouteDecision
from ledger.rows import Stored

ID_LIMIT_CHARS = 64

Look = Callable[[str, str], dict[str, Any] | None]
"""Returns what a tenant (first) may see of a request (second); None: nothing. Runs in a thread."""


class Requests:
    """Answers from the ledger, off the event loop."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def request(self, request: Request, caller: Caller) -> Response:
        return await self._found(request, caller, self._summary)

    async def receipt(self, request: Request, caller: Caller) -> Response:
        return await self._found(request, caller, self._receipt)

    async def decision(self, request: Request, caller: Caller) -> Response:
        """What was decided; with ?policy= or ?rates= what would have been by those (RTE-4)."""
        named = {name: values[-1] for name, values in request.query().items()}
        if not named.keys() & {"policy", "rates"}:
            return await self._found(request, caller, self._decision)
        look = partial(self._decision_under, named.get("policy"), named.get("rates"))
        try:
            return await self._found(request, caller, look)
        except (NotInLedger, msgspec.DecodeError):
            message = (
                "The ledger has no such policy or rate table, or lacks an input of the decision."
            )
            return failed_natively(errors.of_http("NOT_FOUND", message))

    async def _found(self, request: Request, caller: Caller, look: Look) -> Response:
        if len(request.parameter) > ID_LIMIT_CHARS:
            return failed_natively(errors.of_http("NOT_FOUND", NO_RECEIPT))
        shown = await asyncio.to_thread(look, caller.tenant_id, request.parameter)
        if shown is None:
            return failed_natively(
                await asyncio.to_thread(self._absent, caller.tenant_id, request.parameter)
            )
        return Response(body=orjson.dumps(shown))

    def _absent(self, tenant_id: str, request_id: str) -> errors.Failure:
        return absent(self._ports.reader(), tenant_id, request_id)

    def _summary(self, tenant_id: str, request_id: str) -> dict[str, Any] | None:
        decided = decision_of(self._ports.reader(), request_id)
        if decided is None or decided.record.tenant_id != tenant_id:
            return None
        found = dossier(self._ports.reader(), request_id)
        decision = decided.record
        return {
            "request_id": request_id,
            "status": found.current.record.status if found else "open",
            "decided_at": iso_time(decision.decided_at_us),
            "decision": decision.status,
            "reason_code": decision.reason_code,
            "route_id": decision.route_id,
            "receipt_revisions": len(found.receipts) if found else 0,
            "attempts": _attempts(found.attempts, found.attempt_events) if found else [],
            "attempt_decisions": [
                _step(each.record)
                for each in attempt_decisions(self._ports.reader(), request_id=request_id)
            ],
            "receipt": f"/api/v1/requests/{request_id}/receipt" if found else None,
            "decision_record": f"/api/v1/requests/{request_id}/decision",
        }

    def _receipt(self, tenant_id: str, request_id: str) -> dict[str, Any] | None:
        found = dossier(self._ports.reader(), request_id)
        if found is None or found.current.record.tenant_id != tenant_id:
            return None
        return dossier_receipt_json(found)

    def _decision(self, tenant_id: str, request_id: str) -> dict[str, Any] | None:
        decided = decision_of(self._ports.reader(), request_id)
        if decided is None or decided.record.tenant_id != tenant_id:
            return None
        return decision_json(decided)

    def _decision_under(
        self, policy: str | None, rates: str | None, tenant_id: str, request_id: str
    ) -> dict[str, Any] | None:
        decided = decision_of(self._ports.reader(), request_id)
        if decided is None or decided.record.tenant_id != tenant_id:
            return None
        row, replayer = decided.record, Replayer(self._ports.reader())
        other = Other(
            policy=None if policy is None else replayer.policy(policy),
            rates=None if rates is None else replayer.rates(rates),
        )
        recorded, again = decode_decision(row.decision_json), replayer.under(row, other)
        return {
            "request_id": request_id,
            "policy_revision": policy or row.policy_revision,
            "rate_table_version": rates or row.rate_table_version,
            "code_revision": CODE_REVISION,
            "recorded": {
                "policy_revision": row.policy_revision,
                "rate_table_version": row.rate_table_version,
                "code_revision": row.code_revision,
                **decision_view(recorded),
            },
            "decision": decision_view(again),
            "changed": [
                name
                for name in Decision.__struct_fields__
                if getattr(recorded, name) != getattr(again, name)
            ],
        }


class Unknowns:
    """The open unknowns: of the key's tenant, or with the scope `reports` of all."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def listed(self, request: Request, caller: Caller) -> Response:
        tenant_id = None if SCOPE_REPORTS in caller.scopes else caller.tenant_id
        body = await asyncio.to_thread(self._read, tenant_id)
        return Response(body=json.dumps(body).encode())  # a sum may have more than 64 bits

    def _read(self, tenant_id: str | None) -> dict[str, Any]:
        return unknowns_body(self._ports.reader(), self._ports.clock.now_us(), tenant_id)


class Reports:
    """Answers with what `gateway.api.reports` reads: costs, SLO burn, releases."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def report(self, request: Request, caller: Caller) -> Response:
        answer = await asyncio.to_thread(self._read, request, caller)
        return Response(
            body=answer.encoded(),
            status=answer.status,
            content_type=PROBLEM_JSON if answer.status >= 400 else JSON,
            code=answer.body.get("code") if answer.status >= 400 else None,
        )

    def _read(self, request: Request, caller: Caller) -> ReportAnswer:
        now_us = self._ports.clock.now_us()
        return reports.answer(request.path, request.query(), caller, self._ports.reader(), now_us)


def dossier_receipt_json(found: Dossier) -> dict[str, Any]:
    """Returns the JSON of a request's current receipt, with its identity and its place."""
    return receipt_json(
        found.current.record,
        seq=found.current.seq,
        prev_hash=found.prev_hash,
        entry_hash=found.current.entry_hash,
        identity=found.identity,
        currency=found.rates.currency if found.rates else "units",
    )


def decision_json(decided: Stored[RouteDecision]) -> dict[str, Any]:
    """Returns a recorded decision: what it was given and what it returned, as recorded (RTE-2)."""
    record = decided.record
    return {
        "request_id": record.request_id,
        "decided_at": iso_time(record.decided_at_us),
        "status": record.status,
        "reason_code": record.reason_code,
        "route_id": record.route_id,
        "policy_revision": record.policy_revision,
        "rate_table_version": record.rate_table_version,
        "code_revision": record.code_revision,
        "inputs": orjson.loads(record.inputs_json),
        "decision": orjson.loads(record.decision_json),
        "digest": record.digest.hex(),
        "seq": decided.seq,
        "entry_hash": decided.entry_hash.hex(),
    }


def _step(record: AttemptDecision) -> dict[str, Any]:
    """Why something followed an attempt, or nothing did (SPEC 6)."""
    return {
        "decided_at": iso_time(record.decided_at_us),
        "asked": record.asked,
        "action": record.action,
        "reason": record.reason,
        "ordinal": record.ordinal,
        "route_id": record.route_id,
        "code_revision": record.code_revision,
        "decision": orjson.loads(record.decision_json),
        "digest": record.digest.hex(),
    }


def _attempts(
    attempts: tuple[Stored[Attempt], ...], events: tuple[Stored[AttemptEvent], ...]
) -> list[dict[str, Any]]:
    return [
        {
            "attempt_id": attempt.record.attempt_id,
            "kind": attempt.record.kind,
            "route_id": attempt.record.route_id,
            "provider_kind": attempt.record.provider_kind,
            "started_at": iso_time(attempt.record.started_at_us),
            "events": [
                {
                    "event": event.record.event,
                    "at": iso_time(event.record.at_us),
                    "outcome": event.record.outcome,
                    "provider_request_id": event.record.provider_request_id,
                    "error_code": event.record.error_code,
                    "input_tokens": event.record.input_tokens,
                    "output_tokens": event.record.output_tokens,
                    "cost_units": None
                    if event.record.cost_pico is None
                    else units_text(event.record.cost_pico),
                }
                for event in events
                if event.record.attempt_id == attempt.record.attempt_id
            ],
        }
        for attempt in attempts
    ]
