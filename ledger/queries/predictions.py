"""What was learned of routes' speed, and the receipts that it is learned from (ADM-5)."""

import sqlite3
from typing import NamedTuple

from ledger.queries.configuration import records_upto
from ledger.reading import fetch, fetch_one
from ledger.records import PredictionRevision

READ_LIMIT = 20_000  # receipts at once


class Served(NamedTuple):
    """A completed request's place, route and times; `decode_us`: from first token to last."""

    seq: int
    route_id: str
    identity_id: str
    input_tokens: int
    output_tokens: int
    prefill_us: int
    decode_us: int | None


def predictions(
    connection: sqlite3.Connection, upto_seq: int | None = None
) -> tuple[list[PredictionRevision], int]:
    """(revisions in chain order, the seq of the last of them; 0 of none), up to a place."""
    return records_upto(connection, PredictionRevision, upto_seq)


def served_after(connection: sqlite3.Connection, after_seq: int) -> tuple[list[Served], int]:
    """(completed receipts beyond a place, in order; how far was read), at most READ_LIMIT receipts.

    Receipts of a single attempt alone: of several, the times are not those of one route.
    """
    sql = (
        "SELECT seq, route_id, identity_id, input_tokens, output_tokens, prefill_us, decode_us, "
        "status, attempts FROM receipt WHERE seq > ? ORDER BY seq LIMIT ?"
    )
    rows = fetch(connection, sql, (after_seq, READ_LIMIT))
    found = [
        Served(*row[:7])
        for row in rows
        if row["status"] == "completed"
        and row["attempts"] == 1
        and row["prefill_us"] is not None
        and row["route_id"] is not None
    ]
    return found, rows[-1]["seq"] if rows else after_seq


def place_of_recent(connection: sqlite3.Connection) -> int:
    """A place in the chain beyond which there are at most READ_LIMIT receipts."""
    sql = "SELECT seq FROM receipt ORDER BY seq DESC LIMIT 1 OFFSET ?"
    row = fetch_one(connection, sql, (READ_LIMIT,))
    return 0 if row is None else int(row[0])
