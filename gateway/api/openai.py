"""POST /v1/chat/completions and GET /v1/models, as OpenAI's clients expect them."""

import asyncio
from collections.abc import AsyncIterator

import orjson

from gateway import metrics
from gateway.api import errors
from gateway.api.answers import Chunks, completion_body, run_headers
from gateway.api.budget import Asked, read_budget
from gateway.api.errors import Failure
from gateway.api.headers import encoding_problem
from gateway.api.http import EVENT_STREAM, Header, Request, Response
from gateway.api.idempotent import HEADER, admitted_once, fingerprint
from gateway.api.lookups import Lookups
from gateway.api.ports import Ports, Run
from gateway.api.problems import Problem
from gateway.api.replies import failed
from gateway.api.sse import DONE, error_event
from gateway.api.wire import ChatRequest, read_chat_request
from gateway.submission import Caller, Delta, Ended, Filed, Refusal, Submission
from ledger.errors import LedgerUnavailable

# What a JSON schema or tools imply (BUD-1): the route must be able to do it.
CAPABILITY_JSON_SCHEMA = "json_schema"
CAPABILITY_TOOLS = "tools"

# On what an earlier call with the same Idempotency-Key made (LED-5).
REPLAYED: tuple[Header, ...] = ((b"x-weighbridge-idempotent-replay", b"true"),)


class ChatCompletions:
    """Answers chat completions through the journey."""

    def __init__(self, ports: Ports, body_limit_bytes: int) -> None:
        self._ports = ports
        self._body_limit_bytes = body_limit_bytes
        self._lookups = Lookups(ports)

    async def __call__(self, request: Request, caller: Caller) -> Response | None:
        body = await request.body(self._body_limit_bytes)
        encoded = encoding_problem(request.headers.get("content-encoding"))
        if encoded is not None:
            return failed(errors.of_problem(encoded))
        wanted = read_chat_request(body)
        if isinstance(wanted, Problem):
            return failed(errors.of_problem(wanted))
        asked = read_budget(request.headers, wanted.metadata)
        if isinstance(asked, Problem):
            return failed(errors.of_problem(asked))
        if wanted.model not in self._ports.models():
            return failed(errors.of_problem(_no_such_model(self._ports.models())))
        key = request.headers.get(HEADER)
        weighed = submission(caller, wanted, asked)
        try:
            admitted = await admitted_once(
                self._ports, weighed, key, fingerprint(body, request.headers)
            )
        except LedgerUnavailable:
            return failed(errors.ledger_unavailable())
        outcome, headers = admitted.outcome, REPLAYED if admitted.replayed else ()
        if isinstance(outcome, Failure):
            return failed(outcome, headers)
        if isinstance(outcome, Refusal):
            refused = errors.of_refusal(outcome, self._lookups.receipt(outcome.filed))
            return failed(refused, headers)
        headers = (*run_headers(outcome), *headers)
        return await self._answer(request, outcome, wanted, headers, shared=key is not None)

    async def _answer(
        self, request: Request, run: Run, wanted: ChatRequest, headers: tuple[Header, ...],
        *, shared: bool,
    ) -> Response | None:  # fmt: skip
        """Deliver the run; a client that goes away before its end cancels it at once (DLV-2).

        Not so where an Idempotency-Key shares the run: the client will ask again, or another does.
        """
        watching = asyncio.create_task(self._cancel_when_gone(request, None if shared else run))
        pieces = self._ports.journey.deliver(run)
        try:
            if wanted.stream:
                chunks = Chunks(run, wanted.include_usage)
                return await self._stream(request, run, pieces, watching, chunks, headers)
            return await self._whole(run, pieces, headers)
        finally:
            watching.cancel()

    async def _cancel_when_gone(self, request: Request, run: Run | None) -> None:
        await request.client_gone()
        if run is not None:
            await self._ports.journey.cancel(run)

    async def _whole(
        self, run: Run, pieces: AsyncIterator[Delta | Ended], headers: tuple[Header, ...]
    ) -> Response:
        texts: list[str] = []
        ended: Ended | None = None
        try:
            async for piece in pieces:
                if isinstance(piece, Delta):
                    texts.append(piece.text)
                else:
                    ended = piece
        except LedgerUnavailable:
            return failed(errors.end_not_recorded(run.request_id))
        outcome = self._judged(run, ended)
        if isinstance(outcome, Failure):
            return failed(outcome, headers)
        finish_reason, filed = outcome
        receipt_json = self._lookups.receipt(filed)
        return Response(
            body=completion_body(run, "".join(texts), finish_reason, filed.receipt, receipt_json),
            headers=headers,
            request_id=run.request_id,
        )

    async def _stream(
        self, request: Request, run: Run, pieces: AsyncIterator[Delta | Ended],
        watching: "asyncio.Task[None]", chunks: Chunks, headers: tuple[Header, ...],
    ) -> Response | None:  # fmt: skip
        """Stream the answer. Headers leave with the first token, so that a failure before it
        still gets its own HTTP status; after it, it is an error event without [DONE] (DLV-5)."""
        ended: Ended | None = None
        failure: Failure | None = None
        try:
            async for piece in pieces:
                if isinstance(piece, Ended):
                    ended = piece
                    # Whoever hangs up from here on has had the whole answer (DLV-6).
                    watching.cancel()
                elif request.sent_start:
                    await request.write(chunks.content(piece.text), more=True)
                else:
                    await _start_stream(request, run, headers)
                    await request.write(chunks.role() + chunks.content(piece.text), more=True)
        except LedgerUnavailable:
            failure = errors.end_not_recorded(run.request_id)
        outcome = failure or self._judged(run, ended)
        if isinstance(outcome, Failure):
            if not request.sent_start:
                return failed(outcome, headers)
            await request.write(error_event(errors.openai_body(outcome)), more=False)
            return None
        finish_reason, filed = outcome
        receipt_json = self._lookups.receipt(filed)
        tail = chunks.last(finish_reason, filed.receipt, receipt_json) + DONE
        if not request.sent_start:  # an answer without any text
            await _start_stream(request, run, headers)
            tail = chunks.role() + tail
        await request.write(tail, more=False)
        metrics.responded("chat_completions", 200)
        return None

    def _judged(self, run: Run, ended: Ended | None) -> Failure | tuple[str, Filed]:
        """Returns the finish reason and the receipt of a whole answer, else the failure."""
        if ended is None:
            return errors.end_not_recorded(run.request_id)
        receipt = ended.filed.receipt
        if receipt.status == "completed" and ended.finish_reason is not None:
            return ended.finish_reason, ended.filed
        receipt_json = self._lookups.receipt(ended.filed)
        return errors.of_ending(
            run.request_id, receipt.status, receipt.terminal_error_code, receipt_json
        )


