"""Drives an accepted request: its attempts one after another or side by side, then its receipt.

An attempt's rows are durable before its bytes leave; nothing that happens here escapes a receipt.
After the first piece has gone to the caller there is no further attempt (DLV-5); one deadline
covers all of them (RTY-2); the loser of a hedge is cancelled and accounted for (HDG-1).
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from gateway import metrics, telemetry
from gateway.attempt import CANCEL_SECONDS, log_fault, lost, outcome_of, stop, unsent
from gateway.clock import Clock
from gateway.desk import UNKNOWN_BOUND_US, Desk
from gateway.losers import judge_losers
from gateway.next_steps import Asker
from gateway.phases import measured
from gateway.policy.attempting import Asked
from gateway.providers.base import Provider
from gateway.providers.outcomes import Completed, Outcome, Rejected, Unknown, error_code, ran
from gateway.route_health import RouteHealth
from gateway.run import HEDGE_LOST, Leg, Run
from gateway.settling import attempt_records, counted, receipt_of, within_cap
from gateway.submission import Delta, Ended, Filed
from gateway.traffic import Traffic
from ledger.errors import LedgerError, RecordRefused
from ledger.records import Receipt, Record
from ledger.store import Appended, LedgerUnavailable, Store

log = logging.getLogger(__name__)

CLOSING_RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""How long an end that is known waits for a ledger that can't be written; then it stays open and
becomes unknown at the next start."""
TRIES_BEFORE_TELLING = 4
"""After so many tries (1.6 s) the caller is told that its receipt is pending, and not kept on."""
LOSER_SECONDS = 2.0
"""How long the receipt of a finished answer waits for a loser to acknowledge its cancel; after it
the loser's end is unknown and its money stays held."""
JITTER_STEPS = 1_001


