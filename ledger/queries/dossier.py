"""Everything that the ledger holds of one request, for its page and its proof."""

import sqlite3
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from ledger.carrying import CARRIED, every
from ledger.rates import RateTable
from ledger.reading import entry_hash_at, fetch, read_head
from ledger.records import (
    Attempt,
    AttemptEvent,
    ModelIdentity,
    RateTableRecord,
    Receipt,
    Record,
    Reservation,
    RouteDecision,
    Settlement,
    TraceEvent,
)
from ledger.rows import Stored, select, stored

ROWS_LIMIT = 200  # of one table for one request

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """One request's records, oldest first; `receipts` ends with the current one."""

    receipts: tuple[Stored[Receipt], ...]
    prev_hash: bytes | None  # of the current receipt: entry_hash of the row before it
    chain_size: int
    decision: Stored[RouteDecision] | None
    identity: ModelIdentity | None
    rates: RateTable | None
    reservations: tuple[Stored[Reservation], ...]
    settlements: tuple[Stored[Settlement], ...]
    attempts: tuple[Stored[Attempt], ...]
    attempt_events: tuple[Stored[AttemptEvent], ...]
    trace_events: tuple[Stored[TraceEvent], ...]

    @property
    def current(self) -> Stored[Receipt]:
        return self.receipts[-1]


def dossier(connection: sqlite3.Connection, request_id: str) -> Dossier | None:
    """The request's records; None where the ledger has no receipt of it (yet)."""
    receipts = _rows(connection, Receipt, "request_id", request_id, order="revision")
    if not receipts:
        return None
    current = receipts[-1]
    identities = _rows(connection, ModelIdentity, "identity_id", current.record.identity_id)
    tables = _rows(connection, RateTableRecord, "version", current.record.rate_table_version)
    decisions = _rows(connection, RouteDecision, "request_id", request_id)
    reservations = _rows(connection, Reservation, "request_id", request_id)
    settlements = [
        found
        for held in reservations
        for found in _rows(connection, Settlement, "reservation_id", held.record.reservation_id)
    ]
    head = read_head(connection)
    return Dossier(
        receipts=receipts,
        prev_hash=entry_hash_at(connection, current.seq - 1),
        chain_size=head.size if head else 0,
        decision=decisions[0] if decisions else None,
        identity=identities[0].record if identities else None,
        rates=msgspec.json.decode(tables[0].record.body_json, type=RateTable) if tables else None,
        reservations=reservations,
        settlements=tuple(settlements),
        attempts=_rows(connection, Attempt, "request_id", request_id),
        attempt_events=_rows(connection, AttemptEvent, "request_id", request_id),
        trace_events=_rows(connection, TraceEvent, "request_id", request_id),
    )


def _rows(
    connection: sqlite3.Connection,
    record_type: type[R],
    column: str,
    value: str | None,
    order: str = "seq",
) -> tuple[Stored[R], ...]:
    if value is None:
        return ()
    rows = every(record_type) if record_type in CARRIED else select(record_type)
    sql = f"{rows} WHERE {column} = ? ORDER BY {order} LIMIT {ROWS_LIMIT}"
    return tuple(stored(record_type, row) for row in fetch(connection, sql, (value,)))
