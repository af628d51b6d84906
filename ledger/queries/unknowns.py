"""The attempts whose end nobody knows yet, each with the money held for it (PRV-3, LED-6)."""

import sqlite3
from dataclasses import dataclass

from ledger.money import total
from ledger.queries.dossier import Dossier, dossier
from ledger.queries.holds import open_reservations
from ledger.records import Attempt, AttemptEvent, Receipt, Reservation
from ledger.rows import Stored

UNKNOWNS_LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenUnknown:
    """One attempt that may have run, and what it holds until evidence or a person settles it."""

    reservation: Reservation
    attempt: Attempt
    ended: AttemptEvent | None  # None: filed at a start, after a crash
    receipt: Stored[Receipt]  # the request's current one
    found: Dossier

    @property
    def attempt_id(self) -> str:
        return self.attempt.attempt_id

    @property
    def since_us(self) -> int:
        return self.ended.at_us if self.ended else self.receipt.record.ended_at_us

    @property
    def answering(self) -> bool:
        """Whether the request's own end hangs on it: else it is a retry or a hedge beside it."""
        if self.receipt.record.status != "unknown":
            return False
        last = [a.record for a in self.found.attempts if a.record.route_id == self._route_id]
        return bool(last) and last[-1].attempt_id == self.attempt_id

    @property
    def _route_id(self) -> str | None:
        return self.receipt.record.route_id


def open_unknowns(connection: sqlite3.Connection) -> list[OpenUnknown]:
    """Every open unknown, the oldest first; at most UNKNOWNS_LIMIT. What still runs is none."""
    found = []
    for reservation in open_reservations(connection)[:UNKNOWNS_LIMIT]:
        one = _open(connection, reservation)
        if one is not None:
            found.append(one)
    return found


def open_unknown(connection: sqlite3.Connection, attempt_id: str) -> OpenUnknown | None:
    """The open unknown of an attempt; None where there is none."""
    for reservation in open_reservations(connection):
        if attempt_of(reservation) == attempt_id:
            return _open(connection, reservation)
    return None


def money_at_risk_pico(unknowns: list[OpenUnknown]) -> int:
    return total(one.reservation.cost_pico for one in unknowns)


def attempt_of(reservation: Reservation) -> str:
    """The attempt that a reservation is for: the first one's bears the request's own id."""
    if reservation.reservation_id == reservation.request_id:
        return f"{reservation.request_id}.0"
    return reservation.reservation_id


def last_end(found: Dossier, attempt_id: str) -> AttemptEvent | None:
    """The event that says how an attempt ended, as far as is known: of several the last."""
    events = [
        event.record
        for event in found.attempt_events
        if event.record.attempt_id == attempt_id and event.record.event == "ended"
    ]
    return events[-1] if events else None


def _open(connection: sqlite3.Connection, reservation: Reservation) -> OpenUnknown | None:
    """None where the request, or this attempt of it, is still under way."""
    found = dossier(connection, reservation.request_id)
    if found is None:
        return None
    attempt_id = attempt_of(reservation)
    attempt = next((a.record for a in found.attempts if a.record.attempt_id == attempt_id), None)
    ended = last_end(found, attempt_id)
    if attempt is None or (ended is not None and ended.outcome != "unknown"):
        return None
    if ended is None and found.current.record.status != "unknown":
        return None  # a loser that is being cancelled
    return OpenUnknown(
        reservation=reservation, attempt=attempt, ended=ended, receipt=found.current, found=found
    )
