"""How long each iteration of a replica took, kept once for all the jobs that shared it.

Jobs that decode together share their iterations, so the gaps between a job's tokens are a slice
of these durations: what is worked out for the first job that asks serves the others.
"""

from array import array

import numpy as np

from simulator.iterations import Int64Array
from simulator.state import LOG_WIDTH


class Durations:
    """Durations in ps of consecutive iterations, the first of them `first`, grown when asked."""

    __slots__ = ("_ps", "first")

    def __init__(self) -> None:
        self.first = 1
        self._ps = array("q")

    def of(self, rows: "array[int]", first: int, last: int) -> Int64Array:
        """Return the durations of iterations `first` to `last`, both included; shape (n,).

        `rows` are the flat rows of the log, of which those from `first` on are still kept.
        """
        if first < self.first or first > self.first + len(self._ps):
            self.first, self._ps = first, array("q")
        if last >= self.first + len(self._ps):
            self._grow(rows)
        start = first - self.first
        kept: Int64Array = np.frombuffer(self._ps, np.int64)[start : start + last - first + 1]
        return kept.copy()  # a view would keep the array from growing

    def forget_before(self, first: int) -> None:
        """Drop the durations of iterations before `first`."""
        if first > self.first:
            del self._ps[: first - self.first]
            self.first = first

    def _grow(self, rows: "array[int]") -> None:
        """Take all of the log's iterations that follow those kept; they are at its end."""
        following = self.first + len(self._ps)
        row = len(rows) - LOG_WIDTH
        while row > 0 and rows[row] >= following:
            row -= LOG_WIDTH
        for at in range(row, len(rows), LOG_WIDTH):
            before, _, steps, a, b, _ = rows[at : at + LOG_WIDTH]
            known = following - before - 1  # of this segment's iterations
            self._ps.extend(range(a + known * b, a + steps * b, b) if b else [a] * (steps - known))
            following = before + steps + 1
