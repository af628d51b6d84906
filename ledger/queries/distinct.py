"""The values that occur in a column, found by skipping along its index: no scan."""

import sqlite3

from ledger.reading import fetch


def distinct(
    connection: sqlite3.Connection, table: str, column: str, index: str, *, limit: int
) -> tuple[str, ...]:
    """The values in order, at most `limit`, without null and ""; `index` begins with the column.

    Each value is found by one search for the first one above the last.
    """
    above = (
        f"SELECT {column} FROM {table} INDEXED BY {index} "
        f"WHERE {column} IS NOT NULL AND {column} > "
    )
    sql = (
        f"WITH RECURSIVE v(x) AS (SELECT ({above} '' ORDER BY {column} LIMIT 1) "
        f"UNION ALL SELECT ({above} v.x ORDER BY {column} LIMIT 1) FROM v WHERE v.x IS NOT NULL "
        "LIMIT ?) SELECT x FROM v WHERE x IS NOT NULL"
    )
    return tuple(row[0] for row in fetch(connection, sql, (limit,)))
