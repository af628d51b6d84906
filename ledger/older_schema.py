"""A file of an older version, read as today's, so that a backup of it can be proved (LED-8).

A row's hash covers the fields of the version that wrote it, so what a file lacks beside them is
read as empty, and a row that should have it doesn't agree with its hash.
"""

import sqlite3
from pathlib import Path

from ledger.archive_tables import CREATE as ARCHIVE_TABLES
from ledger.block_roots import CREATE as BLOCK_TABLE
from ledger.reading import connect_read_only, fetch
from ledger.records import CHAINED, ArchivedRow
from ledger.rows import HEAD_COLUMNS


def as_of_today(connection: sqlite3.Connection) -> bool:
    """Whether the file lacks tables or columns; from now on this connection reads them as empty.

    They are views and empty tables of the connection alone: the file stays as it is.
    """
    statements = []
    for record_type in CHAINED:
        has = _columns(connection, record_type.TABLE)
        wanted = (*HEAD_COLUMNS, *record_type.__struct_fields__)
        if not has:
            statements.append(f"CREATE TEMP TABLE {record_type.TABLE} ({', '.join(wanted)})")
        elif not has.issuperset(wanted):
            shown = ", ".join(name if name in has else f"NULL AS {name}" for name in wanted)
            view = f"SELECT {shown} FROM main.{record_type.TABLE}"
            statements.append(f"CREATE TEMP VIEW {record_type.TABLE} AS {view}")
    for sql in (*ARCHIVE_TABLES, BLOCK_TABLE):
        table = sql.split()[2]
        if table != ArchivedRow.TABLE and not _columns(connection, table):
            statements.append(sql.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
    if statements:
        connection.execute("PRAGMA query_only=OFF")
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA query_only=ON")
    return bool(statements)


def connect_as_of_today(file: Path) -> sqlite3.Connection:
    """A read-only connection to a ledger or archive that an older version may have made."""
    connection = connect_read_only(file)
    as_of_today(connection)
    return connection


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[1] for row in fetch(connection, f"PRAGMA main.table_info({table})"))
