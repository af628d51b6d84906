"""A ledger opened by a command that reads it: what is wrong with the file is said in a sentence."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from django.core.management.base import CommandError

from ledger.errors import LedgerError, LedgerNotReady, LedgerUnreadable
from ledger.reading import connect_read_only


@contextmanager
def opened(path: Path | str) -> Iterator[sqlite3.Connection]:
    """A read-only connection to the file at `path`, closed at the end.

    CommandError where there is no ledger, and where a page of it can't be read on the way.
    """
    with readable(path), closing(connect_read_only(path)) as connection:
        yield connection


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """What is found out within about the file at `path` is a CommandError, no traceback."""
    try:
        yield
    except LedgerError as error:
        raise CommandError(str(error)) from error
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such "):  # table or column: of an older version
            raise CommandError(str(LedgerNotReady(str(path), str(error)))) from error
        raise CommandError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise CommandError(str(LedgerUnreadable(str(path), str(error)))) from error
