"""One request's way: count -> decide -> reserve -> attempt -> settle -> reply.

Each accepted request is driven by a task of its own, so that its receipt is filed whatever becomes
of the connection that asked for it. Nothing leaves for a provider before the reservation is
durable, and a receipt is durable before it is handed on (LED-1, LED-4, LED-6).
"""

import asyncio
import itertools
import logging
import secrets
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from gateway import metrics
from gateway.clock import Clock
from gateway.desk import UNKNOWN_BOUND_US, Desk, Weighed
from gateway.ids import request_id as make_request_id
from gateway.phases import measured
from gateway.piece_log import PieceLog
from gateway.policy.reasons import REASONS
from gateway.policy.values import InferenceRequest
from gateway.providers.base import Attempted, Call, Provider
from gateway.providers.outcomes import Completed, Outcome, Timings, Unknown
from gateway.settling import closing_records, refusal_receipt
from gateway.submission import Delta, Ended, Filed, Refusal, Submission
from gateway.tokenizers import count_chat_for
from ledger.errors import LedgerError, RecordRefused
from ledger.rates import Usage
from ledger.records import CapacitySnapshotRecord, IdempotencyKey, Receipt, Record
from ledger.store import Appended, LedgerUnavailable, Store

log = logging.getLogger(__name__)

CLOSING_RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""How long an end that is known waits for a ledger that can't be written; then it stays open and
becomes unknown at the next start."""
TRIES_BEFORE_TELLING = 4
"""After so many tries (1.6 s) the caller is told that its receipt is pending, and not kept on."""
CANCEL_SECONDS = 30.0
"""How long a backend may take to acknowledge a cancel; after it the attempt's end is unknown."""


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """An accepted request on its way. The API reads it; only the journey changes it."""

    request_id: str
    created_us: int
    logical_model: str
    route_id: str
    identity_id: str
    fingerprint: str
    simulated: bool
    degraded_from: str | None
    submission: Submission = field(repr=False)
    weighed: Weighed = field(repr=False)
    pieces: PieceLog = field(default_factory=PieceLog, repr=False)
    attempt: Attempted | None = field(default=None, repr=False)
    started_us: int | None = None
    first_piece_us: int | None = None
    first_byte_us: int | None = None
    tokens: int = 0
    cancel_reason: str | None = None
    patience: asyncio.Timeout | None = field(default=None, repr=False)

    def kept_output(self) -> tuple[bool, int]:
        """Return whether the answer is over, and how many characters of it memory holds."""
        return self.pieces.ended, self.pieces.size_chars


