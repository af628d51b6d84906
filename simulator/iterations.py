"""The iterations that a replica has run, as segments with a closed form; exact token times.

Segment (before, start, steps, a, b, emitted): its j-th step is iteration before + j, ends at
start + j a + b j (j - 1) / 2 ps and emits `emitted` tokens. Iterations are numbered from 1. A
job's tokens are runs (first iteration, count) of consecutive iterations, one token each.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.state import LOG_WIDTH

Int64Array = NDArray[np.int64]


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


def inter_token_counts(log: IterationLog, runs: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return (gap ps, how often) over consecutive tokens within the runs, a row an iteration.

    `runs` has shape (n, 2): first iteration, tokens. Gaps across a preemption lie between runs
    and are not in here. Exact; iterations with no such gap are left out.
    """
    ends = log.ends_ps(log.first, log.last)
    change = np.zeros(len(ends) + 1, np.int64)
    runs = runs[runs[:, 1] > 1]
    first = runs[:, 0] - log.first
    np.add.at(change, first + 1, 1)
    np.add.at(change, first + runs[:, 1], -1)
    counts = np.cumsum(change)[:-1]
    gaps = np.diff(ends, prepend=ends[:1])
    seen = counts > 0
    return gaps[seen], counts[seen]