class Models:
    """Lists the logical models of the policy in force."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def every(self, request: Request, caller: Caller) -> Response:
        data = [_model_json(name) for name in self._ports.models()]
        return Response(body=orjson.dumps({"object": "list", "data": data}))

    async def one(self, request: Request, caller: Caller) -> Response:
        if request.parameter not in self._ports.models():
            return failed(errors.of_problem(_no_such_model(self._ports.models())))
        return Response(body=orjson.dumps(_model_json(request.parameter)))


def submission(caller: Caller, wanted: ChatRequest, asked: Asked) -> Submission:
    """Returns what the journey weighs: the chat, what was asked for and what that implies."""
    implied = set(asked.required_capabilities)
    if wanted.wants_json:
        implied.add(CAPABILITY_JSON_SCHEMA)
    if wanted.tools_json is not None:
        implied.add(CAPABILITY_TOOLS)
    return Submission(
        caller=caller,
        logical_model=wanted.model,
        messages=wanted.messages,
        stream=wanted.stream,
        max_input_tokens=asked.max_input_tokens,
        max_output_tokens=wanted.max_output_tokens,
        max_total_tokens=asked.max_total_tokens,
        deadline_ms=asked.deadline_ms,
        max_cost_pico=asked.max_cost_pico,
        priority=asked.priority,
        user_path=asked.user_path,
        task_type=asked.task_type,
        required_capabilities=tuple(sorted(implied)),
        allowed_regions=asked.allowed_regions,
        quality_floor_milli=asked.quality_floor_milli,
        side_effects=wanted.tools_json is not None,
        session_id=asked.session_id,
        tags=asked.tags,
        tools_json=wanted.tools_json,
        schema=wanted.schema,
        ignore_eos=wanted.ignore_eos,
        seed=wanted.seed,
    )


async def _start_stream(request: Request, run: Run, headers: tuple[Header, ...]) -> None:
    await request.start(
        200,
        [
            (b"content-type", EVENT_STREAM),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", run.request_id.encode()),
            *headers,
        ],
    )


def _no_such_model(models: tuple[str, ...]) -> Problem:
    """The name that was asked for isn't quoted: what a client sent stays out of errors."""
    return Problem(
        code="MODEL_NOT_FOUND",
        message=f"There is no such model; there are {', '.join(models)}.",
        param="model",
    )


def _model_json(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "weighbridge"}
