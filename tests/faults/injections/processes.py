"""Processes that end, or stand still, at any moment."""

import asyncio
import signal
from random import Random

from tests.faults.load import Load
from tests.faults.rig import Rig

STANDS_STILL_S = 0.5


async def kill_server(rig: Rig, load: Load, chance: Random) -> None:
    """kill -9 between any two bytes of an answer; what was written reaches the disk."""
    await load.seen(chance.randint(1, 120))
    rig.kill()
    if rig.disk is not None:
        rig.disk.forget()
    rig.start()


async def kill_server_twice(rig: Rig, load: Load, chance: Random) -> None:
    """kill -9, and again while the next one starts: recovery is cut short, and done again."""
    await load.seen(chance.randint(1, 60))
    rig.kill()
    rig.start()
    await asyncio.sleep(chance.random() * 2)
    rig.kill()
    if rig.disk is not None:
        rig.disk.forget()
    rig.start()


async def stop_server(rig: Rig, load: Load, chance: Random) -> None:
    """SIGTERM under load: what it took ends, and the next one starts."""
    await load.seen(chance.randint(1, 60))
    rig.kill(signal.SIGTERM)
    assert rig.status in (0, -signal.SIGTERM), f"it ended with {rig.status}"
    rig.start()


async def server_stands_still(rig: Rig, load: Load, chance: Random) -> None:
    """Not scheduled for a while, as on a machine that swaps or is moved."""
    await load.seen(chance.randint(1, 60))
    rig.kill(signal.SIGSTOP)
    await asyncio.sleep(STANDS_STILL_S)
    rig.kill(signal.SIGCONT)


async def kill_backend(rig: Rig, load: Load, chance: Random) -> None:
    """kill -9 of the backend in the middle of its answers; it comes back."""
    await rig.plan(tokens=40, token_delay_s=0.005)
    await load.seen(chance.randint(10, 80))
    rig.kill_upstream()
    await asyncio.sleep(chance.random() * 0.3)
    rig.start_upstream()


KINDS = (kill_server, kill_server_twice, stop_server, server_stands_still, kill_backend)
