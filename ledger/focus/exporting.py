"""Receipts written as a FOCUS 1.2 CSV, streaming, with row count and hash (CST-9)."""

import csv
import hashlib
import io
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import IO

from ledger.focus.charges import HEADINGS, Issuer, Rows
from ledger.queries.charges import ChargeFilter, charged
from ledger.queries.prices import published_tables

CHUNK_ROWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written: rows without the heading, and the hash of all bytes."""

    rows: int
    sha256: str


def chunks(
    connection: sqlite3.Connection,
    wanted: ChargeFilter,
    *,
    issuer: Issuer | None = None,
    zone: tzinfo = UTC,
) -> Iterator[tuple[bytes, int]]:
    """(bytes of a piece of the file, rows in it): the whole filtered set, in constant memory."""
    tables = {table.version: table for table in published_tables(connection)}
    made = Rows(issuer or Issuer(), zone, tables)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(HEADINGS)
    rows = 0
    for one in charged(connection, wanted):
        for cells in made.of(one):
            writer.writerow(cells)
            rows += 1
        if rows >= CHUNK_ROWS:
            yield buffer.getvalue().encode(), rows
            buffer.seek(0)
            buffer.truncate()
            rows = 0
    yield buffer.getvalue().encode(), rows


def write(
    connection: sqlite3.Connection,
    wanted: ChargeFilter,
    out: IO[bytes],
    *,
    issuer: Issuer | None = None,
    zone: tzinfo = UTC,
) -> Exported:
    """Writes the file and says how many rows it has, and its SHA-256."""
    digest, rows = hashlib.sha256(), 0
    for data, count in chunks(connection, wanted, issuer=issuer, zone=zone):
        digest.update(data)
        out.write(data)
        rows += count
    return Exported(rows=rows, sha256=digest.hexdigest())
