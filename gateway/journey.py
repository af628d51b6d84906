"""One request's way: count -> decide -> reserve -> attempts -> settle -> reply.

Each accepted request is driven by a task of its own (`gateway.driving`), so that its receipt is
filed whatever becomes of the connection that asked for it. Nothing leaves for a provider before its
reservation is durable, and a receipt is durable before it is handed on (LED-1, LED-4, LED-6).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import cast

import msgspec

from gateway import metrics, telemetry
from gateway.clock import Clock
from gateway.desk import Considered, Desk, Weighed
from gateway.driving import Driver, filed_as
from gateway.ids import RANDOM_BYTES
from gateway.ids import request_id as make_request_id
from gateway.piece_log import AtOnce, Piece, PieceLog
from gateway.policy.reasons import REASONS
from gateway.policy.values import InferenceRequest
from gateway.probing import Prober
from gateway.providers.base import Provider
from gateway.randomness import random_bytes
from gateway.route_health import RouteHealth
from gateway.run import Run, primary_leg
from gateway.settling import refusal_receipt
from gateway.submission import Delta, Ended, Refusal, Submission
from gateway.tokenizers import count_chat_for
from gateway.traffic import Traffic
from ledger.records import CapacitySnapshotRecord, IdempotencyKey, Record
from ledger.store import LedgerUnavailable, Store

CLIENT_GONE = "CLIENT_GONE"
"""The caller's connection closed before its answer was whole."""
CLIENT_CANCELLED = "CLIENT_CANCELLED"
"""The caller asked for the cancel by name."""


