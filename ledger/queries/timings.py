"""When the requests of one route arrived, spoke first and ended: what a calibration reads.

`completed_timings` returns one row a request. Source: SIM-1, DLV-1.
"""

import sqlite3
from dataclasses import dataclass

from ledger.reading import fetch

TIMINGS_LIMIT = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One completed request. Times in µs UTC, lengths in tokens."""

    accepted_at_us: int
    first_token_at_us: int
    ended_at_us: int
    input_tokens: int
    output_tokens: int


def completed_timings(
    connection: sqlite3.Connection,
    route_id: str,
    *,
    from_us: int,
    until_us: int,
    limit: int = TIMINGS_LIMIT,
) -> tuple[Timing, ...]:
    """The latest `limit` (50,000 at most) accepted in [from_us, until_us), oldest first.

    Only requests that one attempt completed with a measured first token: a retried or hedged one
    waited for reasons that no replica explains.
    """
    rows = fetch(
        connection,
        "SELECT accepted_at_us, accepted_at_us + first_token_us, accepted_at_us + e2e_us,"
        " input_tokens, output_tokens FROM receipt"
        " WHERE route_id = ? AND accepted_at_us >= ? AND accepted_at_us < ?"
        " AND status = 'completed' AND attempts = 1 AND revision = 0"
        " AND first_token_us IS NOT NULL AND e2e_us >= first_token_us AND first_token_us >= 0"
        " AND input_tokens > 0 AND output_tokens > 0"
        " ORDER BY accepted_at_us DESC, seq DESC LIMIT ?",
        (route_id, from_us, until_us, max(0, min(limit, TIMINGS_LIMIT))),
    )
    return tuple(
        Timing(
            accepted_at_us=row[0],
            first_token_at_us=row[1],
            ended_at_us=row[2],
            input_tokens=row[3],
            output_tokens=row[4],
        )
        for row in reversed(rows)
    )
