"""Performs an operation wherever it is asked for: in the server, beside it, or without one.

One process owns the ledger. In the server's own process its executor does it; in another process
the server does it over its local socket; where none runs, this process takes the ledger's lock.
"""

import asyncio
import os
from pathlib import Path

from gateway.clock import Clock, SystemClock
from gateway.operations import local_socket
from gateway.operations.base import Actor, Done, Operation, Refused, Seen
from gateway.operations.executor import Executor, unavailable
from gateway.operations.planning import conflict, prepare
from ledger.errors import LedgerInUse
from ledger.reading import connect_read_only
from ledger.rollups.projection import Rollups
from ledger.store import LedgerUnavailable, RecordRefused, Store

WAIT_SECONDS = 120.0

_serving: dict[Path, Executor] = {}  # of this process, by the ledger that it owns


def serve(ledger: Path, executor: Executor) -> None:
    """Have this process's operations on `ledger` done by its running server."""
    _serving[ledger.resolve()] = executor


def unserve(ledger: Path) -> None:
    _serving.pop(ledger.resolve(), None)


def command_actor() -> Actor:
    """Whoever runs a command: who can write the ledger's file owns it, so an admin."""
    return Actor(name=local_socket.user_name(os.geteuid()), role="admin", via="command")


def perform(
    ledger: Path, operation: Operation, actor: Actor, *, clock: Clock | None = None
) -> Done | Refused:
    """Return what was done, durable, or why nothing was. Not to be called on the event loop.

    Raises LedgerError where there is no usable ledger.
    """
    executor = _serving.get(ledger.resolve())
    if executor is not None:
        future = asyncio.run_coroutine_threadsafe(executor.perform(operation, actor), executor.loop)
        return future.result(WAIT_SECONDS)
    try:
        return _alone(ledger, operation, actor, clock or SystemClock())
    except LedgerInUse as taken:
        answer = local_socket.ask(ledger, operation, timeout_s=WAIT_SECONDS)
        if answer is None:
            raise taken from None
        return answer


def _alone(ledger: Path, operation: Operation, actor: Actor, clock: Clock) -> Done | Refused:
    with Store.open(ledger, projections=(Rollups(),)) as store:
        connection = connect_read_only(ledger)
        try:
            seen = Seen(connection=connection, now_us=clock.now_us(), actor=actor)
            prepared = prepare(operation, seen)
        finally:
            connection.close()
        if isinstance(prepared, Refused):
            return prepared
        try:
            store.append(prepared.records).result()
        except RecordRefused:
            return conflict(operation)
        except LedgerUnavailable as problem:
            return unavailable(problem)
        return prepared.done
