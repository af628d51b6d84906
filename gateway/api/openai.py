"""POST /v1/chat/completions and GET /v1/models, as OpenAI's clients expect them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import orjson

from gateway import metrics
from gateway.api import errors
from gateway.api.answers import Chunks, Receipts, completion_body, run_headers
from gateway.api.budget import Asked, read_budget
from gateway.api.choices import Gathered, Piece, merged
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
from gateway.submission import Caller, Ended, Filed, Refusal, Submission
from gateway.trace_context import TraceContext, trace_of
from ledger.errors import LedgerUnavailable

# What a JSON schema, tools or log probabilities imply (BUD-1): the route must be able to do it.
CAPABILITY_JSON_SCHEMA = "json_schema"
CAPABILITY_TOOLS = "tools"
CAPABILITY_LOGPROBS = "logprobs"
SEED_LIMIT = 2**63
TRACE_ID_BYTES = 16

# On what an earlier call with the same Idempotency-Key made (LED-5).
REPLAYED: tuple[Header, ...] = ((b"x-weighbridge-idempotent-replay", b"true"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """One call's runs, one for each answer, and how they are answered."""

    runs: tuple[Run, ...]
    wanted: ChatRequest
    more_headers: tuple[Header, ...]
    shared: bool  # by an Idempotency-Key: nobody's going away cancels it

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def headers(self) -> tuple[Header, ...]:
        """How the answer came about, once one begins: a fallback changes the route (FBK-2)."""
        return (*run_headers(self.runs), *self.more_headers)


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
            return failed(errors.of_problem(no_such_model(self._ports.models())))
        key = request.headers.get(HEADER)
        weighed = submissions(caller, wanted, asked, trace=trace_sent(request.headers))
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
        return await self._answer(
            request,
            Answering(runs=outcome, wanted=wanted, more_headers=headers, shared=key is not None),
        )

    async def _answer(self, request: Request, answering: Answering) -> Response | None:
        """Deliver the runs; a client that goes away before their end cancels them at once (DLV-2).

        Not so where an Idempotency-Key shares them: the client will ask again, or another does.
        """
        watching = asyncio.create_task(self._cancel_when_gone(request, answering))
        deliver = self._ports.journey.deliver
        pieces = merged([deliver(run) for run in answering.runs])
        try:
            async with aclosing(pieces):
                if answering.wanted.stream:
                    return await self._stream(request, answering, pieces, watching)
                return await self._whole(answering, pieces)
        finally:
            watching.cancel()

    async def _cancel_when_gone(self, request: Request, answering: Answering) -> None:
        await request.client_gone()
        if not answering.shared:
            await self._cancel(answering)

    async def _cancel(self, answering: Answering) -> None:
        for run in answering.runs:
            await self._ports.journey.cancel(run)

    async def _whole(self, answering: Answering, pieces: AsyncIterator[Piece]) -> Response:
        choices = [Gathered() for _ in answering.runs]
        ended: dict[int, tuple[str, Filed]] = {}
        failure: Failure | None = None
        try:
            async for index, piece in pieces:
                choices[index].take(piece)
                if isinstance(piece, Ended):
                    outcome = self._judged(answering.runs[index], piece)
                    if isinstance(outcome, Failure):
                        failure = outcome
                        break
                    ended[index] = outcome
        except LedgerUnavailable:
            failure = errors.end_not_recorded(answering.first.request_id)
        if failure is None and len(ended) < len(choices):
            failure = errors.end_not_recorded(answering.first.request_id)
        if failure is not None:
            await self._give_up(answering)
            return failed(failure, answering.headers)
        finished = [(gathered, ended[index][0]) for index, gathered in enumerate(choices)]
        receipts = self._receipts([ended[index][1] for index in range(len(choices))])
        return Response(
            body=completion_body(answering.first, finished, receipts),
            headers=answering.headers,
            request_id=answering.first.request_id,
        )

    async def _stream(
        self, request: Request, answering: Answering, pieces: AsyncIterator[Piece],
        watching: "asyncio.Task[None]",
    ) -> Response | None:  # fmt: skip
        """Stream the answer. Headers leave with the first token, so that a failure before it
        still gets its own HTTP status; after it, it is an error event without [DONE] (DLV-5)."""
        runs = answering.runs
        chunks: Chunks | None = None
        begun: set[int] = set()
        filed: dict[int, Filed] = {}
        failure: Failure | None = None
        try:
            async for index, piece in pieces:
                if chunks is None:  # now it is known which attempt answers
                    include_usage = answering.wanted.include_usage
                    chunks = Chunks(answering.first, include_usage, len(runs))
                if isinstance(piece, Ended):
                    ended = self._judged(runs[index], piece)
                    if isinstance(ended, Failure):
                        failure = ended
                        break
                    finish_reason, filed[index] = ended
                    if len(filed) == len(runs):
                        # Whoever hangs up from here on has had the whole answer (DLV-6).
                        watching.cancel()
                        receipts = self._receipts([filed[each] for each in range(len(runs))])
                        written = chunks.last(index, finish_reason, receipts) + DONE
                    else:
                        written = chunks.finish(index, finish_reason)
                    written = (b"" if index in begun else chunks.role(index)) + written
                else:
                    written = chunks.piece(index, piece)
                    if index not in begun and written:
                        written = chunks.role(index, piece) + written
                        begun.add(index)
                if written:
                    await _write(request, answering, written, more=len(filed) < len(runs))
        except LedgerUnavailable:
            failure = errors.end_not_recorded(answering.first.request_id)
        if failure is None and len(filed) < len(runs):
            failure = errors.end_not_recorded(answering.first.request_id)
        if failure is None:
            metrics.responded("chat_completions", 200)
            return None
        await self._give_up(answering)
        if not request.sent_start:
            return failed(failure, answering.headers)
        await request.write(error_event(errors.openai_body(failure)), more=False)
        return None

    async def _give_up(self, answering: Answering) -> None:
        """Cancel what still runs for an answer that can't be whole any more."""
        if len(answering.runs) > 1 and not answering.shared:
            await self._cancel(answering)

    def _receipts(self, filed: Sequence[Filed]) -> Receipts:
        return [(each.receipt, self._lookups.receipt(each)) for each in filed]

    def _judged(self, run: Run, ended: Ended) -> Failure | tuple[str, Filed]:
        """Returns the finish reason and the receipt of a whole answer, else the failure."""
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
            return failed(errors.of_problem(no_such_model(self._ports.models())))
        return Response(body=orjson.dumps(_model_json(request.parameter)))


