"""POST /api/v1/requests, and GET /api/v1/requests/{id}/output: run now, streamed, or later.

An asynchronous request is answered 202 once it is accepted and durable; its output is asked for by
its id, and kept in memory alone (LED-5). Failures are problems of RFC 9457.
"""

import orjson

from gateway.api import errors
from gateway.api.calls import Answering, Calls
from gateway.api.errors import Failure
from gateway.api.http import Header, Request, Response
from gateway.api.native import ID_LIMIT_CHARS, dossier_receipt_json
from gateway.api.ports import Ports
from gateway.api.replies import failed_natively
from gateway.api.retained import Retained
from gateway.api.submit_body import SUBMIT, SubmitForm
from gateway.submission import Caller
from ledger.queries.dossier import dossier

REQUESTS = "/api/v1/requests"
ACCEPTED_STATUS = 202
POLL_SECONDS = b"1"


class Submit(Calls):
    """Takes requests, and gives the output of asynchronous ones."""

    def __init__(self, ports: Ports, body_limit_bytes: int, retained: Retained) -> None:
        super().__init__(ports, body_limit_bytes, SUBMIT)
        self._retained = retained

    async def reply(
        self, request: Request, caller: Caller, answering: Answering
    ) -> Response | None:
        form = answering.form
        if not isinstance(form, SubmitForm) or form.mode != "async":
            return await self.answer(request, answering)
        self._retained.keep(caller.tenant_id, answering.first, form)
        request_id = answering.first.request_id
        return _open(request_id, (*answering.headers, (b"location", _output(request_id))))

    def failed(self, failure: Failure, headers: tuple[Header, ...] = ()) -> Response:
        return failed_natively(failure, headers)

    def failure_body(self, failure: Failure) -> bytes:
        return errors.problem_body(failure)

    async def output(self, request: Request, caller: Caller) -> Response:
        """The output: 200 once it is whole, 202 before, 410 where it is no longer kept."""
        request_id = request.parameter[: ID_LIMIT_CHARS + 1]
        kept = self._retained.find(caller.tenant_id, request_id)
        if kept is None or not isinstance(kept.form, SubmitForm):
            return self._not_kept(caller.tenant_id, request_id)
        if not kept.run.kept_output()[0]:
            return _open(request_id, ())
        answering = Answering(
            runs=(kept.run,),
            form=kept.form,
            more_headers=(),
            shared=True,
            arrived_us=self._ports.clock.now_us(),
        )
        return await self.whole(answering)

    def _not_kept(self, tenant_id: str, request_id: str) -> Response:
        found = dossier(self._ports.reader(), request_id)
        if found is None or found.current.record.tenant_id != tenant_id:
            return self.failed(errors.of_http("NOT_FOUND", "There is no such request."))
        message, receipt = "The request's output isn't kept.", dossier_receipt_json(found)
        return self.failed(errors.not_retained(message, request_id, receipt))


def _output(request_id: str) -> bytes:
    return f"{REQUESTS}/{request_id}/output".encode()


def _open(request_id: str, headers: tuple[Header, ...]) -> Response:
    body = {
        "request_id": request_id,
        "status": "open",
        "output": _output(request_id).decode(),
        "request": f"{REQUESTS}/{request_id}",
    }
    return Response(
        body=orjson.dumps(body),
        status=ACCEPTED_STATUS,
        headers=(*headers, (b"retry-after", POLL_SECONDS)),
        request_id=request_id,
    )
