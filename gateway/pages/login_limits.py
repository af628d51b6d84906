"""How often a login may fail: per name from one address, and per address, in fixed windows.

A name is not counted across addresses: else whoever knows a name could keep its owner out.

The counts live in the process's cache: one process serves the console, and a restart forgives.
A try is refused before the password is looked at, so a refusal tells nothing about it.
"""

from dataclasses import dataclass

from django.core.cache import cache

WINDOW_US = 300_000_000
FAILURES_PER_NAME_LIMIT = 5
FAILURES_PER_ADDRESS_LIMIT = 30
NAME_LIMIT_CHARS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One attempt to log in: by which name, from where, when."""

    username: str
    address: str
    at_us: int

    def _counters(self) -> tuple[tuple[str, int], ...]:
        window = self.at_us // WINDOW_US
        name = self.username[:NAME_LIMIT_CHARS].casefold().encode().hex()
        return (
            (f"login:{window}:name:{name}:{self.address}", FAILURES_PER_NAME_LIMIT),
            (f"login:{window}:address:{self.address}", FAILURES_PER_ADDRESS_LIMIT),
        )

    def wait_seconds(self) -> int:
        """Seconds until a try is allowed again, rounded up; 0 where it is allowed now."""
        counts = cache.get_many([key for key, _ in self._counters()])
        if all(counts.get(key, 0) < limit for key, limit in self._counters()):
            return 0
        return -(-(WINDOW_US - self.at_us % WINDOW_US) // 1_000_000)

    def failed(self) -> None:
        for key, _ in self._counters():
            if not cache.add(key, 1, timeout=2 * WINDOW_US // 1_000_000):
                cache.incr(key)
