"""The receipts of a period as a rate table prices them, streamed (CST-5)."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from ledger.carrying import source
from ledger.reading import fetch
from ledger.records import Attempt
from ledger.what_if import Ran, Served

PAGE_ROWS = 2_000

_FIELDS = Served._fields[:-1]
_SQL = (
    f"SELECT seq, request_id, attempts, {', '.join(_FIELDS)} "
    "FROM receipt AS found INDEXED BY receipt_time "
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND (accepted_at_us, seq) > (?, ?) "
    "AND status <> 'rejected' AND NOT EXISTS (SELECT 1 FROM receipt AS later "
    "WHERE later.request_id = found.request_id AND later.revision > found.revision) "
    "ORDER BY accepted_at_us, seq LIMIT ?"
)
# The last end of each attempt: an unknown that was found out has two.
_ENDS = (
    "SELECT e.attempt_id, e.request_id, e.rate_key, coalesce(e.input_tokens, 0), "
    "coalesce(e.cached_input_tokens, 0), coalesce(e.output_tokens, 0), e.usage_json, "
    "coalesce(e.cost_pico, 0), e.service_tier FROM attempt_event AS e "
    "WHERE e.request_id IN (:requests) AND e.event = 'ended' AND NOT EXISTS "
    "(SELECT 1 FROM attempt_event AS later WHERE later.request_id = e.request_id "
    "AND later.attempt_id = e.attempt_id AND later.event = 'ended' AND later.seq > e.seq) "
    "ORDER BY e.seq"
)
# Apart from them: joined, the attempts of all requests would be read.
_ATTEMPTS = (
    f"SELECT attempt_id, route_id, identity_id FROM {source(Attempt)} "
    "WHERE request_id IN (:requests)"
)


def served(
    connection: sqlite3.Connection, since_us: int, until_us: int, *, page_rows: int = PAGE_ROWS
) -> Iterator[Served]:
    """Every request that was accepted from since_us on and before until_us, in order of time.

    The current receipt of each; rejected ones cost nothing and are left out. Read page by page:
    memory is bounded and no transaction stays open.
    """
    at_us, seq = since_us, -1
    while True:
        rows = fetch(connection, _SQL, (at_us, until_us, at_us, seq, page_rows))
        several = [row["request_id"] for row in rows if row["attempts"] > 1]
        ends = _ends(connection, several) if several else {}
        for row in rows:
            one = Served(*tuple(row)[3:])
            ran = ends.get(row["request_id"])
            yield one if ran is None else _with_attempts(one, ran)
        if len(rows) < page_rows:
            return
        seq, at_us = rows[-1]["seq"], rows[-1]["accepted_at_us"]


def _ends(connection: sqlite3.Connection, requests: Sequence[str]) -> dict[str, list[Ran]]:
    found: dict[str, list[Ran]] = {}
    marks = ", ".join("?" * len(requests))
    attempts = fetch(connection, _ATTEMPTS.replace(":requests", marks), requests)
    place = {attempt_id: (route_id, identity) for attempt_id, route_id, identity in attempts}
    ends = fetch(connection, _ENDS.replace(":requests", marks), requests)
    for attempt_id, request_id, *used in ends:
        if attempt_id in place:
            found.setdefault(request_id, []).append(Ran(*place[attempt_id], *used))
    return found


def _with_attempts(one: Served, ran: Sequence[Ran]) -> Served:
    """The request with the attempts that used anything, but for the one that the receipt itself
    prices: of that its tier, which the receipt of a request of several attempts doesn't say."""
    own: Any = (one.rate_key, one.input_tokens, one.cached_input_tokens, one.output_tokens)
    own += (one.usage_json, one.cost_total_pico - one.cost_retry_and_hedge_pico)
    answered = max((n for n, each in enumerate(ran) if tuple(each)[2:-1] == own), default=-1)
    others = tuple(
        each
        for n, each in enumerate(ran)
        if n != answered and (each.cost_pico or each.input_tokens or each.output_tokens)
    )
    tier = one.service_tier if answered < 0 else ran[answered].service_tier
    return one._replace(others=others, service_tier=tier)
