"""The iterations that a replica has run, as segments with a closed form; exact token times.

Segment (before, start, steps, a, b, emitted): its j-th step is iteration before + j, ends at
start + j a + b j (j - 1) / 2 ps and emits `emitted` tokens. Iterations are numbered from 1. A
job's tokens are runs (first iteration, count) of consecutive iterations, one token each.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.state import LOG_WIDTH

Int64Array = NDArray[np.int64]
GAPS_AT_ONCE = 2**19
"""Iterations whose ends are worked out together: all of a long run's would take gigabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationLog:
    """Consecutive segments as arrays of equal length; older ones may have been dropped."""

    before: Int64Array
    start_ps: Int64Array
    steps: Int64Array
    a_ps: Int64Array
    b_ps: Int64Array
    emitted: Int64Array

    @property
    def first(self) -> int:
        """The number of the first iteration kept (1 where none has run)."""
        return int(self.before[0]) + 1 if len(self.before) else 1

    @property
    def last(self) -> int:
        """The number of the last iteration kept."""
        return int(self.before[-1] + self.steps[-1]) if len(self.before) else 0

    def ends_ps(self, first: int, last: int) -> Int64Array:
        """Return the ends of iterations `first` to `last`, both included, in ps.

        Raises IndexError where one of them isn't kept.
        """
        if last < first:
            return np.empty(0, np.int64)
        if first < self.first or last > self.last:
            raise IndexError(f"iterations {first} to {last} are not kept")
        low = int(np.searchsorted(self.before, first)) - 1
        high = int(np.searchsorted(self.before, last))
        steps, before = self.steps[low:high], self.before[low:high]
        numbers = np.arange(before[0] + 1, before[-1] + steps[-1] + 1, dtype=np.int64)
        j = numbers - np.repeat(before, steps)
        ends: Int64Array = (
            np.repeat(self.start_ps[low:high], steps)
            + j * np.repeat(self.a_ps[low:high], steps)
            + np.repeat(self.b_ps[low:high], steps) * (j * (j - 1) // 2)
        )
        return ends[first - numbers[0] : last - numbers[0] + 1]


def log_of_rows(rows: "array[int]") -> IterationLog:
    """Return the log of flat rows of LOG_WIDTH integers (a copy)."""
    columns = np.frombuffer(rows, np.int64).reshape(-1, LOG_WIDTH).T.copy()
    return IterationLog(
        before=columns[0],
        start_ps=columns[1],
        steps=columns[2],
        a_ps=columns[3],
        b_ps=columns[4],
        emitted=columns[5],
    )


def rows_of_iterations(rows: "array[int]", first: int, last: int) -> "array[int]":
    """Return the flat rows that hold iterations `first` to `last` (a copy, found by bisection)."""
    segments = range(len(rows) // LOG_WIDTH)
    low = bisect_left(segments, first, key=lambda row: rows[row * LOG_WIDTH]) - 1
    high = bisect_left(segments, last, key=lambda row: rows[row * LOG_WIDTH])
    return rows[max(0, low) * LOG_WIDTH : high * LOG_WIDTH]


def token_times_ps(log: IterationLog, runs: list[tuple[int, int]]) -> Int64Array:
    """Return when each token of a job was emitted, in ps."""
    pieces = [log.ends_ps(first, first + count - 1) for first, count in runs if count]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def inter_token_parts(
    log: IterationLog, runs: Int64Array
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield (gap ps, how often) over consecutive tokens within the runs, a row an iteration.

    In parts of GAPS_AT_ONCE iterations at most. `runs` has shape (n, 2): first iteration, tokens.
    Gaps across a preemption lie between runs and are not in here. Exact; iterations with no such
    gap are left out.
    """
    first, last = log.first, log.last
    counts = np.zeros(last - first + 2, np.int64)
    runs = runs[runs[:, 1] > 1]
    begins = runs[:, 0] - first
    np.add.at(counts, begins + 1, 1)
    np.add.at(counts, begins + runs[:, 1], -1)
    counts = np.cumsum(counts, out=counts)[:-1]
    for low in range(first, last + 1, GAPS_AT_ONCE):
        high = min(last, low + GAPS_AT_ONCE - 1)
        # Nobody has a gap before the very first, so what precedes that doesn't matter.
        ends = log.ends_ps(max(first, low - 1), high)
        gaps = np.diff(ends, prepend=ends[:1] if low == first else ends[:0])
        part = counts[low - first : high - first + 1]
        seen = part > 0
        yield gaps[seen], part[seen]
