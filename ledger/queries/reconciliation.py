"""Attempts of a period as a reconciliation sees them; runs, sign-offs and locks (REC-2, REC-3).

`as_of_seq`: rows after it are not there, so that a run made again reads the same.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.carrying import FIRST_ATTEMPT, source
from ledger.reading import fetch, fetch_one
from ledger.records import (
    Attempt,
    AttemptEvent,
    Discrepancy,
    PeriodLock,
    Reconciliation,
    ReconciliationSignOff,
    Reservation,
    Settlement,
)
from ledger.rows import Stored, record_of, select, stored

PAGE_RECEIPTS = 500
LIST_LIMIT = 200
WAIT_LIMIT_US = 24 * 3_600_000_000  # a request may wait so long before its attempt starts

_ATTEMPTS = f"""
WITH ended AS MATERIALIZED (SELECT * FROM {source(AttemptEvent)}
  WHERE request_id IN (:requests) AND event = 'ended' AND seq <= :as_of)
SELECT attempt.attempt_id, attempt.request_id, attempt.route_id, attempt.started_at_us,
       attempt.provider_kind, ended.outcome, ended.provider_request_id, ended.input_tokens,
       ended.cached_input_tokens, ended.output_tokens, ended.cost_pico,
       EXISTS (SELECT 1 FROM {source(Reservation)} AS reservation
               WHERE reservation.request_id = attempt.request_id
               -- The first attempt's bears the request's own id.
               AND (reservation.reservation_id = attempt.attempt_id
                    OR (reservation.reservation_id = attempt.request_id
                        AND attempt.attempt_id = attempt.request_id || '.0'))
               AND NOT EXISTS (SELECT 1 FROM {source(Settlement)} AS settlement
                               WHERE settlement.reservation_id = reservation.reservation_id
                               AND settlement.seq <= :as_of)) AS held
FROM {source(Attempt)} AS attempt LEFT JOIN ended
  ON ended.request_id = attempt.request_id AND ended.attempt_id = attempt.attempt_id
  AND NOT EXISTS (SELECT 1 FROM ended AS later WHERE later.request_id = ended.request_id
                  AND later.attempt_id = ended.attempt_id AND later.seq > ended.seq)
WHERE attempt.request_id IN (:requests) AND attempt.seq <= :as_of ORDER BY attempt.seq
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """An attempt with its last known end; `held`: what was reserved for it is not settled."""

    attempt_id: str
    request_id: str
    route_id: str
    started_at_us: int
    provider_kind: str
    outcome: str | None
    provider_request_id: str | None
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_pico: int
    held: bool


def attempts_of_period(
    connection: sqlite3.Connection, start_us: int, end_us: int, as_of_seq: int
) -> Iterator[AttemptRow]:
    """The attempts that started in the period, of requests that have a receipt, by acceptance."""
    keys = (
        "SELECT accepted_at_us, seq, request_id FROM receipt "
        "WHERE (accepted_at_us, seq) > (?, ?) AND accepted_at_us < ? AND seq <= ? "
        f"AND revision = 0 AND attempts > 0 ORDER BY accepted_at_us, seq LIMIT {PAGE_RECEIPTS}"
    )
    after = (start_us - WAIT_LIMIT_US, 0)
    while True:
        page = fetch(connection, keys, (*after, end_us, as_of_seq))
        for row in _attempts(connection, [key[2] for key in page], as_of_seq):
            if start_us <= row.started_at_us < end_us:
                yield row
        if len(page) < PAGE_RECEIPTS:
            return
        after = (page[-1][0], page[-1][1])


def late_ends(
    connection: sqlite3.Connection, *, before_us: int, after_seq: int, as_of_seq: int
) -> Iterator[tuple[AttemptRow, int]]:
    """Attempts of before `before_us` whose end came after `after_seq`, each with its cost then."""
    keys = (
        f"SELECT seq, request_id, attempt_id FROM {source(AttemptEvent)} "
        "WHERE seq > ? AND seq <= ? AND event = 'ended' ORDER BY seq LIMIT 1000"
    )
    done: set[str] = set()
    after = after_seq
    while True:
        page = fetch(connection, keys, (after, as_of_seq))
        for _, request_id, attempt_id in page:
            if attempt_id in done:
                continue
            for row in _attempts(connection, [request_id], as_of_seq):
                if row.attempt_id == attempt_id and row.started_at_us < before_us:
                    done.add(attempt_id)
                    yield row, _cost_as_of(connection, request_id, attempt_id, after_seq)
        if len(page) < 1_000:
            return
        after = page[-1][0]


def _attempts(
    connection: sqlite3.Connection, request_ids: list[str], as_of_seq: int
) -> Iterator[AttemptRow]:
    if not request_ids:
        return
    named = {f"r{number}": request_id for number, request_id in enumerate(request_ids)}
    places = ",".join(f":{name}" for name in named)
    sql = _ATTEMPTS.replace(":requests", places)
    for row in connection.execute(sql, {"as_of": as_of_seq, **named}).fetchall():
        yield AttemptRow(
            attempt_id=row[0], request_id=row[1], route_id=row[2], started_at_us=row[3],
            provider_kind=row[4], outcome=row[5], provider_request_id=row[6],
            input_tokens=row[7] or 0, cached_input_tokens=row[8] or 0, output_tokens=row[9] or 0,
            cost_pico=row[10] or 0, held=bool(row[11]),
        )  # fmt: skip


