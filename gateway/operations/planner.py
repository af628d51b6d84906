"""Plans an operation in a process of its own, so that a long one never holds the data plane up.

A pass over a million receipts holds the interpreter a third of a second; in another process it
takes what the data plane leaves of the processor. The process reads the ledger and writes nothing:
the server appends what it planned. It starts when there is something to plan and ends after ten
quiet minutes, with the server, or as soon as its pipe closes, so that nothing outlives a kill.
"""

import asyncio
import contextlib
import logging
import os
import struct
import sys
from pathlib import Path

import msgspec
from django.conf import settings

from gateway.operations.base import Actor, Done, Operation, Refused
from gateway.operations.planning import Prepared
from ledger.records import RECORDS, Record

log = logging.getLogger(__name__)

IDLE_SECONDS = 600.0  # two windows of the evaluator: its start takes a second of CPU
PLAN_SECONDS = 120.0
FRAME = struct.Struct("!I")  # the length of what follows, in bytes
COMMAND = (sys.executable, "-m", "gateway.operations.planning_process")

_TABLES: dict[str, type[Record]] = {kind.TABLE: kind for kind in RECORDS}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be planned, by whom and when, as it travels to the process."""

    operation: str
    fields: bytes  # JSON
    actor: Actor
    now_us: int


class Planned(msgspec.Struct, frozen=True, kw_only=True, tag="planned"):
    """A plan's rows, each with its table, as they travel back."""

    rows: tuple[tuple[str, msgspec.Raw], ...]
    done: Done


_ANSWER = msgspec.msgpack.Decoder(Planned | Refused)


def packed(result: Prepared | Refused) -> bytes:
    """What `unpacked` reads."""
    if isinstance(result, Refused):
        return msgspec.msgpack.encode(result)
    rows = tuple(
        (record.TABLE, msgspec.Raw(msgspec.msgpack.encode(record))) for record in result.records
    )
    return msgspec.msgpack.encode(Planned(rows=rows, done=result.done))


def unpacked(answer: bytes) -> Prepared | Refused:
    """The result that was packed, row for row."""
    result = _ANSWER.decode(answer)
    if isinstance(result, Refused):
        return result
    return Prepared(
        records=tuple(
            msgspec.msgpack.decode(row, type=_TABLES[table]) for table, row in result.rows
        ),
        done=result.done,
    )


class Planner:
    """The process of one ledger, asked for one plan at a time."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger.resolve()
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()

    @property
    def process_id(self) -> int | None:
        """The system's number of the process that runs now; None: none does."""
        return None if self._process is None else self._process.pid

    @property
    def busy(self) -> bool:
        """Whether something is being planned."""
        return self._turn.locked()

    async def prepare(self, operation: Operation, actor: Actor, now_us: int) -> Prepared | Refused:
        """The rows of an operation as they would be appended at `now_us`, or why it is refused.

        PLANNING_FAILED: the process ended or took too long. Nothing was written, and the next one
        is asked in a new process.
        """
        async with self._turn:
            return await self._prepared(operation, actor, now_us)

    async def _prepared(
        self, operation: Operation, actor: Actor, now_us: int
    ) -> Prepared | Refused:
        if self._idle is not None:
            self._idle.cancel()
        ask = Ask(
            operation=operation.NAME,
            fields=msgspec.json.encode(operation),
            actor=actor,
            now_us=now_us,
        )
        try:
            answer = await asyncio.wait_for(self._asked(msgspec.msgpack.encode(ask)), PLAN_SECONDS)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, OSError) as problem:
            await self.close()
            log.error("planning %s failed: %s", operation.NAME, type(problem).__name__)
            return Refused(
                code="PLANNING_FAILED",
                message=f"{operation.NAME} was not planned: its process ended or took longer than "
                f"{PLAN_SECONDS:.0f} s. Nothing was written; the server's log says more.",
            )
        except asyncio.CancelledError:
            await self.close()  # its answer would be taken for the next one's
            raise
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)
        return unpacked(answer)

    async def close(self) -> None:
        """End the process, whatever it is at: it has nothing to lose."""
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _asked(self, ask: bytes) -> bytes:
        if self._process is None or self._process.returncode is not None:
            self._process = await self._started()
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise BrokenPipeError("the planning process has no pipes")
        stdin.write(FRAME.pack(len(ask)) + ask)
        await stdin.drain()
        (length,) = FRAME.unpack(await stdout.readexactly(FRAME.size))
        return await stdout.readexactly(length)

    async def _started(self) -> asyncio.subprocess.Process:
        # What the settings say here holds there, wherever it came from.
        environment = {**os.environ, "WEIGHBRIDGE_CONTROL": settings.CONTROL_MODE}
        return await asyncio.create_subprocess_exec(
            *COMMAND, str(self._ledger),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            cwd=settings.BASE_DIR, env=environment,
            start_new_session=True,  # Ctrl-C is the server's: it ends this one itself
        )  # fmt: skip

    def _end(self) -> None:
        """End it after ten quiet minutes. Killed, since a stopped one reads no end of its pipe."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
