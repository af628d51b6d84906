"""The only reader of time. Everything else is handed the time or a clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """Returns the current time as integer microseconds since the Unix epoch, UTC."""

    def now_us(self) -> int: ...


class SystemClock:
    """Wall-clock time that never runs backwards within a process.

    It is anchored once to the wall clock and then follows the monotonic one, so that a stepped
    system clock can neither make a duration negative nor reorder ids.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000
