"""Performs operations in the running server, each alone, on its event loop."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence

from gateway.clock import Clock
from gateway.operations.base import Actor, Done, Operation, Refused, Seen
from gateway.operations.planner import Planner
from gateway.operations.planning import Prepared, conflict, prepare
from ledger.reading import READ_FAULTS
from ledger.records import Record
from ledger.store import LedgerUnavailable, RecordRefused, Store

PLANS_LIMIT = 3  # of one operation, where others are performed meanwhile


class Executor:
    """Plans in a thread or, what takes long, in a process; commits; then has the server follow."""

    def __init__(
        self,
        *,
        store: Store,
        reader: Callable[[], sqlite3.Connection],
        clock: Clock,
        apply: Callable[[Sequence[Record]], Awaitable[None]],
        planner: Planner,
    ) -> None:
        self._store, self._reader, self._clock, self._apply = store, reader, clock, apply
        self._planner = planner
        self._turn = asyncio.Lock()
        self._performed = 0  # operations so far: a plan stands on the ledger as it was
        self.loop = asyncio.get_running_loop()

    async def perform(self, operation: Operation, actor: Actor) -> Done | Refused:
        """Return what was done, durable and in force, or why nothing was.

        What takes long is planned while others are done, and planned again where one was: a drain
        or a key's revocation never waits for a plan.
        """
        for _ in range(PLANS_LIMIT):
            async with self._turn:
                prepared = await asyncio.to_thread(self._prepared, operation, actor)
                if prepared is not None:
                    return await self._done(operation, prepared)
                planned_at = self._performed
            prepared = await self._planner.prepare(operation, actor, self._clock.now_us())
            async with self._turn:
                if planned_at == self._performed or isinstance(prepared, Refused):
                    return await self._done(operation, prepared)
        return conflict(operation)

    async def _done(self, operation: Operation, prepared: Prepared | Refused) -> Done | Refused:
        if isinstance(prepared, Refused):
            return prepared
        try:
            await self._store.commit(prepared.records)
        except RecordRefused:
            return conflict(operation)
        except LedgerUnavailable as problem:
            return unavailable(problem)
        self._performed += 1
        await self._apply(prepared.records)
        return prepared.done

    async def close(self) -> None:
        """End the planning process; an operation that is being planned is refused."""
        await self._planner.close()

    def _prepared(self, operation: Operation, actor: Actor) -> Prepared | Refused | None:
        """What the operation comes to; None where to find out takes long."""
        try:
            seen = Seen(connection=self._reader(), now_us=self._clock.now_us(), actor=actor)
            return None if operation.takes_long(seen) else prepare(operation, seen)
        except READ_FAULTS as fault:
            return unavailable(LedgerUnavailable(f"the ledger can't be read ({fault})"))


def unavailable(problem: LedgerUnavailable) -> Refused:
    return Refused(
        code="LEDGER_UNAVAILABLE",
        message=f"Nothing was written: {problem}. Try again when the ledger is there again.",
    )
