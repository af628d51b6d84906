"""The ledger's only writer: one thread, one connection, group commit (LED-4, LED-6, LED-7).

A commit takes whatever was queued while the last one ran, and waits for no company. Callers get
their records' places in the chain when those are durable, and not before.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ledger.chain import Head
from ledger.errors import WRITE_FAULTS, LedgerNotReady, LedgerUnavailable, RecordRefused
from ledger.lock import LedgerLock
from ledger.records import Record
from ledger.statements import Appended
from ledger.write_ahead import copy_log
from ledger.writer import Outcome, Projection, Writer

__all__ = ["Appended", "LedgerUnavailable", "Projection", "RecordRefused", "Store"]

QUEUE_LIMIT_ROWS = 65_536
BATCH_LIMIT_ROWS = 2_048
IDLE_WAIT_S = 0.2  # quiet time before the log is checkpointed
RETRY_WAIT_S = 1.0  # between two looks at a failing disk
CLOSE_LIMIT_S = 30.0

Places = tuple[Appended, ...]
Done = tuple["asyncio.Future[Places]", Places | Exception]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """A running store as health shows it. `fault` is a code of `errors.WRITE_FAULTS`."""

    healthy: bool
    queued_rows: int
    queue_limit_rows: int
    fault: str | None
    last_error: str | None
    since_checkpoint_s: float | None  # None: none yet since the start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """One caller's records, and where the caller waits: in a thread, or on an event loop."""

    records: Sequence[Record]
    future: "Future[Places] | asyncio.Future[Places]"


