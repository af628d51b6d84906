"""A disk and a wall clock that fail on command, under a server that knows nothing of it.

`disk.c` is compiled once, preloaded into the server and steered through a mapped file. It also
keeps what was written and not synced, so that a loss of power can be shown: after a kill the
unsynced writes are taken back, all of them or any of them (a disk may reorder and tear those).
"""

import functools
import mmap
import os
import random
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("disk.c")
CONTROL_BYTES = 4_096
SECTOR_BYTES = 512
_HEAD = struct.Struct("<qqqq")
_WORD = struct.Struct("<q")
FSYNC_ERRNO, FSYNC_DELAY_US, WRITE_ERRNO, WRITE_AFTER, CLOCK_NS, UNDO = range(6)
LOG_FSYNCS, FILE_FSYNCS = 6, 7


class NoCompiler(Exception):
    """There is no C compiler, or it refuses: the disk can't be made to fail."""


@functools.cache
def library() -> Path:
    """The compiled shim. Raises NoCompiler, with what the compiler said."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("there is no C compiler (cc)")
    built = Path(tempfile.mkdtemp(prefix="weighbridge-disk-")) / "disk.so"
    done = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoCompiler(f"cc: {done.stderr.strip()[:500]}")
    return built


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsynced:
    """One write that no sync has followed: what it replaced, what it put there.

    `written` is empty of a file that was cut at `offset`.
    """

    offset: int
    size_before: int
    replaced: bytes
    written: bytes


class Disk:
    """The failing disk of one ledger. What is set holds until it is set again."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger.resolve()
        self._control = self.ledger.with_name("disk.control")
        self._control.write_bytes(bytes(CONTROL_BYTES))
        with self._control.open("r+b") as file:
            self._words = mmap.mmap(file.fileno(), CONTROL_BYTES)
        self.set(UNDO, 1)

    def environment(self) -> dict[str, str]:
        """What a process needs to run on this disk."""
        return {
            "LD_PRELOAD": str(library()),
            "FAULT_LEDGER": str(self.ledger),
            "FAULT_CONTROL": str(self._control),
        }

    def set(self, word: int, value: int) -> None:
        _WORD.pack_into(self._words, word * _WORD.size, value)

    def get(self, word: int) -> int:
        return _WORD.unpack_from(self._words, word * _WORD.size)[0]

    def well(self) -> None:
        """Everything works again; the clock is right."""
        for word in (FSYNC_ERRNO, FSYNC_DELAY_US, WRITE_ERRNO, WRITE_AFTER, CLOCK_NS):
            self.set(word, 0)

    def lose_power(self, chance: random.Random | None = None) -> tuple[int, int]:
        """Take back what wasn't synced; no process may have the files open.

        Without `chance` all of it is lost; with it each write is lost, kept, or kept in part.
        Returns (unsynced writes, how many of them were lost whole).
        """
        writes, lost = 0, 0
        for which, path in enumerate(
            (self.ledger, self.ledger.with_name(self.ledger.name + "-wal"))
        ):
            unsynced = self._unsynced(which)
            writes += len(unsynced)
            if path.exists():
                lost += _take_back(path, unsynced, chance)
            self._undo(which).write_bytes(b"")
        # The index of the log is shared memory: it doesn't outlive the power.
        self.ledger.with_name(self.ledger.name + "-shm").unlink(missing_ok=True)
        return writes, lost

    def forget(self) -> None:
        """What was written counts as synced: a killed process's writes reach the disk in time."""
        for which in range(2):
            self._undo(which).write_bytes(b"")

    def _undo(self, which: int) -> Path:
        return self._control.with_name(f"{self._control.name}.undo.{which}")

    def _unsynced(self, which: int) -> list[Unsynced]:
        path = self._undo(which)
        kept = path.read_bytes() if path.exists() else b""
        found, at = [], 0
        while at + _HEAD.size <= len(kept):
            offset, size_before, replaced, written = _HEAD.unpack_from(kept, at)
            body = at + _HEAD.size
            found.append(
                Unsynced(
                    offset=offset,
                    size_before=size_before,
                    replaced=kept[body : body + replaced],
                    written=kept[body + replaced : body + replaced + written],
                )
            )
            at = body + replaced + written
        return found


def _take_back(path: Path, unsynced: list[Unsynced], chance: random.Random | None) -> int:
    lost = 0
    with path.open("r+b") as file:
        for write in reversed(unsynced):
            os.pwrite(file.fileno(), write.replaced, write.offset)
            file.truncate(write.size_before)
        for write in unsynced:
            fate = 1.0 if chance is None else chance.random()
            if fate < 0.4:
                os.pwrite(file.fileno(), write.written, write.offset)
            elif fate < 0.6:
                torn = write.written[: len(write.written) // SECTOR_BYTES // 2 * SECTOR_BYTES]
                os.pwrite(file.fileno(), torn, write.offset)
            else:
                lost += 1
                continue
            if not write.written:
                file.truncate(write.offset)
    return lost
