"""Requests with several attempts, and how each of those ended (SPEC 6)."""

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple


class AttemptEnd(NamedTuple):
    """One attempt's end beside the receipt that it is part of."""

    request_id: str
    receipt_seq: int
    rate_table_version: str
    priority: str
    accepted_at_us: int
    attempts: int
    cost_retry_and_hedge_pico: int
    cost_total_pico: int
    receipt_rate_key: str | None
    seq: int
    attempt_id: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    usage_json: str | None
    rate_key: str | None
    cost_pico: int


_ENDS = (
    "SELECT r.request_id, r.seq, r.rate_table_version, r.priority, r.accepted_at_us, r.attempts, "
    "r.cost_retry_and_hedge_pico, r.cost_total_pico, r.rate_key, e.seq, e.attempt_id, "
    "coalesce(e.input_tokens, 0), coalesce(e.cached_input_tokens, 0), "
    "coalesce(e.output_tokens, 0), e.usage_json, e.rate_key, coalesce(e.cost_pico, 0) "
    "FROM receipt AS r JOIN attempt_event AS e ON e.request_id = r.request_id "
    "AND e.event = 'ended' AND e.seq < r.seq "
    "WHERE r.seq <= ? AND r.revision = 0 AND r.attempts > 1 ORDER BY r.seq, e.seq"
)


def ends_of_many(connection: sqlite3.Connection, size: int) -> Iterator[tuple[AttemptEnd, ...]]:
    """The ends of the attempts of each request that had several, by their receipt's place.

    Of the first `size` rows; what was filed after a receipt is no part of it.
    """
    cursor = connection.cursor()
    cursor.row_factory = None
    rows = map(AttemptEnd._make, cursor.execute(_ENDS, (size,)))
    for _, ends in groupby(rows, key=lambda end: end.receipt_seq):
        yield tuple(ends)
