"""A call that runs something: read, admitted once, answered whole or as a stream, in any format."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from gateway import metrics
from gateway.api import errors
from gateway.api.allowance import allowance_headers, overhead_header, patience_ms
from gateway.api.answers import Receipts, run_headers
from gateway.api.budget import read_budget
from gateway.api.choices import Gathered, Pieces, merged
from gateway.api.errors import Failure
from gateway.api.forms import ChunkWriter, Form, Format
from gateway.api.headers import encoding_problem
from gateway.api.http import EVENT_STREAM, Header, Request, Response
from gateway.api.idempotent import HEADER, admitted_once
from gateway.api.lookups import Lookups
from gateway.api.ports import Ports, Run
from gateway.api.problems import Problem
from gateway.api.replies import failed
from gateway.api.sse import error_event
from gateway.api.submitting import no_such_model, submissions, trace_sent
from gateway.submission import Caller, Delta, Ended, Filed, Refusal
from ledger.errors import LedgerUnavailable

WATCH_AFTER_S = 0.01  # a client that hangs up sooner is noticed then, where no server tells of it

# On what an earlier call with the same Idempotency-Key made (LED-5).
REPLAYED: tuple[Header, ...] = ((b"x-weighbridge-idempotent-replay", b"true"),)


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """One call's runs, one for each answer, and how they are answered."""

    runs: tuple[Run, ...]
    form: Form
    more_headers: tuple[Header, ...]
    shared: bool  # by an Idempotency-Key: nobody's going away cancels it
    arrived_us: int
    kept: bool = False  # for whoever asks for it later

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def headers(self) -> tuple[Header, ...]:
        """How the answer came about, once one begins: a fallback changes the route (FBK-2)."""
        overhead = overhead_header(self.arrived_us, self.first.handed_over_us)
        return (*run_headers(self.runs), *overhead, *self.more_headers)


class Watching:
    """Runs `gone`, which waits for a client to hang up, once it has: a server of ours tells so.

    Another one's word has to be waited for, so there `gone` runs beside an answer that takes a
    while; one that is there within WATCH_AFTER_S never has a task for it.
    """

    def __init__(self, request: Request, gone: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._request, self._gone = request, gone
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if not request.watch(self._begin):
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._gone())

    def cancel(self) -> None:
        if self._timer is None:
            self._request.watch(None)
        else:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


