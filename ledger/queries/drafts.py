"""Drafts of route policies and rate tables: what is on its way to be published."""

import sqlite3

from ledger.reading import fetch, fetch_one
from ledger.records import Draft
from ledger.rows import record_of, select


def drafts(connection: sqlite3.Connection, kind: str) -> list[Draft]:
    """The newest revision of each draft of a kind, by name."""
    sql = (
        f"{select(Draft)} AS d WHERE kind = ? AND revision = "
        "(SELECT max(revision) FROM draft WHERE kind = d.kind AND name = d.name) ORDER BY name"
    )
    return [record_of(Draft, row) for row in fetch(connection, sql, (kind,))]


def draft(
    connection: sqlite3.Connection, kind: str, name: str, revision: int | None = None
) -> Draft | None:
    """A revision of a draft, the newest where none is named; None where there is no such."""
    wanted = "" if revision is None else "AND revision = ? "
    values = (kind, name) if revision is None else (kind, name, revision)
    sql = f"{select(Draft)} WHERE kind = ? AND name = ? {wanted}ORDER BY revision DESC LIMIT 1"
    row = fetch_one(connection, sql, values)
    return None if row is None else record_of(Draft, row)
