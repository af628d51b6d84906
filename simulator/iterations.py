"""The iterations that a replica has run, as segments with a closed form; exact token times.

Segment (start, steps, a, b, emitted): its j-th step ends at start + j a + b j (j - 1) / 2 ps and
emits `emitted` tokens. A job's tokens are runs of consecutive iterations, one token each.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationLog:
    """Segments in order, arrays of equal length; `first_iteration` numbers the first step kept.

    Iterations are numbered from 1. Older segments may have been dropped.
    """

    start_ps: Int64Array
    steps: Int64Array
    a_ps: Int64Array
    b_ps: Int64Array
    emitted: Int64Array
    first_iteration: int = 1

    def ends_ps(self, first: int, last: int) -> Int64Array:
        """Return the ends of iterations `first` to `last`, both included, in ps.

        Raises IndexError where one of them isn't kept.
        """
        if last < first:
            return np.empty(0, np.int64)
        lasts = np.cumsum(self.steps) + (self.first_iteration - 1)
        if first < self.first_iteration or not len(lasts) or last > lasts[-1]:
            raise IndexError(f"iterations {first} to {last} are not kept")
        low = int(np.searchsorted(lasts, first))
        high = int(np.searchsorted(lasts, last)) + 1
        steps = self.steps[low:high]
        begins = lasts[low:high] - steps
        numbers = np.arange(begins[0] + 1, lasts[high - 1] + 1, dtype=np.int64)
        j = numbers - np.repeat(begins, steps)
        ends = (
            np.repeat(self.start_ps[low:high], steps)
            + j * np.repeat(self.a_ps[low:high], steps)
            + np.repeat(self.b_ps[low:high], steps) * (j * (j - 1) // 2)
        )
        return ends[first - numbers[0] : last - numbers[0] + 1]

    def all_ends_ps(self) -> Int64Array:
        """Return the ends of all iterations kept, in ps."""
        last = self.first_iteration + int(self.steps.sum()) - 1
        return self.ends_ps(self.first_iteration, last)


def token_times_ps(log: IterationLog, runs: list[tuple[int, int]]) -> Int64Array:
    """Return when each token of a job was emitted, in ps, from its (first iteration, count) runs."""
    pieces = [log.ends_ps(first, first + count - 1) for first, count in runs if count]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def inter_token_counts(
    log: IterationLog, runs: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return (gap ps, how often) over consecutive tokens within the runs, one row an iteration.

    `runs` has shape (n, 2): first iteration, tokens. Gaps across a preemption lie between runs
    and are not in here. Exact: rows with a count of 0 are left out.
    """
    ends = log.all_ends_ps()
    change = np.zeros(len(ends) + 1, np.int64)
    runs = runs[runs[:, 1] > 1]
    first = runs[:, 0] - log.first_iteration
    np.add.at(change, first + 1, 1)
    np.add.at(change, first + runs[:, 1], -1)
    counts = np.cumsum(change)[:-1]
    gaps = np.diff(ends, prepend=ends[:1])
    seen = counts > 0
    return gaps[seen], counts[seen]