class Journey:
    """Carries requests; owned by one event loop."""

    def __init__(
        self, *, desk: Desk, store: Store, providers: Mapping[str, Provider], clock: Clock
    ) -> None:
        self.desk = desk
        self.health = RouteHealth(desk.book, desk.configuration.policy, store.append)
        self._store = store
        self._clock = clock
        self._traffic = Traffic()
        self._driver = Driver(
            desk=desk,
            store=store,
            providers=providers,
            clock=clock,
            health=self.health,
            traffic=self._traffic,
        )
        self._prober = Prober(desk.book, providers)
        self._driving: set[asyncio.Task[None]] = set()
        self._runs: dict[str, Run] = {}

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
        trace = submissions[0].trace
        while len(taken) < len(submissions):  # without an await: none is weighed in between
            if taken:
                request = msgspec.structs.replace(request, request_id=self._new_id())
            now_us = self._clock.now_us()
            weighed = self.desk.weigh(request, now_us, trace_id=trace.trace_id if trace else None)
            self._traffic.request(now_us)
            self._probe(weighed, now_us)
            if weighed.hold is None or weighed.route is None:
                return await self._refuse(weighed, submissions[0], withdrawn=taken)
            self.health.sent(weighed.route.route_id, now_us)
            taken.append(weighed)
        rows = [row for weighed in taken for row in weighed.records]
        try:
            await self._store.commit((*rows, *_claim(taken[0], submissions[0])))
        except BaseException:
            for weighed in taken:
                if weighed.hold is not None:
                    self.desk.book.release(weighed.hold)
                    self.health.unsent(weighed.hold.route_id, self._clock.now_us())
            self.desk.snapshots_lost(tuple(rows))
            raise
        return tuple(map(self._begun, taken, submissions))

    def _probe(self, weighed: Weighed, now_us: int) -> None:
        """Have fresh snapshots asked for, of the routes that were judged by stale ones (ADM-6)."""
        configuration = self.desk.configuration
        self._prober.judged(
            configuration.routes,
            (each.route_id for each in weighed.decision.candidates),
            now_us=now_us,
            max_age_us=configuration.policy.snapshot_max_age_us,
        )

    def _new_id(self) -> str:
        return make_request_id(self._clock.now_us(), random_bytes(RANDOM_BYTES))

    def _begun(self, weighed: Weighed, submission: Submission) -> Run:
        """Return a durable, accepted request's run, under way."""
        run = Run(
            request_id=weighed.request.request_id,
            created_us=weighed.decided_at_us,
            logical_model=weighed.request.logical_model,
            submission=submission,
            weighed=weighed,
            legs=[primary_leg(weighed)],
            # One attempt, or one that streams: what has gone to the caller can't be taken back.
            direct=submission.stream or self.desk.configuration.policy.attempts.limit == 1,
        )
        self._runs[run.request_id] = run
        run.driving = asyncio.get_running_loop().create_task(self._drive(run))
        self._driving.add(run.driving)
        return run

    async def deliver(self, run: Run) -> AsyncIterator[Delta | Ended]:
        """Yield the pieces as they arrive, then Ended once; see `batches`."""
        async for _, batch in self.batches(run):
            for piece in batch:
                yield piece

    async def batches(
        self, run: Run, choice: int = 0, *, once: bool = False, at_once: AtOnce | None = None
    ) -> AsyncGenerator[tuple[int, Sequence[Delta | Ended]], None]:
        """Yield the pieces as they arrive, those together that are there at once, Ended last, each
        batch with the number that its caller gave the run.

        `once`: nobody reads them again, so that they are let go once the next ones are asked for.
        `at_once` is asked first for a piece that comes while the next one is waited for; what it
        wrote is not among them. Raises LedgerUnavailable instead of Ended where the end could not
        be made durable.
        """
        log = run.pieces
        reader = log.reader(once=once, at_once=at_once)
        try:
            while True:
                batch, fault = _until_fault(log, await reader.next())
                if batch:
                    yield choice, batch
                    if isinstance(batch[-1], Ended):
                        return
                if fault is not None:
                    raise fault
                if run.first_byte_us is None:
                    # The caller asks for more once it has written the first pieces to its socket.
                    run.first_byte_us = self._clock.now_us()
        finally:
            reader.leave()

    async def whole(self, run: Run) -> Sequence[Delta | Ended]:
        """Return all pieces at once, Ended last, for a caller that doesn't stream.

        Raises LedgerUnavailable where the end could not be made durable.
        """
        pieces, fault = _until_fault(run.pieces, await run.pieces.whole())
        if fault is not None:
            raise fault
        return pieces

    async def cancel(self, run: Run, reason: str = CLIENT_GONE) -> None:
        """Pass a cancel on to the backends; the receipt says whether it was acknowledged."""
        self._driver.cancel(run, reason)

    async def cancel_by_name(self, tenant_id: str, request_id: str, wait_s: float) -> bool | None:
        """Cancel a tenant's running request; returns whether its receipt is there within `wait_s`.

        None: no such request of this tenant is running. Asked again, it waits for the same end.
        """
        run = self._runs.get(request_id)
        if run is None or run.weighed.request.tenant_id != tenant_id:
            return None
        self._driver.cancel(run, CLIENT_CANCELLED)
        try:
            async with asyncio.timeout(wait_s):
                await run.ended.wait()
        except TimeoutError:
            return False
        return True

    async def drain(self, seconds: float) -> None:
        """Wait for what runs, then cancel what is left and wait for its receipts."""
        await self._prober.stop()
        if self._driving:
            await asyncio.wait(self._driving, timeout=seconds)
        for task in self._driving:
            task.cancel()
        await asyncio.gather(*self._driving, return_exceptions=True)

    def in_flight(self) -> int:
        return len(self._driving)

    async def consider(self, submission: Submission) -> Considered:
        """Return what would be decided on it now; nothing is held, recorded or run."""
        request = await self._measured(submission)
        return self.desk.consider(request, self._clock.now_us())

    async def _measured(self, submission: Submission) -> InferenceRequest:
        revisions = self.desk.configuration.tokenizer_revisions
        counts = await count_chat_for(revisions, submission.messages, submission.tools_json)
        return self.desk.request(submission, counts, self._new_id())

    async def _refuse(
        self, weighed: Weighed, submission: Submission, withdrawn: Sequence[Weighed] = ()
    ) -> Refusal:
        """File the refusal. It never takes an Idempotency-Key: nothing ran under it (LED-5).

        `withdrawn` were weighed with it and are taken back; the snapshots that they saw are filed.
        """
        for each in reversed(withdrawn):
            if each.hold is not None:
                self.desk.book.withdraw(each.hold)
                self.health.unsent(each.hold.route_id, self._clock.now_us())
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
        telemetry.request_refused(submission, receipt)
        return Refusal(
            request_id=receipt.request_id,
            reason_code=code,
            http_status=decision.http_status,
            retryable=REASONS[code].retryable,
            retry_after_ms=decision.retry_after_ms,
            limits=tuple((item.name, item.limit, item.observed) for item in decision.limits),
            conditional_on=decision.conditional_on,
            caller_action=REASONS[code].caller_action,
            filed=filed_as(receipt, appended),
        )

    async def _drive(self, run: Run) -> None:
        try:
            await self._driver.drive(run)
        finally:
            del self._runs[run.request_id]
            if run.driving is not None:
                self._driving.discard(run.driving)
                run.driving = None


def _until_fault(
    log: PieceLog, pieces: Sequence[Piece]
) -> tuple[Sequence[Delta | Ended], LedgerUnavailable | None]:
    """Return a log's pieces up to the end that could not be recorded, and that one if there is
    one."""
    if log.faulted:
        for place, piece in enumerate(pieces):
            if isinstance(piece, LedgerUnavailable):
                return cast(Sequence[Delta | Ended], pieces[:place]), piece
    return cast(Sequence[Delta | Ended], pieces), None


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
