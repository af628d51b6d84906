"""What all commands have in common: `… | head` ends them quietly."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

READER_GONE = 141  # what a shell shows of a tool that SIGPIPE ended: neither 0 nor a finding


@contextmanager
def quiet_without_a_reader() -> Iterator[None]:
    """End a command whose reader leaves before the end: it says nothing more and exits 141.

    What is still buffered is written here, where a reader that is gone is no fault.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more as it ends: that must go somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(READER_GONE) from None
