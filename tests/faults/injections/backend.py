"""Backends that stall, break off, talk nonsense or far too much."""

import asyncio
from random import Random

from tests.faults.load import Load
from tests.faults.rig import Rig

FAULT_S = 0.8
WELL = {"tokens": 16}


async def _planned(rig: Rig, load: Load, chance: Random, **plan: object) -> None:
    """Have the backend answer so for a moment, and well again."""
    await rig.plan(**{"tokens": 24, **plan})
    await load.seen(load.told.bits + chance.randint(20, 80))
    await asyncio.sleep(chance.random() * FAULT_S)
    await rig.plan(**WELL)


async def backend_stalls(rig: Rig, load: Load, chance: Random) -> None:
    """Nothing comes any more: before the first token, in the middle, or after the finish."""
    where = chance.choice(
        ({"stall_after": chance.randint(0, 20)}, {"stall_at_tail": True}, {"head_delay_s": 5.0})
    )
    await _planned(rig, load, chance, **where)


async def backend_resets(rig: Rig, load: Load, chance: Random) -> None:
    """The connection is torn before the head, or at any byte of the body."""
    where = chance.choice(({"close_before_head": True}, {"cut_at_byte": chance.randint(0, 4_000)}))
    await _planned(rig, load, chance, **where)


async def backend_talks_garbage(rig: Rig, load: Load, chance: Random) -> None:
    where = chance.choice(
        (
            {"garbage_after": chance.randint(0, 20)},
            {"error_after": chance.randint(0, 20), "error_shape": chance.randrange(4)},
            {"content_type": "text/html", "whole": False},
        )
    )
    await _planned(rig, load, chance, **where)


async def backend_sends_half_a_stream(rig: Rig, load: Load, chance: Random) -> None:
    """It ends as if it were whole, without its finish; or dies; or forgets its usage."""
    where = chance.choice(
        (
            {"end_after": chance.randint(0, 20)},
            {"die_after": chance.randint(0, 20)},
            {"finish_reason": None},
            {"done": False, "usage": "missing"},
            {"duplicate": True, "usage": "wrong"},
        )
    )
    await _planned(rig, load, chance, **where)


async def backend_refuses(rig: Rig, load: Load, chance: Random) -> None:
    status = chance.choice((400, 401, 404, 408, 413, 429, 500, 502, 503, 504, 529, 302))
    headers = chance.choice(({}, {"retry-after": "0"}, {"retry-after": "junk"}))
    await _planned(rig, load, chance, status=status, headers=headers)


async def backend_sends_a_header_bomb(rig: Rig, load: Load, chance: Random) -> None:
    """A header of many kilobytes, or thousands of them."""
    bombs = ({"x-bomb": "b" * 200_000}, {f"x-bomb-{n}": "b" * 60 for n in range(3_000)})
    await _planned(rig, load, chance, headers=chance.choice(bombs))


async def backend_is_slow(rig: Rig, load: Load, chance: Random) -> None:
    """Every byte comes late, in small pieces."""
    await _planned(
        rig, load, chance, head_delay_s=0.3, token_delay_s=0.05, split_bytes=chance.randint(1, 40)
    )


KINDS = (
    backend_stalls, backend_resets, backend_talks_garbage, backend_sends_half_a_stream,
    backend_refuses, backend_sends_a_header_bomb, backend_is_slow,
)  # fmt: skip