class AtOnce:
    """Writes a stream's pieces in the very calls that bring them, once it has begun.

    To wake a task for each piece costs as much again as to read it and write it.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._chunks: ChunkWriter | None = None

    def begin(self, chunks: ChunkWriter) -> None:
        """Write from now on: all that came before has been written."""
        self._chunks = chunks

    def __call__(self, piece: Delta) -> bool:
        """Returns whether the piece was written; not so where it would have to wait."""
        if self._chunks is None or not self._request.ready():
            return False
        self._request.write_now(self._chunks.piece(0, piece))
        return True


class Calls:
    """Answers the calls of one format through the journey."""

    def __init__(self, ports: Ports, body_limit_bytes: int, form: Format) -> None:
        self._format = form
        self._ports = ports
        self._body_limit_bytes = body_limit_bytes
        self._lookups = Lookups(ports)

    async def __call__(self, request: Request, caller: Caller) -> Response | None:
        arrived_us = self._ports.clock.now_us()
        body = await request.body(self._body_limit_bytes)
        form = self._read(request, body)
        if isinstance(form, Problem):
            return self.failed(errors.of_problem(form))
        answering = await self._admitted(request, caller, form, body, arrived_us)
        if isinstance(answering, Response):
            return answering
        return await self.reply(request, caller, answering)

    async def reply(
        self, request: Request, caller: Caller, answering: Answering
    ) -> Response | None:
        """Answer a call that was accepted."""
        return await self.answer(request, answering)

    def failed(self, failure: Failure, headers: tuple[Header, ...] = ()) -> Response:
        """Returns a failure as this format has it."""
        return failed(failure, headers)

    def failure_body(self, failure: Failure) -> bytes:
        """Returns what the event of a stream that failed says."""
        return errors.openai_body(failure)

    def _read(self, request: Request, body: bytes) -> Form | Problem:
        encoded = encoding_problem(request.headers.get("content-encoding"))
        return encoded or self._format.read(body)

    async def _admitted(
        self, request: Request, caller: Caller, form: Form, body: bytes, arrived_us: int
    ) -> Answering | Response:
        """Returns the accepted call, or the response that says why it isn't."""
        wanted = form.wanted
        asked = read_budget(request.headers, wanted.metadata)
        if isinstance(asked, Problem):
            return self.failed(errors.of_problem(asked))
        if wanted.model not in self._ports.models():
            return self.failed(errors.of_problem(no_such_model(self._ports.models())))
        key = request.headers.get(HEADER)
        weighed = submissions(
            caller,
            wanted,
            asked,
            trace=trace_sent(request.headers),
            patience_ms=patience_ms(request.headers, wanted.stream),
        )
        try:
            admitted = await admitted_once(self._ports, weighed, key, body, request.headers)
        except LedgerUnavailable:
            return self.failed(errors.ledger_unavailable())
        outcome, headers = admitted.outcome, REPLAYED if admitted.replayed else ()
        headers = (*headers, *self._allowance(caller))
        if isinstance(outcome, Failure):
            return self.failed(outcome, headers)
        if isinstance(outcome, Refusal):
            refused = errors.of_refusal(outcome, self._lookups.receipt(outcome.filed))
            return self.failed(refused, headers)
        return Answering(
            runs=outcome,
            form=form,
            more_headers=headers,
            shared=key is not None,
            arrived_us=arrived_us,
        )

    def _allowance(self, caller: Caller) -> tuple[Header, ...]:
        return allowance_headers(self._ports.allowance(caller.tenant_id))

    async def answer(self, request: Request, answering: Answering) -> Response | None:
        """Deliver the runs; a client that goes away before their end cancels them at once (DLV-2).

        Not so where an Idempotency-Key shares them: the client will ask again, or another does.
        """
        watching = Watching(request, lambda: self._cancel_when_gone(request, answering))
        try:
            if not answering.form.wanted.stream:
                return await self.whole(answering)
            once = not (answering.shared or answering.kept)
            at_once = AtOnce(request) if len(answering.runs) == 1 else None
            async with aclosing(self._pieces(answering.runs, once=once, at_once=at_once)) as pieces:
                return await self._stream(request, answering, pieces, watching, at_once)
        except asyncio.CancelledError:  # the server stops, and has waited for as long as it does
            # A client that isn't told so would send it again.
            pending = errors.end_not_recorded(answering.first.request_id)
            return await self._ended_badly(request, answering, pending)
        finally:
            watching.cancel()

    async def _ended_badly(
        self, request: Request, answering: Answering, failure: Failure
    ) -> Response | None:
        """Say why there is no answer: by a status of its own, or by what ends a stream."""
        if not request.sent_start:
            return self.failed(failure, answering.headers)
        await request.write(error_event(self.failure_body(failure)), more=False)
        return None

    def _pieces(
        self, runs: Sequence[Run], *, once: bool = False, at_once: AtOnce | None = None
    ) -> AsyncGenerator[Pieces, None]:
        """Yields what arrives, each batch with its choice's index; `once`: for nobody else."""
        batches = self._ports.journey.batches
        return merged(
            [batches(run, choice, once=once, at_once=at_once) for choice, run in enumerate(runs)]
        )

    async def _cancel_when_gone(self, request: Request, answering: Answering) -> None:
        await request.client_gone()
        if not answering.shared:
            await self._cancel(answering)

    async def _cancel(self, answering: Answering) -> None:
        for run in answering.runs:
            await self._ports.journey.cancel(run)

    async def whole(self, answering: Answering) -> Response:
        """Returns the answer as one body, or why there is none."""
        try:
            ended = await self._gathered(answering.runs)
        except LedgerUnavailable:
            ended = errors.end_not_recorded(answering.first.request_id)
        if isinstance(ended, Failure):
            await self._give_up(answering)
            return self.failed(ended, answering.headers)
        finished = [(gathered, finish_reason) for gathered, finish_reason, _ in ended]
        receipts = self._receipts([filed for _, _, filed in ended])
        return Response(
            body=answering.form.whole(answering.first, finished, receipts),
            headers=answering.headers,
            request_id=answering.first.request_id,
        )

    async def _gathered(self, runs: Sequence[Run]) -> list[tuple[Gathered, str, Filed]] | Failure:
        """Return each choice with its finish reason and receipt, once all are whole; or why one
        is not, as soon as that is known.

        Raises LedgerUnavailable where an end could not be made durable.
        """
        choices = [Gathered() for _ in runs]
        ended: dict[int, tuple[str, Filed]] = {}

        def taken(index: int, batch: Sequence[Delta | Ended]) -> Failure | None:
            last = choices[index].take_all(batch)
            if last is not None:
                outcome = self._judged(runs, index, last)
                if isinstance(outcome, Failure):
                    return outcome
                ended[index] = outcome
            return None

        failure: Failure | None = None
        if len(runs) == 1:
            failure = taken(0, await self._ports.journey.whole(runs[0]))
        else:
            async with aclosing(self._pieces(runs)) as pieces:
                async for index, batch in pieces:
                    failure = taken(index, batch)
                    if failure is not None:
                        break
        if failure is None and len(ended) < len(runs):
            failure = errors.end_not_recorded(runs[0].request_id)
        return failure or [(each, *ended[index]) for index, each in enumerate(choices)]

    async def _stream(
        self, request: Request, answering: Answering, pieces: AsyncIterator[Pieces],
        watching: Watching, at_once: AtOnce | None,
    ) -> Response | None:  # fmt: skip
        """Stream the answer. Headers leave with the first token, so that a failure before it
        still gets its own HTTP status; after it, it is an error event without [DONE] (DLV-5).

        What has arrived at once leaves at once: an event for each piece, in one write. A piece
        that comes by itself is written by `at_once`, from the first text on.
        """
        runs = answering.runs
        chunks: ChunkWriter | None = None
        begun: set[int] = set()
        filed: dict[int, Filed] = {}
        failure: Failure | None = None
        try:
            async for index, batch in pieces:
                if chunks is None:  # now it is known which attempt answers
                    chunks = answering.form.writer(answering.first, len(runs))
                written: list[bytes] = []
                for piece in batch:
                    if isinstance(piece, Ended):
                        ended = self._judged(runs, index, piece)
                        if isinstance(ended, Failure):
                            failure = ended
                            break
                        if index not in begun:
                            written.append(chunks.role(index))
                        finish_reason, filed[index] = ended
                        if len(filed) < len(runs):
                            written.append(chunks.finish(index, finish_reason))
                            break
                        # Whoever hangs up from here on has had the whole answer (DLV-6).
                        watching.cancel()
                        receipts = self._receipts([filed[each] for each in range(len(runs))])
                        written.append(chunks.last(index, finish_reason, receipts))
                    else:
                        if index not in begun and not piece.empty:
                            written.append(chunks.role(index, piece))
                            begun.add(index)
                        written.append(chunks.piece(index, piece))
                part = b"".join(written)
                written.clear()  # while it is written, it is there once
                if part:
                    if not request.sent_start:
                        await _start(request, answering)
                    await request.write(part, more=len(filed) < len(runs))
                    if at_once is not None and begun:
                        at_once.begin(chunks)
                if failure is not None:
                    break
        except LedgerUnavailable:
            failure = errors.end_not_recorded(answering.first.request_id)
        if failure is None and len(filed) < len(runs):
            failure = errors.end_not_recorded(answering.first.request_id)
        if failure is None:
            metrics.responded(self._format.name, 200)
            return None
        await self._give_up(answering)
        return await self._ended_badly(request, answering, failure)

    async def _give_up(self, answering: Answering) -> None:
        """Cancel what still runs for an answer that can't be whole any more."""
        if len(answering.runs) > 1 and not answering.shared:
            await self._cancel(answering)

    def _receipts(self, filed: Sequence[Filed]) -> Receipts:
        return [(each.receipt, self._lookups.receipt(each)) for each in filed]

    def _judged(self, runs: Sequence[Run], index: int, ended: Ended) -> Failure | tuple[str, Filed]:
        """Returns the finish reason and the receipt of a whole answer, else the failure.

        Of several answers another one may have run, so it isn't said that nothing did.
        """
        receipt = ended.filed.receipt
        if receipt.status == "completed" and ended.finish_reason is not None:
            return ended.finish_reason, ended.filed
        receipt_json = self._lookups.receipt(ended.filed)
        code = receipt.terminal_error_code
        request_id = runs[index].request_id
        if ended.nothing_ran and len(runs) == 1:
            return errors.of_nothing_run(
                request_id, receipt.status, code, receipt_json, ended.retry_after_ms
            )
        return errors.of_ending(request_id, receipt.status, code, receipt_json)


async def _start(request: Request, answering: Answering) -> None:
    """Send the status and the headers of a stream."""
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
