"""Which rollup rows make up a period: as coarse as they are there, and none twice. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.rollups.projection import State
from ledger.rollups.tables import COARSE_MIN, QUARTER, grain_us


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one grain with start_us <= bucket_us < end_us."""

    grain_min: int
    start_us: int
    end_us: int


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
