"""Imported reports, their lines and the currency rates (REC-1).

`as_of_seq`: rows after it are not there, so that a run made again reads the same.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.reading import fetch, fetch_one
from ledger.records import CurrencyRate, Invoice, InvoiceLine
from ledger.rows import Stored, record_of, select, stored

PAGE_ROWS = 1_000
KEYS_LIMIT = 500  # of one statement
LIST_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LateLine:
    """A line that came after its period was locked, and the revision that was in force then."""

    line: InvoiceLine
    before: InvoiceLine | None


def invoice(connection: sqlite3.Connection, invoice_id: str) -> Invoice | None:
    row = fetch_one(connection, f"{select(Invoice)} WHERE invoice_id = ?", (invoice_id,))
    return None if row is None else record_of(Invoice, row)


def imports_of_files(
    connection: sqlite3.Connection, provider: str, format_name: str, files_sha256: str
) -> int:
    """How many imports there are of files with these hashes, as this format of this provider."""
    sql = "SELECT count(*) FROM invoice WHERE provider = ? AND format = ? AND files_sha256 = ?"
    row = fetch_one(connection, sql, (provider, format_name, files_sha256))
    return int(row[0])


def invoices(
    connection: sqlite3.Connection, *, provider: str | None = None, limit: int = LIST_LIMIT
) -> list[Stored[Invoice]]:
    """The newest imports first."""
    where, values = ("", ()) if provider is None else ("WHERE provider = ?", (provider,))
    sql = f"{select(Invoice)} {where} ORDER BY seq DESC LIMIT {min(limit, LIST_LIMIT)}"
    return [stored(Invoice, row) for row in fetch(connection, sql, values)]


def invoices_of_period(
    connection: sqlite3.Connection, provider: str, start_us: int, end_us: int, as_of_seq: int
) -> list[Invoice]:
    """The imports that speak of a part of the period, oldest first."""
    sql = (
        f"{select(Invoice)} WHERE provider = ? AND start_us < ? AND end_us > ? AND seq <= ? "
        "ORDER BY seq"
    )
    values = (provider, end_us, start_us, as_of_seq)
    return [record_of(Invoice, row) for row in fetch(connection, sql, values)]


def newest_lines(connection: sqlite3.Connection, line_ids: Sequence[str]) -> dict[str, InvoiceLine]:
    """The revision in force of each of these lines that the ledger has, by id."""
    found: dict[str, InvoiceLine] = {}
    for start in range(0, len(line_ids), KEYS_LIMIT):
        keys = line_ids[start : start + KEYS_LIMIT]
        places = ",".join("?" * len(keys))
        sql = f"{select(InvoiceLine)} WHERE line_id IN ({places}) ORDER BY line_id, revision"
        for row in fetch(connection, sql, keys):
            line = record_of(InvoiceLine, row)
            found[line.line_id] = line
    return found


def lines_of_period(
    connection: sqlite3.Connection, provider: str, start_us: int, end_us: int, as_of_seq: int
) -> Iterator[InvoiceLine]:
    """The lines that start in the period, in the revision that is in force, by start and id."""
    sql = (
        f"{select(InvoiceLine)} AS line WHERE provider = ? AND seq <= ? "
        "AND (start_us, line_id) > (?, ?) AND start_us < ? AND NOT EXISTS "
        "(SELECT 1 FROM invoice_line AS later WHERE later.line_id = line.line_id "
        "AND later.revision > line.revision AND later.seq <= ?) "
        f"ORDER BY start_us, line_id LIMIT {PAGE_ROWS}"
    )
    after: tuple[int, str] = (start_us, "")
    while True:
        rows = fetch(connection, sql, (provider, as_of_seq, *after, end_us, as_of_seq))
        for row in rows:
            line = record_of(InvoiceLine, row)
            after = (line.start_us, line.line_id)
            yield line
        if len(rows) < PAGE_ROWS:
            return


def late_lines(
    connection: sqlite3.Connection, provider: str, *, before_us: int, after_seq: int, as_of_seq: int
) -> list[LateLine]:
    """Lines from before `before_us` that came after `after_seq`, with what each replaced."""
    sql = (
        f"{select(InvoiceLine)} AS line WHERE provider = ? "
        "AND start_us < ? AND seq > ? AND seq <= ? AND NOT EXISTS "
        "(SELECT 1 FROM invoice_line AS later WHERE later.line_id = line.line_id "
        "AND later.revision > line.revision AND later.seq <= ?) ORDER BY start_us, line_id"
    )
    found = []
    for row in fetch(connection, sql, (provider, before_us, after_seq, as_of_seq, as_of_seq)):
        line = record_of(InvoiceLine, row)
        before = fetch_one(
            connection,
            f"{select(InvoiceLine)} WHERE line_id = ? AND seq <= ? ORDER BY revision DESC LIMIT 1",
            (line.line_id, after_seq),
        )
        found.append(
            LateLine(line=line, before=None if before is None else record_of(InvoiceLine, before))
        )
    return found


def earliest_line_us(
    connection: sqlite3.Connection, provider: str, *, from_us: int, before_us: int, as_of_seq: int
) -> int | None:
    """When the first line in from_us <= start < before_us starts; None where there is none."""
    sql = (
        "SELECT start_us FROM invoice_line WHERE provider = ? AND start_us >= ? AND start_us < ? "
        "AND seq <= ? ORDER BY start_us LIMIT 1"
    )
    row = fetch_one(connection, sql, (provider, from_us, before_us, as_of_seq))
    return None if row is None else int(row[0])


def currency_rate(
    connection: sqlite3.Connection, source: str, target: str, on_day: str, as_of_seq: int
) -> CurrencyRate | None:
    """The newest rate dated on this day or before it, in its last revision.

    A day that no calendar has, which older versions recorded, is none: date() alone would hand on
    a 31st of February as it is, only what is reckoned with becomes another day.
    """
    sql = (
        f"{select(CurrencyRate)} WHERE from_currency = ? AND to_currency = ? AND on_day <= ? "
        "AND date(on_day, '+0 days') = on_day AND seq <= ? "
        "ORDER BY on_day DESC, revision DESC LIMIT 1"
    )
    row = fetch_one(connection, sql, (source, target, on_day, as_of_seq))
    return None if row is None else record_of(CurrencyRate, row)


def newest_rate(
    connection: sqlite3.Connection, source: str, target: str, on_day: str
) -> CurrencyRate | None:
    """The last revision of the rate of exactly this day."""
    sql = (
        f"{select(CurrencyRate)} WHERE from_currency = ? AND to_currency = ? AND on_day = ? "
        "ORDER BY revision DESC LIMIT 1"
    )
    row = fetch_one(connection, sql, (source, target, on_day))
    return None if row is None else record_of(CurrencyRate, row)


def providers(connection: sqlite3.Connection) -> list[str]:
    """Everyone of whom a report was imported, by name, at most LIST_LIMIT."""
    sql = "SELECT DISTINCT provider FROM invoice ORDER BY provider LIMIT ?"
    return [row[0] for row in fetch(connection, sql, (LIST_LIMIT,))]
