"""Disks that are full, slow or lose what wasn't synced, and clocks that jump."""

import asyncio
import errno
import signal
import time
from random import Random

from tests.faults import disk as words
from tests.faults.disk import Disk
from tests.faults.load import Load
from tests.faults.rig import Rig

FAULT_S = 0.6
SLOW_US = (20_000, 120_000)
SYNC_TAKES_US = 400_000
SYNC_COMES_S = 3.0
HOUR_NS = 3_600 * 10**9


def _disk(rig: Rig) -> Disk:
    assert rig.disk is not None
    return rig.disk


async def _while(rig: Rig, load: Load, chance: Random, word: int, value: int) -> None:
    """Have something fail for a moment under load."""
    await load.seen(chance.randint(1, 60))
    _disk(rig).set(word, value)
    await asyncio.sleep(chance.uniform(0.1, FAULT_S))
    _disk(rig).well()


async def disk_full(rig: Rig, load: Load, chance: Random) -> None:
    """No space left after some more bytes, in the middle of a page or between two."""
    _disk(rig).set(words.WRITE_AFTER, chance.choice((0, chance.randint(1, 200_000))))
    await _while(rig, load, chance, words.WRITE_ERRNO, errno.ENOSPC)


async def write_fails(rig: Rig, load: Load, chance: Random) -> None:
    """Writes end with an error of the device."""
    await _while(rig, load, chance, words.WRITE_ERRNO, errno.EIO)


async def fsync_fails(rig: Rig, load: Load, chance: Random) -> None:
    """What was written can't be made durable, so nothing of it may be acknowledged."""
    await _while(rig, load, chance, words.FSYNC_ERRNO, errno.EIO)


async def fsync_slow(rig: Rig, load: Load, chance: Random) -> None:
    await _while(rig, load, chance, words.FSYNC_DELAY_US, chance.randint(*SLOW_US))


async def fsync_fails_then_killed(rig: Rig, load: Load, chance: Random) -> None:
    """Killed while its commits fail: a commit that was refused may be found whole in the log."""
    await load.seen(chance.randint(1, 60))
    _disk(rig).set(words.FSYNC_ERRNO, errno.EIO)
    await asyncio.sleep(chance.random() * 0.3)
    rig.kill()
    _disk(rig).forget()
    _disk(rig).well()
    rig.start()


async def killed_in_fsync(rig: Rig, load: Load, chance: Random) -> None:
    """Killed while commits wait for the disk: written and not acknowledged."""
    await load.seen(chance.randint(1, 60))
    _disk(rig).set(words.FSYNC_DELAY_US, 50_000)
    await asyncio.sleep(chance.random() * 0.2)
    rig.kill()
    _disk(rig).forget()
    _disk(rig).well()
    rig.start()


async def power_loss(rig: Rig, load: Load, chance: Random) -> None:
    """The power goes while a commit is being synced: what wasn't synced is gone."""
    await load.seen(chance.randint(1, 120))
    await _lose(rig, words.LOG_FSYNCS, None)


async def power_loss_torn(rig: Rig, load: Load, chance: Random) -> None:
    """The same, where of the writes that weren't synced any are gone and any are torn."""
    await load.seen(chance.randint(1, 120))
    await _lose(rig, words.LOG_FSYNCS, chance)


async def power_loss_in_checkpoint(rig: Rig, load: Load, chance: Random) -> None:
    """The power goes while the log is copied into the ledger's file, page by page."""
    await load.seen(chance.randint(60, 400))
    load.stop()  # the log is copied when the server is idle
    await _lose(rig, words.FILE_FSYNCS, chance.choice((None, chance)))


async def _lose(rig: Rig, word: int, which: Random | None) -> None:
    """Kill in the middle of the next sync of a file, where one comes in time."""
    disk = _disk(rig)
    disk.set(words.FSYNC_DELAY_US, SYNC_TAKES_US)
    begun, ends = disk.get(word), time.monotonic() + SYNC_COMES_S
    while disk.get(word) == begun and time.monotonic() < ends:
        await asyncio.sleep(0.005)
    rig.kill()
    writes, lost = disk.lose_power(which)
    rig.note("unsynced writes at a loss of power", writes)
    rig.note("of them lost", lost)
    rig.note("losses of power in the middle of a sync", int(disk.get(word) != begun))
    disk.well()
    rig.start()


async def clock_jumps(rig: Rig, load: Load, chance: Random) -> None:
    """The wall clock is hours or days off under load, and right again."""
    await load.seen(chance.randint(1, 30))
    for _ in range(3):
        _disk(rig).set(words.CLOCK_NS, chance.choice((-1, 1)) * chance.choice((1, 26)) * HOUR_NS)
        await asyncio.sleep(0.1)
    _disk(rig).well()


async def clock_behind_after_restart(rig: Rig, load: Load, chance: Random) -> None:
    """A server begins hours ahead, is killed, and the next one begins in its past."""
    await load.seen(chance.randint(1, 30))
    rig.kill()
    _disk(rig).set(words.CLOCK_NS, chance.randint(1, 30) * HOUR_NS // 10)
    rig.start()
    await rig.back()
    await load.seen(load.told.bits + chance.randint(10, 60))
    rig.kill(chance.choice((signal.SIGKILL, signal.SIGTERM)))
    _disk(rig).forget()
    _disk(rig).well()
    rig.start()


KINDS = (
    disk_full, write_fails, fsync_fails, fsync_slow, fsync_fails_then_killed, killed_in_fsync,
    power_loss, power_loss_torn, power_loss_in_checkpoint, clock_jumps, clock_behind_after_restart,
)  # fmt: skip
