"""How many requests, further attempts and hedges the last minute had: what budgets are shares of.

Kept second by second, so that it costs sixty entries however much traffic there is.
"""

from collections import deque
from dataclasses import dataclass, field

SECOND_US = 1_000_000
WINDOW_SECONDS = 60


@dataclass(slots=True)
class Second:
    at: int  # whole seconds since the epoch
    requests: int = 0
    again: int = 0
    hedges: int = 0


@dataclass(slots=True)
class Traffic:
    """Owned by the event loop."""

    _seconds: deque[Second] = field(default_factory=deque)
    _requests: int = 0
    _again: int = 0
    _hedges: int = 0

    def request(self, now_us: int) -> None:
        self._at(now_us).requests += 1
        self._requests += 1

    def again(self, now_us: int) -> None:
        """Count a retry or a fallback after an attempt."""
        self._at(now_us).again += 1
        self._again += 1

    def hedge(self, now_us: int) -> None:
        self._at(now_us).hedges += 1
        self._hedges += 1

    def in_minute(self, now_us: int) -> tuple[int, int, int]:
        """Return (requests, retries and fallbacks, hedges) of the last sixty seconds."""
        self._forget(now_us // SECOND_US)
        return self._requests, self._again, self._hedges

    def _at(self, now_us: int) -> Second:
        second = now_us // SECOND_US
        if not self._seconds or self._seconds[-1].at < second:
            self._seconds.append(Second(second))
            self._forget(second)
        return self._seconds[-1]

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0].at <= second - WINDOW_SECONDS:
            left = self._seconds.popleft()
            self._requests -= left.requests
            self._again -= left.again
            self._hedges -= left.hedges