def _cost_as_of(
    connection: sqlite3.Connection, request_id: str, attempt_id: str, as_of_seq: int
) -> int:
    row = fetch_one(
        connection,
        f"SELECT cost_pico FROM {source(AttemptEvent)} "
        "WHERE request_id = ? AND attempt_id = ? AND event = 'ended' AND seq <= ? "
        "ORDER BY seq DESC LIMIT 1",
        (request_id, attempt_id, as_of_seq),
    )
    return 0 if row is None else int(row[0] or 0)


def rejected_requests(
    connection: sqlite3.Connection, start_us: int, end_us: int, as_of_seq: int
) -> int:
    """How many requests of the period were refused at admission: they have no attempt."""
    row = fetch_one(
        connection,
        "SELECT count(*) FROM receipt WHERE status = 'rejected' AND accepted_at_us >= ? "
        "AND accepted_at_us < ? AND revision = 0 AND attempts = 0 AND seq <= ?",
        (start_us, end_us, as_of_seq),
    )
    return int(row[0])


def last_lock(
    connection: sqlite3.Connection,
    provider: str,
    *,
    before_us: int | None = None,
    as_of_seq: int | None = None,
) -> PeriodLock | None:
    """The lock of the latest closed period; with `before_us`, of those that began before it."""
    sql = (
        f"{select(PeriodLock)} WHERE provider = :provider "
        "AND (:before IS NULL OR start_us < :before) AND (:as_of IS NULL OR seq <= :as_of) "
        "ORDER BY start_us DESC LIMIT 1"
    )
    values = {"provider": provider, "before": before_us, "as_of": as_of_seq}
    rows = connection.execute(sql, values).fetchall()
    return record_of(PeriodLock, rows[0]) if rows else None


def run(connection: sqlite3.Connection, run_id: str) -> Stored[Reconciliation] | None:
    row = fetch_one(connection, f"{select(Reconciliation)} WHERE run_id = ?", (run_id,))
    return None if row is None else stored(Reconciliation, row)


def runs(
    connection: sqlite3.Connection, *, provider: str | None = None, period: str | None = None
) -> list[Stored[Reconciliation]]:
    """The newest runs first, at most LIST_LIMIT."""
    where, values = [], []
    for name, value in (("provider", provider), ("period", period)):
        if value is not None:
            where.append(f"{name} = ?")
            values.append(value)
    condition = f"WHERE {' AND '.join(where)} " if where else ""
    sql = f"{select(Reconciliation)} {condition}ORDER BY seq DESC LIMIT {LIST_LIMIT}"
    return [stored(Reconciliation, row) for row in fetch(connection, sql, values)]


def discrepancies(
    connection: sqlite3.Connection, run_id: str, *, after: int = -1, limit: int = LIST_LIMIT
) -> list[Discrepancy]:
    """A run's discrepancies from the one after ordinal `after` on."""
    sql = f"{select(Discrepancy)} WHERE run_id = ? AND ordinal > ? ORDER BY ordinal LIMIT ?"
    rows = fetch(connection, sql, (run_id, after, limit))
    return [record_of(Discrepancy, row) for row in rows]


def sign_off(connection: sqlite3.Connection, run_id: str) -> ReconciliationSignOff | None:
    row = fetch_one(connection, f"{select(ReconciliationSignOff)} WHERE run_id = ?", (run_id,))
    return None if row is None else record_of(ReconciliationSignOff, row)


def lock_of_run(connection: sqlite3.Connection, run_id: str) -> PeriodLock | None:
    row = fetch_one(connection, f"{select(PeriodLock)} WHERE run_id = ?", (run_id,))
    return None if row is None else record_of(PeriodLock, row)


def requests_of(connection: sqlite3.Connection, attempt_ids: Sequence[str]) -> tuple[str, ...]:
    """The requests of these attempts, at most LIST_LIMIT, each once, in the attempts' order."""
    keys = attempt_ids[:LIST_LIMIT]
    if not keys:
        return ()
    places = ",".join("?" * len(keys))
    firsts = [key.removesuffix(FIRST_ATTEMPT) for key in keys if key.endswith(FIRST_ATTEMPT)]
    sql = f"SELECT attempt_id, request_id FROM attempt WHERE attempt_id IN ({places})"
    if firsts:
        sql += (
            f" UNION ALL SELECT request_id || '{FIRST_ATTEMPT}', request_id FROM route_decision "
            f"WHERE request_id IN ({','.join('?' * len(firsts))}) AND attempt_kind IS NOT NULL"
        )
    found = {row[0]: row[1] for row in fetch(connection, sql, (*keys, *firsts))}
    return tuple(dict.fromkeys(found[one] for one in keys if one in found))
