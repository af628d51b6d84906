"""Answers that wait in memory for clients that don't read them: how much, and who goes (SEC-3).

One answer has its own limits; here is the one of all of them together, whoever they are for.
"""

from typing import Final, Protocol

from gateway import metrics

UNREAD_LIMIT_BYTES: Final = 128 << 20
"""Of all answers that were written and that their clients haven't taken."""


class Reader(Protocol):
    """A connection whose client is behind."""

    def unread_bytes(self) -> int:
        """Return what waits in memory for the client now."""
        ...

    def give_up(self, reason: str) -> None:
        """Hang up, soon, and free what waits."""
        ...


class Unread:
    """The connections whose clients are behind, in the order in which they fell behind.

    Owned by the event loop. Sizes are those at which they fell behind: the event loop frees what
    is written only once its last byte was sent.
    """

    def __init__(self, limit_bytes: int = UNREAD_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._sizes: dict[Reader, int] = {}
        self.total_bytes = 0

    def add(self, reader: Reader) -> None:
        """Count one who fell behind; where that is too much, the first who did are hung up on."""
        self.drop(reader)
        self._sizes[reader] = size_bytes = reader.unread_bytes()
        self.total_bytes += size_bytes
        while self.total_bytes > self._limit_bytes:
            first = next(iter(self._sizes))
            self.drop(first)
            first.give_up("ANSWERS_UNREAD")
        metrics.unread(self.total_bytes)

    def drop(self, reader: Reader) -> None:
        """Count one no more: it has read, or is gone."""
        self.total_bytes -= self._sizes.pop(reader, 0)
        metrics.unread(self.total_bytes)
