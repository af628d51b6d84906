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


class VirtualClock:
    """A clock that stands where it was put: for replays in virtual time and for tests."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def set_us(self, now_us: int) -> None:
        if now_us < self._now_us:
            raise ValueError(f"virtual time can't run backwards: {now_us} < {self._now_us}")
        self._now_us = now_us
