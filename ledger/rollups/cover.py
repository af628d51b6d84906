"""Which rollup rows make up a period: as coarse as they are there, and none twice. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.rollups.projection import State
from ledger.rollups.tables import COARSE_MIN, DAY, GRAINS_MIN, HOUR, QUARTER, grain_us

DAY_US = grain_us(DAY)
SHORTEST_DAY_US = DAY_US - grain_us(HOUR)  # a local day on which the clock goes ahead


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one grain with start_us <= bucket_us < end_us."""

    grain_min: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Balance:
    """A period as rows that are added and rows that are taken away again."""

    added: Sequence[Segment]
    taken: Sequence[Segment] = ()


def balance(start_us: int, end_us: int, state: State) -> Balance:
    """The rows of a period in whole quarter hours: where it is days of another zone than UTC, the
    UTC days that are nearest, and at both ends what is between those and it.

    So a day of a zone is three or four rows in place of nine or twelve, and each end serves the
    day before it and the day after it.
    """
    if end_us - start_us < SHORTEST_DAY_US:
        return Balance(added=cover(start_us, end_us, state))
    first_us, last_us = _nearest(start_us, DAY_US), _nearest(end_us, DAY_US)
    if max(last_us, end_us) > state.until(DAY) or first_us >= last_us:
        return Balance(added=cover(start_us, end_us, state))
    before, after = _way(start_us), _way(end_us)
    return Balance(
        added=(Segment(DAY, first_us, last_us), *before.taken, *after.added),
        taken=(*before.added, *after.taken),
    )


def _way(at_us: int) -> Balance:
    """From the nearest midnight to a quarter hour: steps ahead are added, steps back taken."""
    added, taken = list[Segment](), list[Segment]()
    mark_us = _nearest(at_us, DAY_US)
    for grain_min in reversed(GRAINS_MIN):
        next_us = _nearest(at_us, grain_us(grain_min), mark_us)
        if next_us > mark_us:
            added.append(Segment(grain_min, mark_us, next_us))
        elif next_us < mark_us:
            taken.append(Segment(grain_min, next_us, mark_us))
        mark_us = next_us
    return Balance(added=added, taken=taken)


def _nearest(at_us: int, length_us: int, mark_us: int = 0) -> int:
    """The nearest multiple of a length; of two that are as near, the one on the side of a mark."""
    half_us = length_us // 2 - (at_us > mark_us)
    return (at_us + half_us) // length_us * length_us


def cover(start_us: int, end_us: int, state: State) -> tuple[Segment, ...]:
    """The fewest segments that cover a period in whole quarter hours, in order."""
    return tuple(_cover(start_us, end_us, state, tuple(reversed(COARSE_MIN))))


def _cover(start_us: int, end_us: int, state: State, grains: tuple[int, ...]) -> Iterator[Segment]:
    if start_us >= end_us:
        return
    if not grains:
        yield Segment(QUARTER, start_us, end_us)
        return
    grain_min, finer = grains[0], grains[1:]
    length_us = grain_us(grain_min)
    first_us = -(-start_us // length_us) * length_us
    last_us = min(end_us, state.until(grain_min)) // length_us * length_us
    if first_us >= last_us:
        yield from _cover(start_us, end_us, state, finer)
        return
    yield from _cover(start_us, first_us, state, finer)
    yield Segment(grain_min, first_us, last_us)
    yield from _cover(last_us, end_us, state, finer)
