"""POST /api/v1/requests/{id}/cancel: stop a running request, and say what became of the cancel.

Asked again it answers again, by the same end. Another tenant's request and one that doesn't exist
are told apart by nothing (SEC-2).
"""

import asyncio
from typing import Any

import orjson

from gateway.api import errors
from gateway.api.http import Request, Response
from gateway.api.native import ID_LIMIT_CHARS
from gateway.api.ports import Ports
from gateway.api.receipts import milliseconds
from gateway.api.replies import failed_natively
from gateway.submission import Caller
from ledger.queries.dossier import dossier

WAIT_SECONDS = 2.0
"""How long the call waits for the request's end; a backend may take longer to acknowledge."""
PENDING_STATUS = 202


class Cancelling:
    """Cancels by name; the ledger says what came of it."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def cancel(self, request: Request, caller: Caller) -> Response:
        request_id = request.parameter
        if len(request_id) > ID_LIMIT_CHARS:
            return _no_such_request()
        ended = await self._ports.journey.cancel_by_name(caller.tenant_id, request_id, WAIT_SECONDS)
        if ended is not False:
            shown = await asyncio.to_thread(self._ended, caller.tenant_id, request_id)
            if shown is not None:
                return Response(body=orjson.dumps(shown), request_id=request_id)
            if ended is None:
                return _no_such_request()
        pending = _answer(request_id, "pending", "open", None, None)
        return Response(body=orjson.dumps(pending), status=PENDING_STATUS, request_id=request_id)

    def _ended(self, tenant_id: str, request_id: str) -> dict[str, Any] | None:
        found = dossier(self._ports.reader(), request_id)
        if found is None or found.current.record.tenant_id != tenant_id:
            return None
        receipt = found.current.record
        came_to = {"cancelled": "acknowledged", "unknown": "not_acknowledged"}
        return _answer(
            request_id,
            came_to.get(receipt.status, "too_late"),
            receipt.status,
            receipt.terminal_error_code,
            receipt.cancel_ack_us,
        )


def _answer(
    request_id: str, cancel: str, status: str, code: str | None, ack_us: int | None
) -> dict[str, Any]:
    """`cancel`: acknowledged, not_acknowledged (whether it still runs is unknown), too_late (it had
    ended), or pending (the cancel is passed on, and its end not there yet)."""
    return {
        "request_id": request_id,
        "cancel": cancel,
        "status": status,
        "terminal_error_code": code,
        "cancel_ack_ms": milliseconds(ack_us),
        "receipt": None if status == "open" else f"/api/v1/requests/{request_id}/receipt",
    }


def _no_such_request() -> Response:
    return failed_natively(errors.of_http("NOT_FOUND", "There is no such request."))
