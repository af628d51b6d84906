"""What commands that print lists have in common: `… | head` ends them quietly."""

import os
import sys

from django.core.management.base import BaseCommand

READER_GONE = 141  # what a shell shows of a tool that SIGPIPE ended: neither 0 nor a finding


class ListingCommand(BaseCommand):
    """A command whose reader may leave before the end: it stops then, says nothing, exits 141."""

    def run_from_argv(self, argv: list[str]) -> None:
        """As Django's. What is still buffered is written here, where a gone reader is no fault."""
        try:
            try:
                super().run_from_argv(argv)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes once more as it ends: that must go somewhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(READER_GONE) from None