class Journey:
    """Carries requests; owned by one event loop."""

    def __init__(
        self, *, desk: Desk, store: Store, providers: Mapping[str, Provider], clock: Clock
    ) -> None:
        self.desk = desk
        self._store = store
        self._providers = providers
        self._clock = clock
        self._driving: set[asyncio.Task[None]] = set()

    async def admit(self, submission: Submission) -> Refusal | Run:
        """Return the refusal or the accepted run, each durable in the ledger.

        Raises LedgerUnavailable where nothing can be recorded; then nothing is held or run.
        """
        admitted = await self.admit_together((submission,))
        return admitted if isinstance(admitted, Refusal) else admitted[0]

    async def admit_together(self, submissions: Sequence[Submission]) -> Refusal | tuple[Run, ...]:
        """Return as many runs as there are submissions of one prompt, or the first refusal.

        All are weighed before anything is recorded: where one is refused, none was accepted, and
        the refusal's receipt stands for all. Raises as `admit` does.
        """
        request = await self._measured(submissions[0])
        taken: list[Weighed] = []
        while len(taken) < len(submissions):  # without an await: none is weighed in between
            if taken:
                request = msgspec.structs.replace(request, request_id=self._new_id())
            weighed = self.desk.weigh(request, self._clock.now_us())
            if weighed.hold is None or weighed.route is None:
                return await self._refuse(weighed, withdrawn=taken)
            taken.append(weighed)
        rows = [row for weighed in taken for row in weighed.records]
        try:
            await self._store.commit((*rows, *_claim(taken[0], submissions[0])))
        except BaseException:
            for weighed in taken:
                if weighed.hold is not None:
                    self.desk.book.settle(weighed.hold, 0)
            self.desk.snapshots_lost(tuple(rows))
            raise
        return tuple(map(self._begun, taken, submissions))

    def _new_id(self) -> str:
        return make_request_id(self._clock.now_us(), secrets.token_bytes(10))

    def _begun(self, weighed: Weighed, submission: Submission) -> Run:
        """Return a durable, accepted request's run, under way."""
        route = weighed.route
        if route is None:
            raise ValueError("only an accepted request runs")
        run = Run(
            request_id=weighed.request.request_id,
            created_us=weighed.decided_at_us,
            logical_model=weighed.request.logical_model,
            route_id=route.route_id,
            identity_id=route.identity_id,
            fingerprint=("sim-" if route.provider_kind == "simulator" else "") + route.identity_id,
            simulated=route.provider_kind == "simulator",
            degraded_from=weighed.decision.degraded_from,
            submission=submission,
            weighed=weighed,
        )
        task = asyncio.create_task(self._drive(run), name=f"journey {run.request_id}")
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)
        return run

    async def deliver(self, run: Run) -> AsyncIterator[Delta | Ended]:
        """Yield the pieces as they arrive, then Ended once.

        Raises LedgerUnavailable instead of Ended where the end could not be made durable.
        """
        for index in itertools.count():
            piece = await run.pieces.piece(index)
            if isinstance(piece, LedgerUnavailable):
                raise piece
            yield piece
            if isinstance(piece, Ended):
                return
            if run.first_byte_us is None:
                # The caller asks for more once it has written the first piece to its socket.
                run.first_byte_us = self._clock.now_us()

    async def cancel(self, run: Run) -> None:
        """Pass a cancel on to the backend; the receipt says whether it was acknowledged."""
        self._cancel(run, "CLIENT_GONE")

    async def drain(self, seconds: float) -> None:
        """Wait for what runs, then cancel what is left and wait for its receipts."""
        if self._driving:
            await asyncio.wait(self._driving, timeout=seconds)
        for task in self._driving:
            task.cancel()
        await asyncio.gather(*self._driving, return_exceptions=True)

    def in_flight(self) -> int:
        return len(self._driving)

    async def _measured(self, submission: Submission) -> InferenceRequest:
        configuration = self.desk.configuration
        revisions = configuration.tokenizer_revisions
        counts = await count_chat_for(revisions, submission.messages, submission.tools_json)
        return InferenceRequest(
            request_id=self._new_id(),
            tenant_id=submission.caller.tenant_id,
            logical_model=submission.logical_model,
            priority=submission.priority,
            budget=self.desk.budget(submission, submission.caller.tenant_id),
            input_tokens=counts,
            required_capabilities=submission.required_capabilities,
            allowed_regions=submission.allowed_regions,
            quality_floor_milli=submission.quality_floor_milli,
            side_effects=submission.side_effects,
            user_path=submission.user_path,
            task_type=submission.task_type,
            session_id=submission.session_id,
            key_id=submission.caller.key_id,
            tags=submission.tags,
        )

    async def _refuse(self, weighed: Weighed, withdrawn: Sequence[Weighed] = ()) -> Refusal:
        """File the refusal. It never takes an Idempotency-Key: nothing ran under it (LED-5).

        `withdrawn` were weighed with it and are taken back; the snapshots that they saw are filed.
        """
        for each in reversed(withdrawn):
            if each.hold is not None:
                self.desk.book.withdraw(each.hold)
        decision = weighed.decision
        code = decision.reason_code or "INVALID_REQUEST"
        receipt = refusal_receipt(weighed, self._clock.now_us())
        seen = [
            row
            for each in withdrawn
            for row in each.records
            if isinstance(row, CapacitySnapshotRecord)
        ]
        try:
            appended = await self._store.commit((*seen, *weighed.records, receipt))
        except BaseException:
            self.desk.snapshots_lost((*seen, *weighed.records))
            raise
        metrics.request_ended(receipt)
        return Refusal(
            request_id=receipt.request_id,
            reason_code=code,
            http_status=decision.http_status,
            retryable=REASONS[code].retryable,
            retry_after_ms=decision.retry_after_ms,
            limits=tuple((item.name, item.limit, item.observed) for item in decision.limits),
            conditional_on=decision.conditional_on,
            caller_action=REASONS[code].caller_action,
            filed=_filed(receipt, appended),
        )

    async def _drive(self, run: Run) -> None:
        """Run the attempt to its end and file it; nothing that happens here escapes a receipt."""
        finish_reason = None
        try:
            outcome = await self._attempt(run)
        except asyncio.CancelledError:
            outcome = _lost("SHUTDOWN", run)
        except Exception as fault:  # an adapter's fault must not cost the request its receipt
            # Without its message: that could quote a prompt or an answer (SEC-1).
            where = "".join(traceback.format_tb(fault.__traceback__))
            kind = type(fault).__name__
            log.error("%s broke the adapter of %s.0\n%s", kind, run.request_id, where)
            outcome = _lost("ADAPTER_FAULT", run)
        if isinstance(outcome, Completed):
            finish_reason = outcome.finish_reason
        try:
            filed = await self._close_somehow(run, outcome)
        except LedgerError as fault:
            log.error(
                "the end of %s is not in the ledger: %s", run.request_id, type(fault).__name__
            )
            self._leave_unknown(run)
            run.pieces.append(LedgerUnavailable("the end could not be recorded"))
            return
        run.pieces.append(Ended(finish_reason=finish_reason, filed=filed))

    async def _attempt(self, run: Run) -> Outcome:
        weighed, submission = run.weighed, run.submission
        route = weighed.route
        if route is None:
            raise ValueError("only an accepted request is attempted")
        attempt = self._providers[route.provider_kind].start(
            Call(
                attempt_id=f"{run.request_id}.0",
                route=route,
                tenant_id=weighed.request.tenant_id,
                priority=weighed.request.priority,
                input_tokens=weighed.decision.input_tokens,
                max_output_tokens=weighed.request.budget.max_output_tokens,
                messages=submission.messages,
                schema=submission.schema,
                tools_json=submission.tools_json,
                parameters=submission.parameters,
                ignore_eos=submission.ignore_eos,
                seed=submission.seed,
            )
        )
        run.attempt, run.started_us = attempt, self._clock.now_us()
        if weighed.hold is not None:
            self.desk.book.sent(weighed.hold, run.started_us)
        loop = asyncio.get_running_loop()
        ends_at_us = weighed.decided_at_us + weighed.request.budget.deadline_us
        left_s = max(0, ends_at_us - run.started_us) / 1e6
        alarm = loop.call_later(left_s, self._cancel, run, "DEADLINE_EXCEEDED")
        if run.cancel_reason is not None:
            attempt.cancel(run.cancel_reason)
        outcome: Outcome | None = None
        patience = asyncio.timeout(CANCEL_SECONDS if run.cancel_reason is not None else None)
        try:
            async with patience:
                run.patience = patience
                async for event in attempt.events():
                    if isinstance(event, Outcome):
                        outcome = event
                        break
                    if run.first_piece_us is None:
                        run.first_piece_us = self._clock.now_us()
                    run.tokens += event.tokens
                    run.pieces.append(event)
        except TimeoutError:
            if not patience.expired():
                raise
            return _lost("CANCEL_NOT_ACKNOWLEDGED", run)
        finally:
            alarm.cancel()
            run.patience = None
        return outcome or _lost("STREAM_WITHOUT_END", run)

    def _cancel(self, run: Run, reason: str) -> None:
        if run.cancel_reason is None:
            run.cancel_reason = reason
            if run.attempt is not None:
                run.attempt.cancel(reason)
            if run.patience is not None:
                run.patience.reschedule(asyncio.get_running_loop().time() + CANCEL_SECONDS)

    async def _close_somehow(self, run: Run, outcome: Outcome) -> Filed:
        """Close it, without the backend's own report where that can't be priced or recorded."""
        try:
            return await self._close(run, outcome)
        except (RecordRefused, ValueError) as fault:
            log.error("%s reported an unusable end: %s", run.request_id, type(fault).__name__)
            return await self._close(run, _lost("UNUSABLE_REPORT", run))

    async def _close(self, run: Run, outcome: Outcome) -> Filed:
        weighed = run.weighed
        timings = measured(
            outcome.timings,
            decided_at_us=weighed.decided_at_us,
            started_at_us=run.started_us,
            first_piece_us=run.first_piece_us,
            first_byte_us=run.first_byte_us,
        )
        rows, receipt = closing_records(
            weighed,
            replace(outcome, timings=timings),
            self._clock.now_us(),
        )
        appended = await self._commit_patiently(run, rows)
        if isinstance(outcome, Unknown):
            self._leave_unknown(run)
        elif weighed.hold is not None:
            self.desk.book.settle(weighed.hold, receipt.cost_total_pico)
        metrics.request_ended(receipt)
        return _filed(receipt, appended)

    def _leave_unknown(self, run: Run) -> None:
        """Keep the money held; slot and KV return when the declared bound has passed (LED-6)."""
        weighed = run.weighed
        if weighed.hold is not None:
            deadline_us = weighed.request.budget.deadline_us
            bound_us = weighed.decided_at_us + deadline_us + UNKNOWN_BOUND_US
            self.desk.book.leave_unknown(weighed.hold, bound_us)

    async def _commit_patiently(self, run: Run, rows: tuple[Record, ...]) -> tuple[Appended, ...]:
        """Try until the ledger takes the rows; the caller is told early that its end is pending."""
        for tries, delay in enumerate(CLOSING_RETRY_SECONDS, start=1):
            try:
                return await self._store.commit(rows)
            except LedgerUnavailable:
                if tries == TRIES_BEFORE_TELLING:
                    run.pieces.append(LedgerUnavailable("the end could not be recorded yet"))
                await asyncio.sleep(delay)
        return await self._store.commit(rows)


def _claim(weighed: Weighed, submission: Submission) -> tuple[Record, ...]:
    """Return the row that ties the caller's Idempotency-Key to this request, if it sent one."""
    if submission.claim is None:
        return ()
    return (
        IdempotencyKey(
            tenant_id=weighed.request.tenant_id,
            key_mac=submission.claim.key_mac,
            body_mac=submission.claim.body_mac,
            request_id=weighed.request.request_id,
            claimed_at_us=weighed.decided_at_us,
        ),
    )


def _lost(reason: str, run: Run) -> Unknown:
    """Return the outcome of an attempt that was lost sight of: unknown, never failed (PRV-2)."""
    return Unknown(
        reason=reason,
        usage=Usage(input_tokens=run.weighed.decision.input_tokens, output_tokens=run.tokens),
        usage_source="counted",
        timings=Timings(),
    )


def _filed(receipt: Receipt, appended: tuple[Appended, ...]) -> Filed:
    last = appended[-1]
    return Filed(
        receipt=receipt, seq=last.seq, prev_hash=last.prev_hash, entry_hash=last.entry_hash
    )
