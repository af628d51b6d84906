"""What a crash left open: requests that were decided and have no receipt (LED-1, LED-6)."""

import sqlite3

import msgspec

from ledger.carrying import every
from ledger.reading import fetch
from ledger.records import Attempt, AttemptEvent, Reservation, RouteDecision
from ledger.rows import record_of, select


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """A request without a receipt, and all that is known of it."""

    decision: RouteDecision
    reservation: Reservation | None  # None: nothing was reserved, so nothing ran
    attempts: tuple[Attempt, ...]
    events: tuple[AttemptEvent, ...]


def unfinished(connection: sqlite3.Connection) -> tuple[Unfinished, ...]:
    """The requests with a decision and no receipt, in chain order.

    It takes as long as there is open work (`ledger.open_work`), however long the ledger is. To be
    asked at start, before the first new request: later, those in flight are among them.
    """
    sql = f"{select(RouteDecision)} WHERE seq IN (SELECT seq FROM open_request) ORDER BY seq"
    found = [record_of(RouteDecision, row) for row in fetch(connection, sql)]
    return tuple(_unfinished(connection, decision) for decision in found)


def _unfinished(connection: sqlite3.Connection, decision: RouteDecision) -> Unfinished:
    def of_request(sql: str) -> list[sqlite3.Row]:
        return fetch(connection, f"{sql} WHERE request_id = ? ORDER BY seq", (decision.request_id,))

    reservations = of_request(every(Reservation))
    return Unfinished(
        decision=decision,
        reservation=record_of(Reservation, reservations[0]) if reservations else None,
        attempts=tuple(record_of(Attempt, row) for row in of_request(every(Attempt))),
        events=tuple(record_of(AttemptEvent, row) for row in of_request(every(AttemptEvent))),
    )
