"""Random bytes for ids, drawn from the operating system in larger parts.

Each drawing gives the interpreter lock away, and taking it back can cost more than a decision.
"""

import os
import threading

DRAWN_BYTES = 4_096


class Pool:
    """Hands out what was drawn, each byte once, to any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn, self._at = b"", 0

    def take(self, size: int) -> bytes:
        """Return so many bytes that nobody had before. Raises ValueError above DRAWN_BYTES."""
        if not 0 <= size <= DRAWN_BYTES:
            raise ValueError(f"0 to {DRAWN_BYTES} bytes are drawn at once, not {size}")
        with self._lock:
            if self._at + size > len(self._drawn):
                self._drawn, self._at = os.urandom(DRAWN_BYTES), 0
            taken = self._drawn[self._at : self._at + size]
            self._at += size
            return taken

    def forget(self) -> None:
        """Draw anew next time: a forked process must not hand out its parent's bytes."""
        self._lock = threading.Lock()
        self._drawn, self._at = b"", 0


_POOL = Pool()
os.register_at_fork(after_in_child=_POOL.forget)
random_bytes = _POOL.take
