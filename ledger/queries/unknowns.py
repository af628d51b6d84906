"""The attempts whose end nobody knows yet, each with the money held for it (PRV-3, LED-6).

An attempt is an open unknown while its reservation is open, its request has a receipt, and its last
known end is `unknown` (or it has none, where a crash took the process). What still runs is none.
"""

import sqlite3
from dataclasses import dataclass

from ledger.carrying import CARRIED, FIRST_ATTEMPT
from ledger.money import join
from ledger.queries.dossier import Dossier, dossier
from ledger.queries.holds import reservation as reservation_of
from ledger.reading import fetch_one
from ledger.records import Attempt, AttemptEvent, Receipt, Reservation
from ledger.rows import Stored

UNKNOWNS_LIMIT = 1_000  # listed at once; the sums are of all

# What is held is settled by no receipt, so the ends of its attempts are rows of their own. A hold
# and its attempt have rows of their own, or the decision's row carries both: each is looked up for
# itself, for SQLite would read all of a union of both inside a join.
_OPEN = f"""
FROM open_hold AS h
LEFT JOIN reservation AS v ON v.reservation_id = h.reservation_id
JOIN receipt AS r ON r.request_id = coalesce(v.request_id, h.reservation_id) AND NOT EXISTS
  (SELECT 1 FROM receipt WHERE request_id = r.request_id AND revision > r.revision)
LEFT JOIN attempt AS a ON a.attempt_id = CASE WHEN h.reservation_id = r.request_id
  THEN r.request_id || '{FIRST_ATTEMPT}' ELSE h.reservation_id END
LEFT JOIN route_decision AS d ON a.attempt_id IS NULL AND h.reservation_id = r.request_id
  AND d.request_id = r.request_id AND {CARRIED[Attempt].present}
LEFT JOIN attempt_event AS e ON e.request_id = r.request_id
  AND e.attempt_id = coalesce(a.attempt_id, r.request_id || '{FIRST_ATTEMPT}')
  AND e.event = 'ended' AND NOT EXISTS (SELECT 1 FROM attempt_event AS later
    WHERE later.request_id = e.request_id AND later.attempt_id = e.attempt_id
    AND later.event = 'ended' AND later.seq > e.seq)
WHERE (a.attempt_id IS NOT NULL OR d.request_id IS NOT NULL)
  AND (e.outcome = 'unknown' OR (e.outcome IS NULL AND r.status = 'unknown'))
  AND (:tenant IS NULL OR h.tenant_id = :tenant)
"""
_LIST = f"""
SELECT coalesce(a.attempt_id, r.request_id || '{FIRST_ATTEMPT}'), r.request_id, h.tenant_id,
  coalesce(a.kind, d.attempt_kind), coalesce(a.route_id, d.route_id),
  coalesce(a.provider_kind, d.attempt_provider_kind),
  coalesce(e.at_us, r.ended_at_us), coalesce(e.error_code, r.terminal_error_code),
  e.provider_request_id, r.status, h.cost_pico, r.policy_revision, coalesce(e.output_tokens, 0)
{_OPEN} ORDER BY h.seq LIMIT :limit
"""
_SUM = (
    "SELECT count(*), sum(cost_pico >> 32), sum(cost_pico & 4294967295) "
    f"FROM (SELECT h.cost_pico {_OPEN})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An open unknown as a list has it."""

    attempt_id: str
    request_id: str
    tenant_id: str
    kind: str
    route_id: str
    provider_kind: str
    since_us: int
    code: str | None
    provider_request_id: str | None
    request_status: str  # unknown, or how the request ended beside it
    held_pico: int
    policy_revision: str  # under which it was sent
    output_tokens: int  # that were seen of it


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenUnknown:
    """One open unknown with all that the ledger holds of its request."""

    reservation: Reservation
    attempt: Attempt
    receipt: Stored[Receipt]  # the request's current one
    found: Dossier

    @property
    def attempt_id(self) -> str:
        return self.attempt.attempt_id

    @property
    def answering(self) -> bool:
        """Whether the request's own end hangs on it: else it is a retry or a hedge beside it.

        Of the attempts on the receipt's route whose end was unknown, it is the one that ended when
        the request did: a retry or a hedge after it may have ended otherwise, and first.
        """
        receipt = self.receipt.record
        if receipt.status != "unknown":
            return False
        lost: list[str] = []
        then: list[str] = []
        for attempt in (each.record for each in self.found.attempts):
            ends = ends_of(self.found, attempt.attempt_id)
            if attempt.route_id == receipt.route_id and (not ends or ends[0].outcome == "unknown"):
                lost.append(attempt.attempt_id)
                if not ends or ends[0].at_us == receipt.ended_at_us:
                    then.append(attempt.attempt_id)
        return self.attempt_id in (then or lost)[-1:]


def open_unknowns(
    connection: sqlite3.Connection, tenant_id: str | None = None, limit: int = UNKNOWNS_LIMIT
) -> list[Listed]:
    """The open unknowns of a tenant, or of all, the oldest first, at most `limit`."""
    values = {"tenant": tenant_id, "limit": limit}
    rows = connection.execute(_LIST, values).fetchall()
    return [Listed(**dict(zip(Listed.__slots__, tuple(row), strict=True))) for row in rows]


def at_risk(connection: sqlite3.Connection, tenant_id: str | None = None) -> tuple[int, int]:
    """(how many open unknowns, the money held for them in pico units) of a tenant, or of all."""
    row = connection.execute(_SUM, {"tenant": tenant_id}).fetchall()[0]
    return int(row[0]), join(row[1] or 0, row[2] or 0)


def open_unknown(connection: sqlite3.Connection, attempt_id: str) -> OpenUnknown | None:
    """The open unknown of an attempt; None where there is none."""
    request_id, _, ordinal = attempt_id.rpartition(".")
    reservation = reservation_of(connection, request_id if ordinal == "0" else attempt_id)
    if reservation is None:
        return None
    sql = "SELECT 1 FROM open_hold WHERE reservation_id = ?"
    if fetch_one(connection, sql, (reservation.reservation_id,)) is None:
        return None
    found = dossier(connection, reservation.request_id)
    if found is None:
        return None
    attempt = next((a.record for a in found.attempts if a.record.attempt_id == attempt_id), None)
    ended = last_end(found, attempt_id)
    if attempt is None or (ended is not None and ended.outcome != "unknown"):
        return None
    if ended is None and found.current.record.status != "unknown":
        return None  # a loser that is being cancelled
    return OpenUnknown(reservation=reservation, attempt=attempt, receipt=found.current, found=found)


def ends_of(found: Dossier, attempt_id: str) -> list[AttemptEvent]:
    """The events that say how an attempt ended: what was known at once, then what was found out."""
    return [
        event.record
        for event in found.attempt_events
        if event.record.attempt_id == attempt_id and event.record.event == "ended"
    ]


def last_end(found: Dossier, attempt_id: str) -> AttemptEvent | None:
    """The event that says how an attempt ended, as far as is known: of several the last."""
    ends = ends_of(found, attempt_id)
    return ends[-1] if ends else None
