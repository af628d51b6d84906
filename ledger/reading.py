"""Read-only connections to a ledger, for every query.

Nothing here may keep a transaction open: an open reader pins the write-ahead log, which then grows
without end. So every statement is fetched to its end (`fetch`), and long walks go by keyset pages
(`pages`), each a statement of its own.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ledger.allocation import stop_counting
from ledger.chain import GENESIS, Head
from ledger.errors import LedgerNotReady, LedgerUnreadable
from ledger.records import CHAINED

BUSY_TIMEOUT_MS = 2_000
PAGE_ROWS = 1_000
CONNECTIONS_LIMIT = 8  # ledgers that one thread keeps open

FOLDER_READ_ONLY = (
    "To read it, too, SQLite keeps a log beside it: make its folder writable for this user"
)
NOT_READABLE = "Run this as the user who owns it, or make it readable for this one"
OTHERWISE = "Look at its disk and its permissions, end other programs that hold it, and try again"

Parameters = Sequence[Any] | Mapping[str, Any]

_local = threading.local()

stop_counting()  # here: nothing opens a ledger without this module


def connect_read_only(path: Path | str) -> sqlite3.Connection:
    """A new read-only connection; rows are `sqlite3.Row`.

    LedgerNotReady where there is no ledger; LedgerUnreadable where a file is no database.
    """
    file = Path(path).resolve()
    try:
        connection = sqlite3.connect(
            f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA query_only=ON")
        connection.execute("SELECT 1 FROM chain_head").fetchall()
    except sqlite3.OperationalError as error:
        raise not_ready(path, error) from error
    except sqlite3.DatabaseError as error:
        raise LedgerUnreadable(str(path), str(error)) from error
    connection.row_factory = sqlite3.Row
    return connection


READ_FAULTS: Final = (LedgerNotReady, LedgerUnreadable, sqlite3.DatabaseError)
"""How a read fails where the file is away, locked or damaged: it may be there again later."""


def not_ready(path: Path | str, error: sqlite3.OperationalError) -> LedgerNotReady:
    """What keeps the file from being opened, and what to do about it."""
    name, file = getattr(error, "sqlite_errorname", ""), Path(path).resolve()
    if name == "SQLITE_READONLY_ROLLBACK":
        what = "a program was killed while it changed the file: a writer has to undo that"
        return LedgerNotReady(str(path), what)
    if name.startswith("SQLITE_READONLY"):
        return LedgerNotReady(str(path), str(error), FOLDER_READ_ONLY)
    if str(error).startswith("no such "):  # table or column: of an older version
        return LedgerNotReady(str(path), str(error))
    if os.path.isdir(file):
        return LedgerNotReady(str(path), "it is a folder", "Name a file with WEIGHBRIDGE_DB")
    if os.path.exists(file) and not os.access(file, os.R_OK):
        return LedgerNotReady(str(path), "this user may not read it", NOT_READABLE)
    if name == "SQLITE_CANTOPEN" and not os.path.exists(file):
        return LedgerNotReady(str(path), "there is no such file")
    return LedgerNotReady(str(path), str(error), OTHERWISE)


def reader(path: Path | str) -> sqlite3.Connection:
    """This thread's read-only connection to the ledger at `path`, opened once and kept.

    A file that was put in another's place (a restore) gets a connection of its own.
    """
    try:
        stat = Path(path).stat()
    except FileNotFoundError as error:
        raise LedgerNotReady(str(path), "there is no such file") from error
    except OSError as error:
        raise LedgerNotReady(str(path), str(error.strerror), OTHERWISE) from error
    kept: dict[tuple[str, int, int], sqlite3.Connection] = _local.__dict__.setdefault("kept", {})
    key = (str(path), stat.st_dev, stat.st_ino)
    connection = kept.get(key)
    if connection is None:
        while len(kept) >= CONNECTIONS_LIMIT:
            kept.pop(next(iter(kept))).close()
        connection = kept[key] = connect_read_only(path)
    return connection


def fetch(connection: sqlite3.Connection, sql: str, values: Parameters = ()) -> list[Any]:
    """Every row of a statement, read to its end at once; for answers of a known, small size."""
    return connection.execute(sql, values).fetchall()


def fetch_one(connection: sqlite3.Connection, sql: str, values: Parameters = ()) -> Any:
    """The first row or None. Read to its end: a statement left half read holds a transaction."""
    rows = connection.execute(sql, values).fetchall()
    return rows[0] if rows else None


def pages(
    connection: sqlite3.Connection,
    sql: str,
    values: Sequence[Any] = (),
    *,
    after_seq: int = 0,
    rows: int = PAGE_ROWS,
) -> Iterator[Any]:
    """All rows of `sql` in seq order, in bounded memory, with no transaction between pages.

    `sql` selects `seq` first and ends in a WHERE condition, to which the keyset is added.
    """
    while True:
        page = fetch(
            connection, f"{sql} AND seq > ? ORDER BY seq LIMIT ?", (*values, after_seq, rows)
        )
        yield from page
        if len(page) < rows:
            return
        after_seq = page[-1][0]


def read_head(connection: sqlite3.Connection) -> Head | None:
    """The chain's head as the last commit left it; None where its row is gone, or was altered so
    that no head can be read from it."""
    row = fetch_one(connection, "SELECT size, entry_hash, frontier FROM chain_head WHERE id = 1")
    if row is None or [type(value) for value in row] != [int, bytes, bytes] or row[0] < 0:
        return None
    return Head(size=row[0], entry_hash=row[1], frontier=row[2])


def entry_hash_at(connection: sqlite3.Connection, seq: int) -> bytes | None:
    """The entry_hash of the row with this seq, whichever table holds it; None where none does.

    Of seq 0, before the first row, it is the genesis: 32 zero bytes.
    """
    if seq == 0:
        return GENESIS
    sql = " UNION ALL ".join(
        f"SELECT entry_hash FROM {record_type.TABLE} WHERE seq = :seq" for record_type in CHAINED
    )
    row = connection.execute(sql, {"seq": seq}).fetchall()
    return bytes(row[0][0]) if row else None
