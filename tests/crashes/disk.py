"""What a killed process leaves on its disk: every byte up to some write, and none after it.

SQLite appends a commit to the write-ahead log (or overwrites a log that was copied over, from its
start on), and a checkpoint copies pages into the file while the log stays. So the state between
any two writes can be made from the bytes before and after: no process has to be killed, and a seed
gives the same state again.
"""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Files:
    """The bytes of a ledger's file and of its write-ahead log."""

    main: bytes
    log: bytes


def read(ledger: Path) -> Files:
    log = log_of(ledger)
    return Files(ledger.read_bytes(), log.read_bytes() if log.exists() else b"")


def log_of(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + "-wal")


def place(files: Files, folder: Path) -> Path:
    """The ledger with these bytes, in a folder that is emptied for it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ledger = folder / "ledger.sqlite3"
    ledger.write_bytes(files.main)
    log_of(ledger).write_bytes(files.log)
    return ledger


def killed_in_commit(before: Files, after: Files, chance: random.Random) -> Files:
    """The state after some of the bytes that a commit wrote to the log, from none to all."""
    same = _first_difference(before.log, after.log)
    end = chance.randint(same, len(after.log))
    return Files(after.main, after.log[:end] + before.log[end:])


def killed_in_checkpoint(before: Files, after: Files, chance: random.Random) -> Files:
    """The state after some of the pages that a checkpoint copied; the log is whole."""
    pages = [
        start
        for start in range(0, len(after.main), PAGE_BYTES)
        if after.main[start : start + PAGE_BYTES] != before.main[start : start + PAGE_BYTES]
    ]
    main = bytearray(before.main)
    for start in pages[: chance.randint(0, len(pages))]:
        main[start : start + PAGE_BYTES] = after.main[start : start + PAGE_BYTES]
    return Files(bytes(main), before.log)


def _first_difference(one: bytes, other: bytes) -> int:
    """How many bytes both begin with: found by halving, as a log may have megabytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
