"""The last word of a command whose database can't be used: words and status 1, no traceback."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TRACEBACK = "--traceback"


@contextmanager
def told_in_words() -> Iterator[None]:
    """Tell, of what a command met in the ledger or the console's database, what is to be done.

    Most commands say it themselves, with `ledger.management.opened`; this is for what Django does
    to a database (`migrate`) and for what nobody thought of. `--traceback` shows it all.
    """
    try:
        yield
    except Exception as error:  # what isn't of a database goes on as it came
        said = _words(error)
        if said is None or TRACEBACK in sys.argv:
            raise
        sys.stderr.write(f"{said}\n")
        sys.exit(1)


def _words(error: Exception) -> str | None:
    """Return a code and a sentence about a database's error; None for one of anything else."""
    from django.conf import settings
    from django.db import DatabaseError

    from ledger.errors import LedgerError
    from ledger.management.opened import in_words

    if isinstance(error, LedgerError):
        return in_words(error, settings.WEIGHBRIDGE_DB)
    cause = error.__cause__ if isinstance(error, DatabaseError) else error
    if not isinstance(cause, sqlite3.DatabaseError):
        return None
    ledger, console = settings.WEIGHBRIDGE_DB, settings.DATABASES["default"]["NAME"]
    return f"{in_words(cause, ledger)} Or it is the console's database, {console}."