class Driver:
    """Drives runs; owned by one event loop."""

    def __init__(
        self,
        *,
        desk: Desk,
        store: Store,
        providers: Mapping[str, Provider],
        clock: Clock,
        health: RouteHealth,
        traffic: Traffic,
    ) -> None:
        self._desk, self._store, self._providers, self._clock = desk, store, providers, clock
        self._health = health
        self._asker = Asker(desk, health, traffic)

    async def drive(self, run: Run) -> None:
        """Carry a run to its end, and file it."""
        try:
            await self._attempts(run)
        except asyncio.CancelledError:
            await self._abandon(run, "SHUTDOWN")
        except Exception as fault:  # ours: it must not cost the request its receipt either
            log_fault("driving", run.request_id, fault)
            await self._abandon(run, "GATEWAY_FAULT")
        try:
            filed = await self._close_somehow(run)
        except Exception as fault:  # the ledger's, or ours: the caller must not wait for ever
            log_fault("closing", run.request_id, fault)
            self._leave_open(run)
            run.pieces.append(LedgerUnavailable("the end could not be recorded"))
            return
        finally:
            run.ended.set()
        outcome = run.answering.outcome
        finish_reason = outcome.finish_reason if isinstance(outcome, Completed) else None
        run.pieces.append(
            Ended(
                finish_reason=finish_reason,
                filed=filed,
                nothing_ran=not any(ran(leg.priced().tried.outcome) for leg in run.legs),
                retry_after_ms=outcome.retry_after_ms if isinstance(outcome, Rejected) else None,
            )
        )

    def cancel(self, run: Run, reason: str) -> None:
        """Pass a cancel on to every attempt that runs; the first reason stays."""
        if run.cancel_reason is None:
            run.cancel_reason = reason
            for leg in run.running():
                stop(leg, reason, CANCEL_SECONDS)

    async def _attempts(self, run: Run) -> None:
        budget, weighed = run.weighed.request.budget, run.weighed
        left_us = weighed.decided_at_us + budget.deadline_us - self._clock.now_us()
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(max(0, left_us) / 1e6, self.cancel, run, "DEADLINE_EXCEEDED")
        try:
            hedge_us = self._asker.hedge_delay_us(run)
            if hedge_us is None:
                await self._run(run, run.legs[0])
            else:
                await self._run_hedged(run, hedge_us)
            while (next_leg := await self._following(run)) is not None:
                await self._run(run, next_leg)
        finally:
            alarm.cancel()

    async def _following(self, run: Run) -> Leg | None:
        """Return the attempt that follows those that have ended, ready to be sent; or None."""
        if run.winner is not None or run.cancel_reason is not None:
            return None
        if any(leg.state == "completed" for leg in run.legs) or not self._asker.considers(run):
            return None
        return await self._begin(run, "ended")

    async def _run(self, run: Run, leg: Leg) -> None:
        provider = self._providers[leg.route.provider_kind]
        book, now_us = self._desk.book, self._clock.now_us
        outcome = await outcome_of(
            run, leg, provider, now_us,
            sent=partial(book.sent, leg.hold),
            piece=partial(self._piece, run, leg),
        )  # fmt: skip
        self._ended(run, leg, outcome)

    async def _run_hedged(self, run: Run, delay_us: int) -> None:
        """Run the first attempt, and a second one beside it where it is silent for too long.

        Only a second one that is due has a task: most first ones have answered before.
        """
        due_s, loop = delay_us / 1e6, asyncio.get_running_loop()
        alarm = loop.call_later(due_s, self._hedge_due, run)
        try:
            await self._run(run, run.legs[0])
        finally:
            alarm.cancel()
        if run.hedging is not None:
            await self._one_ended(run)
            await run.hedging

    def _hedge_due(self, run: Run) -> None:
        run.hedging = asyncio.create_task(self._hedge(run), name=f"hedge {run.request_id}")

    async def _hedge(self, run: Run) -> None:
        if run.winner is not None or run.cancel_reason is not None or not run.running():
            return  # it isn't silent any more
        leg = await self._begin(run, "hedge_due")
        if leg is not None:
            await self._run(run, leg)
            await self._one_ended(run)

    async def _one_ended(self, run: Run) -> None:
        """Of two attempts side by side one has ended: the winner's end stops the other one.

        A loser's end is filed, so that its slot returns while the winner still runs.
        """
        left, winner = run.running(), run.winner
        if winner is not None and winner.outcome is not None:
            for leg in left:
                stop(leg, HEDGE_LOST, LOSER_SECONDS)
        elif left:
            await self._file_ended(run)

    async def _begin(self, run: Run, asked: Asked) -> Leg | None:
        """Ask what follows and make it durable; returns the attempt, or None where none follows.

        A loser's or a failed attempt's room is given back first, so that its successor finds it.
        """
        ended = [leg for leg in run.legs if leg.outcome is not None and not leg.filed]
        rows = [row for leg in ended for row in attempt_records(run.weighed, leg.priced())]
        for leg in ended:
            self._release(run, leg)
        jitter = secrets.randbelow(JITTER_STEPS)
        now_us = self._clock.now_us()
        begun, asked_rows = self._asker.ask(run, asked, jitter_permille=jitter, now_us=now_us)
        if begun is not None:
            run.legs.append(begun)
        try:
            stopped = await self._committed((*rows, *asked_rows))
        except LedgerError:
            # Nothing of it is durable, so nothing of it may run: the request ends as it was.
            self._desk.snapshots_lost(asked_rows)
            if begun is not None:
                run.legs.remove(begun)
                self._desk.book.release(begun.hold)
                self._health.unsent(begun.route.route_id, now_us)
            return None
        for each in ended:
            each.filed = True
        if stopped is not None:
            raise stopped
        metrics.step_taken(asked, begun.kind if begun is not None else "none")
        return begun

    async def _committed(self, rows: Sequence[Record]) -> asyncio.CancelledError | None:
        """Commit, and know what became of it also when stopped in between; return the stop.

        Rows that are durable and not known to be would be filed twice.
        """
        committing = asyncio.ensure_future(self._store.commit(rows))
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError as stopped:
            await committing
            return stopped
        return None

    def _piece(self, run: Run, leg: Leg, delta: Delta) -> None:
        if leg.first_piece_us is None:
            leg.first_piece_us = self._clock.now_us()
        leg.tokens += delta.tokens
        if run.winner is None and run.direct:
            self._choose(run, leg)
        if run.winner is leg:
            run.pieces.append(delta)
            if run.pieces.full and leg.attempted is not None:
                run.pieces.hold(leg.attempted)
        elif run.winner is None:
            leg.kept.append(delta)

    def _choose(self, run: Run, winner: Leg) -> None:
        """Make an attempt the answer: its pieces go to the caller, the others are cancelled."""
        run.winner = winner
        run.pieces.extend(winner.kept)
        winner.kept.clear()
        for leg in run.running():
            if leg is not winner:
                stop(leg, HEDGE_LOST, CANCEL_SECONDS)

    def _ended(self, run: Run, leg: Leg, outcome: Outcome) -> None:
        """Take an attempt's end: measured, priced, told to the routes' health."""
        leg.ended_us = self._clock.now_us()
        cap = run.weighed.request.budget.max_output_tokens
        if outcome.usage.output_tokens > cap:
            outcome = self._over_cap(leg, outcome, cap)
        leg.outcome = replace(
            outcome,
            timings=measured(
                outcome.timings,
                decided_at_us=run.weighed.decided_at_us,
                started_at_us=leg.started_us,
                first_piece_us=leg.first_piece_us,
                first_byte_us=run.first_byte_us if run.winner is leg else None,
            ),
        )
        try:
            leg.counted = counted(run.weighed, leg.tried())
        except ValueError as fault:
            self._unusable(run, leg, fault)
        self._health.ended(
            leg.route.route_id,
            leg.state,
            error_code(leg.outcome),
            leg.outcome.retry_after_ms if isinstance(leg.outcome, Rejected) else None,
            evidence=leg.attempt_id,
            now_us=leg.ended_us,
            sent_us=leg.started_us,
        )
        metrics.attempt_ended(leg.kind, leg.route.route_id, leg.outcome.status)
        if run.winner is None and _answers(run, leg.outcome):
            self._choose(run, leg)

    def _over_cap(self, leg: Leg, outcome: Outcome, cap: int) -> Outcome:
        """Tell of more output than the cap; a provider's own count is billed all the same (CST-6).

        An estimate is billed up to the cap alone: nobody has said that more was generated.
        """
        told, its_own = outcome.usage.output_tokens, outcome.usage_source == "provider"
        by = "its provider" if its_own else "our own count"
        log.warning("%s: %d output tokens by %s, cap %d", leg.attempt_id, told, by, cap)
        metrics.usage_over_cap(leg.route.route_id)
        return outcome if its_own else within_cap(outcome, cap)

    def _unusable(self, run: Run, leg: Leg, fault: Exception) -> None:
        log.error("%s reported an unusable end: %s", leg.attempt_id, type(fault).__name__)
        cap = run.weighed.request.budget.max_output_tokens
        leg.outcome = within_cap(lost("UNUSABLE_REPORT", leg), cap)
        leg.counted = counted(run.weighed, leg.tried())

    async def _abandon(self, run: Run, reason: str) -> None:
        """End what runs when the process stops: what was sent is unknown, what was not is not."""
        if run.hedging is not None:
            run.hedging.cancel()
            await asyncio.gather(run.hedging, return_exceptions=True)
        for leg in run.running():
            never_had = leg.started_us is None
            self._ended(run, leg, unsent(reason) if never_had else lost(reason, leg))

    async def _close_somehow(self, run: Run) -> Filed:
        """Close it, without a backend's own report where that can't be recorded."""
        if run.winner is None:
            completed = [leg for leg in run.legs if leg.state == "completed"]
            self._choose(run, completed[0] if completed else run.answering)
        try:
            return await self._close(run)
        except (RecordRefused, ValueError) as fault:
            for leg in run.legs:
                if not leg.filed:
                    self._unusable(run, leg, fault)
            return await self._close(run)

    async def _close(self, run: Run) -> Filed:
        answering, tries = run.answering, [leg.priced() for leg in run.legs]
        receipt = receipt_of(run.weighed, tries, answering.priced(), answering.ended_us)
        rows = [
            row
            for leg in run.legs
            if not leg.filed
            for row in attempt_records(run.weighed, leg.priced())
        ]
        appended = await self._commit_patiently(run, (*rows, receipt))
        for leg in run.legs:
            leg.filed = True
            self._release(run, leg)
        metrics.request_ended(receipt)
        telemetry.request_ended(run, receipt)
        judge_losers(run)
        return filed_as(receipt, appended)

    async def _file_ended(self, run: Run) -> None:
        """File the ends of attempts that have ended before the request does."""
        ended = [leg for leg in run.legs if leg.outcome is not None and not leg.filed]
        rows = [row for leg in ended for row in attempt_records(run.weighed, leg.priced())]
        try:
            stopped = await self._committed(rows)
        except LedgerError:
            return  # they are filed with the receipt
        for leg in ended:
            leg.filed = True
            self._release(run, leg)
        if stopped is not None:
            raise stopped

    def _release(self, run: Run, leg: Leg) -> None:
        """Give back what an ended attempt held; an unknown keeps its money held (LED-6)."""
        if leg.released:
            return
        leg.released = True
        if isinstance(leg.outcome, Unknown):
            self._desk.book.leave_unknown(leg.hold, self._bound_us(run))
        else:
            self._desk.book.settle(leg.hold, leg.cost_pico, at_us=leg.ended_us)

    def _leave_open(self, run: Run) -> None:
        """Hold on to everything whose end isn't in the ledger: at the next start it is unknown."""
        book = self._desk.book
        for leg in run.legs:
            if leg.filed:
                continue
            if leg.released and not isinstance(leg.outcome, Unknown):
                book.hold_unknown_money(leg.hold.tenant_id, leg.hold.cost_pico)
            elif not leg.released:
                book.leave_unknown(leg.hold, self._bound_us(run))

    def _bound_us(self, run: Run) -> int:
        """When a lost attempt is over for certain: as long as it was predicted to take, at most.

        A caller's deadline may be days away, and says nothing of how long a backend is busy.
        """
        weighed = run.weighed
        ends_us = weighed.decided_at_us + weighed.request.budget.deadline_us
        predicted_us = self._clock.now_us() + (weighed.decision.e2e_us or 0)
        return min(ends_us, predicted_us) + UNKNOWN_BOUND_US

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


def _answers(run: Run, outcome: Outcome) -> bool:
    """Return whether an end is the answer: of a caller that doesn't stream, the first valid one."""
    if not isinstance(outcome, Completed):
        return False
    return run.direct or outcome.schema_valid is not False


def filed_as(receipt: Receipt, appended: tuple[Appended, ...]) -> Filed:
    """Return a receipt with its place in the chain; it was the last of what was appended."""
    last = appended[-1]
    return Filed(
        receipt=receipt, seq=last.seq, prev_hash=last.prev_hash, entry_hash=last.entry_hash
    )
