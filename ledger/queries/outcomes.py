"""Outcome reports as they stand: what was said of a request, and whether it was said already."""

import sqlite3
from collections.abc import Sequence

from ledger.reading import fetch, fetch_one
from ledger.records import OutcomeReport
from ledger.rows import record_of, select

REPORTS_LIMIT = 1_000  # of one request


def reports_of(connection: sqlite3.Connection, request_id: str) -> list[OutcomeReport]:
    """The reports of a request in chain order, at most REPORTS_LIMIT."""
    sql = f"{select(OutcomeReport)} WHERE request_id = ? ORDER BY seq LIMIT {REPORTS_LIMIT}"
    return [record_of(OutcomeReport, row) for row in fetch(connection, sql, (request_id,))]


def report(connection: sqlite3.Connection, outcome_id: str) -> OutcomeReport | None:
    """The report of an id; None where there is none."""
    sql = f"{select(OutcomeReport)} WHERE outcome_id = ?"
    row = fetch_one(connection, sql, (outcome_id,))
    return None if row is None else record_of(OutcomeReport, row)


def tenants_of(connection: sqlite3.Connection, request_ids: Sequence[str]) -> dict[str, str]:
    """The tenant of each request that has a receipt, by request_id."""
    found = {}
    for request_id in request_ids:
        sql = "SELECT tenant_id FROM receipt WHERE request_id = ? AND revision = 0"
        row = fetch_one(connection, sql, (request_id,))
        if row is not None:
            found[request_id] = row[0]
    return found
