"""Counts of texts that come again: a system prompt, tool definitions, the turns of a chat so far.

An agent sends its whole history with each call, and to count it takes a microsecond a token; to
hash it takes a hundredth of that. No text is kept: a hash under a key of this process stands for
it, of 128 bits, so that no caller can make two texts that are taken for one another.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable

from gateway.randomness import random_bytes

WORTH_CHARS = 512  # below, what is saved is less than what looking for it costs the others
TEXTS_LIMIT = 16_384  # remembered of one vocabulary: some 3 MB
HASH_BYTES = 16


class RememberedCounts:
    """What `count` returns of each text, computed once while it is remembered; for any thread."""

    def __init__(self, count: Callable[[str], int], texts_limit: int = TEXTS_LIMIT) -> None:
        self._count, self._limit = count, texts_limit
        self._key = random_bytes(HASH_BYTES)
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._changing = threading.Lock()

    def __call__(self, text: str) -> int:
        """Return a text's tokens. It has no lone surrogates (`countable`)."""
        if len(text) < WORTH_CHARS:
            return self._count(text)
        name = hashlib.blake2b(text.encode(), digest_size=HASH_BYTES, key=self._key).digest()
        with self._changing:
            tokens = self._counts.get(name)
            if tokens is not None:
                self._counts.move_to_end(name)
                return tokens
        tokens = self._count(text)
        with self._changing:
            self._counts[name] = tokens
            if len(self._counts) > self._limit:
                self._counts.popitem(last=False)
        return tokens