class Store:
    """Appends records to the ledger. Made by `Store.open`, from any thread; used by all."""

    def __init__(self, path: Path, lock: LedgerLock, writer: Writer) -> None:
        self.path = path
        self._lock = lock
        self._writer = writer
        self._queue: deque[_Pending] = deque()
        self._queued_rows = 0
        self._arriving: dict[asyncio.AbstractEventLoop, list[_Pending]] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._last_error: str | None = None
        self._fault: str | None = None
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="ledger-checkpoint")
        self._copied: Future[int] | None = None
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path | str, *, projections: Sequence[Projection] = ()) -> "Store":
        """The store of the migrated ledger at `path`, owned by this process from now on.

        LedgerInUse where another process (or another Store) owns it; LedgerNotReady,
        TriggersDiffer or LedgerDamaged where it must not be written to.
        """
        path = Path(path)
        if not path.exists():
            raise LedgerNotReady(str(path), "there is no such file")
        lock = LedgerLock.take(path)
        try:
            return cls(path, lock, Writer(path, projections))
        except BaseException:
            lock.release()
            raise

    @property
    def head(self) -> Head:
        """The chain's end as of the last durable commit."""
        return self._writer.head

    @property
    def healthy(self) -> bool:
        """Whether the last write was durable and the writer lives: what /readyz asks."""
        return self._last_error is None and self._thread.is_alive() and not self._closing

    @property
    def last_error(self) -> str | None:
        """What failed last, None when a later write went well."""
        return self._last_error

    @property
    def fault(self) -> str | None:
        """The code of what failed last, None when a later write went well."""
        return None if self._last_error is None else self._fault

    @property
    def queued_rows(self) -> int:
        return self._queued_rows

    def status(self) -> StoreStatus:
        """How the writer is, for health: what waits, what failed last, when it checkpointed."""
        at_s = self._writer.checkpointed_at_s
        return StoreStatus(
            healthy=self.healthy,
            queued_rows=self._queued_rows,
            queue_limit_rows=QUEUE_LIMIT_ROWS,
            fault=self.fault,
            last_error=self._last_error,
            since_checkpoint_s=None if at_s is None else time.monotonic() - at_s,
        )

    def append(self, records: Sequence[Record]) -> "Future[Places]":
        """A future of the records' places, set when they are durable: all of them, in order.

        It fails with RecordRefused (these records can't stand) or LedgerUnavailable (none can).
        """
        future: Future[Places] = Future()
        future.set_running_or_notify_cancel()  # what is queued is written: it can't be cancelled
        self._enqueue([_Pending(records=records, future=future)])
        return future

    async def commit(self, records: Sequence[Record]) -> Places:
        """The records' places, once durable. Raises RecordRefused or LedgerUnavailable.

        A caller that is cancelled while it waits has its records written all the same.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Places] = loop.create_future()
        pending = _Pending(records=records, future=future)
        if (arriving := self._arriving.get(loop)) is not None:
            arriving.append(pending)
        else:
            self._arriving[loop] = [pending]
            loop.call_soon(self._hand_over, loop)
        return await future

    def flush(self) -> None:
        """Returns when everything appended before is durable or has failed."""
        self.append(()).result()

    def close(self) -> None:
        """Writes what is queued, closes the file, and gives up the ledger. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_LIMIT_S)
        if self._thread.is_alive():
            raise LedgerUnavailable(f"the writer didn't stop within {CLOSE_LIMIT_S:.0f} s")

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Queues what the callers of one turn of an event loop have asked for, together.

        A writer that is woken for each of them takes the interpreter from the others each time,
        and then has a commit for each.
        """
        self._enqueue(self._arriving.pop(loop))

    def _enqueue(self, arriving: Sequence[_Pending]) -> None:
        with self._changed:
            for pending in arriving:
                refusal = self._refusal(len(pending.records))
                if refusal is None:
                    self._queue.append(pending)
                    self._queued_rows += len(pending.records)
                elif not pending.future.done():
                    pending.future.set_exception(refusal)
            self._changed.notify()

    def _refusal(self, rows: int) -> LedgerUnavailable | None:
        """Why so many rows can't be queued now; None where they can."""
        if self._closing or not self._thread.is_alive():
            return LedgerUnavailable("the ledger is closed")
        if self._queued_rows + rows > QUEUE_LIMIT_ROWS:
            what = f"the ledger's queue is full: {self._queued_rows} of {QUEUE_LIMIT_ROWS} rows"
            return LedgerUnavailable(what, "QUEUE_FULL")
        return None

    def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                if batch:
                    self._write(batch)
                self._upkeep(idle=not batch)
        finally:
            with self._changed:
                self._closing = True
                left, self._queue = list(self._queue), deque()
            # Empty but where the thread was ended by a fault of its own: nobody waits for ever.
            _deliver(left, [LedgerUnavailable("the ledger's writer has ended")] * len(left))
            self._copier.shutdown()
            try:
                self._writer.close()
            except Exception:
                logger.exception("The ledger's file could not be closed cleanly.")
            self._lock.release()

    def _take(self) -> list[_Pending] | None:
        """What is queued, up to a batch; empty when upkeep is due; None when all is done."""
        with self._changed:
            if not self._queue and not self._closing:
                self._changed.wait(self._patience_s())
            if not self._queue:
                return None if self._closing else []
            batch, rows = [self._queue.popleft()], 0
            rows = len(batch[0].records)
            while self._queue and rows + len(self._queue[0].records) <= BATCH_LIMIT_ROWS:
                batch.append(self._queue.popleft())
                rows += len(batch[-1].records)
            self._queued_rows -= rows
            return batch

    def _patience_s(self) -> float | None:
        if self._last_error is not None:
            return RETRY_WAIT_S
        return IDLE_WAIT_S if self._writer.checkpoint_due(idle=True) else None

    def _write(self, batch: list[_Pending]) -> None:
        results: Sequence[Outcome | LedgerUnavailable]
        try:
            results = self._writer.commit([pending.records for pending in batch])
        except LedgerUnavailable as error:
            self._failed(error)
            results = [LedgerUnavailable(str(error), error.code) for _ in batch]
        else:
            self._last_error = None
        _deliver(batch, results)

    def _upkeep(self, *, idle: bool) -> None:
        """Between two commits: a checkpoint when due; when idle, another look at a bad disk."""
        try:
            if self._last_error is not None:
                if idle:
                    self._writer.probe()
                    self._last_error = None
            elif self._writer.checkpoint_due(idle=idle):
                self._checkpoint()
        except LedgerUnavailable as error:
            self._failed(error)

    def _checkpoint(self) -> None:
        """Has the log copied beside the commits; once that is done, what came meanwhile here."""
        if self._copied is None:
            try:
                self._copied = self._copier.submit(copy_log, self.path)
            except RuntimeError:  # no thread can be started now: all of it here, then
                self._writer.checkpoint()
        elif self._copied.done() or self._writer.checkpoint_overdue():
            copied, self._copied = self._copied, None
            self._writer.checkpoint(copied.result())

    def _failed(self, error: LedgerUnavailable) -> None:
        if self._last_error is None:
            logger.error("The ledger can't be written: %s", _told(error))
        self._last_error, self._fault = _told(error), error.code


def _told(error: LedgerUnavailable) -> str:
    """What an operator reads: the code, what failed, what to do."""
    what = str(error).rstrip(".")
    return f"{error.code}: {what}; {WRITE_FAULTS.get(error.code, 'restart the server')}"


def _deliver(batch: Sequence[_Pending], results: Sequence[Places | Exception]) -> None:
    """Hands every caller its result; each event loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Done]] = {}
    for pending, result in zip(batch, results, strict=True):
        future = pending.future
        if isinstance(future, asyncio.Future):
            by_loop.setdefault(future.get_loop(), []).append((future, result))
        elif isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
    for loop, done in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, done)


def _settle(done: Sequence[Done]) -> None:
    for future, result in done:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
