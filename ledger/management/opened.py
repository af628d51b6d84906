"""A ledger opened by a command: what is wrong with the file is said in a sentence, with a code."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from django.core.management.base import CommandError

from ledger.errors import LedgerError, LedgerNotReady, LedgerUnreadable
from ledger.reading import OTHERWISE, connect_read_only, not_ready


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
    except (LedgerError, sqlite3.DatabaseError) as error:
        raise CommandError(in_words(error, path)) from error
    except msgspec.MsgspecError as error:  # a text of a row that is read as JSON
        found = LedgerUnreadable(str(path), "a row of it isn't what was ever written")
        raise CommandError(in_words(found, path)) from error
    except OSError as error:
        if not str(error.filename).startswith(str(Path(path).resolve())):
            raise  # of another file
        gone = LedgerNotReady(str(path), f"{error.filename}: {error.strerror}", OTHERWISE)
        raise CommandError(in_words(gone, path)) from error


def in_words(error: LedgerError | sqlite3.DatabaseError, path: Path | str) -> str:
    """Its code, which stays, and what is wrong with the ledger at `path`, where, what to do."""
    if isinstance(error, sqlite3.OperationalError):
        error = not_ready(path, error)
    elif isinstance(error, sqlite3.DatabaseError):
        error = LedgerUnreadable(str(path), str(error))
    return f"{error.code}: {error}"