def submissions(
    caller: Caller, wanted: ChatRequest, asked: Asked, *, trace: TraceContext | None = None
) -> tuple[Submission, ...]:
    """Returns what the journey weighs, for each answer that is wanted.

    Of several with a seed each gets one of its own: the same seed would make the same answer. A
    cost budget is that of all of them, so each gets an equal part of it, rounded down (BUD-2).
    """
    first = replace(submission(caller, wanted, asked), trace=trace)
    if first.max_cost_pico is not None:
        first = replace(first, max_cost_pico=first.max_cost_pico // wanted.choices)
    if wanted.seed is None:
        return (first,) * wanted.choices
    seeds = (wanted.seed + index for index in range(wanted.choices))
    return tuple(
        replace(first, seed=seed if seed < SEED_LIMIT else seed - 2 * SEED_LIMIT) for seed in seeds
    )


def submission(caller: Caller, wanted: ChatRequest, asked: Asked) -> Submission:
    """Returns what the journey weighs: the chat, what was asked for and what that implies."""
    implied = set(asked.required_capabilities)
    if wanted.wants_json:
        implied.add(CAPABILITY_JSON_SCHEMA)
    if wanted.tools_json is not None:
        implied.add(CAPABILITY_TOOLS)
    if wanted.parameters.logprobs:
        implied.add(CAPABILITY_LOGPROBS)
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
        parameters=wanted.parameters,
    )


def trace_sent(headers: Mapping[str, str]) -> TraceContext:
    """Returns the W3C trace that the caller is in, or a new one where it names none."""
    return trace_of(
        headers.get("traceparent"),
        headers.get("tracestate"),
        fresh=secrets.token_bytes(TRACE_ID_BYTES),
    )


async def _write(request: Request, answering: Answering, written: bytes, *, more: bool) -> None:
    """Write a part of a stream, after its headers where it is the first."""
    if not request.sent_start:
        await request.start(
            200,
            [
                (b"content-type", EVENT_STREAM),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
                (b"x-content-type-options", b"nosniff"),
                (b"x-request-id", answering.first.request_id.encode()),
                *answering.headers,
            ],
        )
    await request.write(written, more=more)


def no_such_model(models: tuple[str, ...]) -> Problem:
    """The name that was asked for isn't quoted: what a client sent stays out of errors."""
    return Problem(
        code="MODEL_NOT_FOUND",
        message=f"There is no such model; there are {', '.join(models)}.",
        param="model",
    )


def _model_json(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "weighbridge"}
