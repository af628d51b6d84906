r"""Characters whose two escaped halves came in two chunks (PRV-2). Pure, incremental.

A server that escapes to ASCII and cuts its text anywhere writes `"\ud83d"`, then `"\ude42"`.
Neither is JSON, for a half is no character; together they are one.
"""

import re

_ESCAPES = rb"(?<!\\)(?:\\\\)*"  # so that what follows is an escape, and not an escaped backslash
_CUT = re.compile(_ESCAPES + rb'(\\u[dD][89abAB][0-9a-fA-F]{2})"')
_REST = re.compile(rb'(?<!\\)"(\\u[dD][c-fC-F][0-9a-fA-F]{2})')


class SplitPairs:
    """Holds a first half from one event to the next one that has a text."""

    def __init__(self) -> None:
        self.held = b""

    def mended(self, data: bytes) -> bytes | None:
        """Return an event's JSON with whole characters: the held half before its other one.

        A first half at a string's end is taken out and held. None: a half has no other one.
        """
        if self.held:
            found = _REST.search(data)
            if found is None:
                return None
            data = data[: found.start(1)] + self.held + data[found.start(1) :]
            self.held = b""
        cut = _CUT.search(data)
        if cut is not None:
            self.held = cut[1]
            data = data[: cut.start(1)] + data[cut.end(1) :]
        return data
