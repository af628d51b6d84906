"""POST /v1/responses, GET and DELETE /v1/responses/{id}, and its cancel (LED-5).

A stored response can be asked for again while memory keeps it; afterwards it is 410 with the
receipt. A background response runs on whoever goes away, and is asked for by its id.
"""

import dataclasses
from types import MappingProxyType
from typing import Any

import orjson
from msgspec.structs import replace

from gateway.api import errors
from gateway.api.answers import receipts_field
from gateway.api.calls import Answering, Calls
from gateway.api.cancelling import WAIT_SECONDS
from gateway.api.choices import Gathered
from gateway.api.errors import Failure
from gateway.api.forms import Form, Format
from gateway.api.http import Header, Request, Response
from gateway.api.lookups import Lookups
from gateway.api.native import ID_LIMIT_CHARS, dossier_receipt_json
from gateway.api.ports import Ports
from gateway.api.problems import Problem, invalid
from gateway.api.replies import failed
from gateway.api.responses_body import read_responses_body
from gateway.api.responses_events import ResponsesForm, output_items
from gateway.api.retained import Kept, Retained
from gateway.ids import request_of_response
from gateway.submission import Caller
from ledger.errors import LedgerUnavailable
from ledger.queries.dossier import dossier


def _read(body: bytes) -> Form | Problem:
    asked = read_responses_body(body)
    return asked if isinstance(asked, Problem) else ResponsesForm(asked=asked)


RESPONSES = Format(name="responses", read=_read)
_FIELDS = MappingProxyType({"max_tokens": "max_output_tokens", "messages": "input"})  # a chat's


class Responses(Calls):
    """Answers responses, and keeps those that ask for it."""

    def __init__(self, ports: Ports, body_limit_bytes: int, retained: Retained) -> None:
        super().__init__(ports, body_limit_bytes, RESPONSES)
        self._retained = retained

    def failed(self, failure: Failure, headers: tuple[Header, ...] = ()) -> Response:
        """Returns a failure whose field has the name that it has in this body."""
        ours = _FIELDS.get(failure.param or "", failure.param)
        return failed(dataclasses.replace(failure, param=ours), headers)

    async def reply(
        self, request: Request, caller: Caller, answering: Answering
    ) -> Response | None:
        form = answering.form
        if not isinstance(form, ResponsesForm):
            raise TypeError("a response is answered in its own format")
        if form.asked.store:
            self._retained.keep(caller.tenant_id, answering.first, form, form.kept_chars())
            answering = replace(answering, kept=True)
        if not form.asked.background:
            return await self.answer(request, answering)
        if form.wanted.stream:  # whose reader may go away and ask for it later
            return await self.answer(request, replace(answering, shared=True))
        return Response(
            body=orjson.dumps(form.begun(answering.first, "queued")),
            headers=answering.headers,
            request_id=answering.first.request_id,
        )


class StoredResponses:
    """Shows and cancels what is kept."""

    def __init__(self, ports: Ports, retained: Retained) -> None:
        self._ports, self._retained = ports, retained
        self._lookups = Lookups(ports)

    async def one(self, request: Request, caller: Caller) -> Response:
        if request.query().get("stream", [""])[-1].lower() in ("true", "1"):
            message = "A kept response isn't streamed: ask for it without stream until it is over."
            return failed(errors.of_problem(invalid(message, "stream")))
        found = self._found(request, caller)
        return found if isinstance(found, Response) else await self._shown(found)

    async def cancel(self, request: Request, caller: Caller) -> Response:
        """Cancel it where it runs, and show what it is then; asked again, the same."""
        found = self._found(request, caller)
        if isinstance(found, Response):
            return found
        request_id = found.run.request_id
        await self._ports.journey.cancel_by_name(caller.tenant_id, request_id, WAIT_SECONDS)
        return await self._shown(found)

    async def delete(self, request: Request, caller: Caller) -> Response:
        """Forget its answer, and stop it where it runs; its receipt stays."""
        found = self._found(request, caller)
        if isinstance(found, Response):
            return found
        request_id = found.run.request_id
        self._retained.forget(caller.tenant_id, request_id)
        await self._ports.journey.cancel_by_name(caller.tenant_id, request_id, WAIT_SECONDS)
        gone = {"id": request.parameter, "object": "response", "deleted": True}
        return Response(body=orjson.dumps(gone), request_id=request_id)

    def _found(self, request: Request, caller: Caller) -> Kept | Response:
        request_id = request_of_response(request.parameter[:ID_LIMIT_CHARS])
        kept = self._retained.find(caller.tenant_id, request_id) if request_id else None
        if kept is not None and isinstance(kept.form, ResponsesForm):
            return kept
        return no_longer_kept(self._ports, caller.tenant_id, request_id)

    async def _shown(self, kept: Kept) -> Response:
        form = kept.form
        if not isinstance(form, ResponsesForm):
            raise TypeError("a stored response has its own format")
        body = await response_now(self._ports, self._lookups, kept, form)
        return Response(body=orjson.dumps(body), request_id=kept.run.request_id)


async def response_now(
    ports: Ports, lookups: Lookups, kept: Kept, form: ResponsesForm
) -> dict[str, Any]:
    """Returns a kept response as it is now: with its answer once that is whole."""
    run = kept.run
    if not run.kept_output()[0]:
        return form.begun(run, "queued" if run.handed_over_us is None else "in_progress")
    gathered = Gathered()
    try:
        async for piece in ports.journey.deliver(run):  # all are there
            gathered.take(piece)
    except LedgerUnavailable:
        return {**form.begun(run, "failed"), "error": _error("RECEIPT_PENDING")}
    ended = gathered.ended
    if ended is None:
        return {**form.begun(run, "failed"), "error": _error("RECEIPT_PENDING")}
    receipt = ended.filed.receipt
    receipts = [(receipt, lookups.receipt(ended.filed))]
    if receipt.status == "completed" and ended.finish_reason is not None:
        status = "incomplete" if ended.finish_reason == "length" else "completed"
        output = output_items(run, gathered, status)
        return form.ended(run, output, ended.finish_reason, receipts)
    cancelled = receipt.status == "cancelled"
    return {
        **form.begun(run, "cancelled" if cancelled else "failed"),
        "error": None if cancelled else _error(receipt.terminal_error_code or receipt.status),
        **receipts_field(receipts),
    }


def no_longer_kept(ports: Ports, tenant_id: str, request_id: str | None) -> Response:
    """Returns 410 with the receipt of a tenant's request, 404 where it has no such one."""
    found = dossier(ports.reader(), request_id) if request_id else None
    if found is None or found.current.record.tenant_id != tenant_id:
        return failed(errors.of_http("NOT_FOUND", "There is no such response."))
    message, receipt = "The request is over; its output isn't kept.", dossier_receipt_json(found)
    return failed(errors.not_retained(message, found.current.record.request_id, receipt))


def _error(code: str) -> dict[str, str]:
    """OpenAI's clients know a fixed list of codes; ours is in the message and in the receipt."""
    return {"code": "server_error", "message": f"The request ended without an answer: {code}."}
