"""The mean of a time over everybody: what an average says while a tail suffers (SLO-2)."""

import sqlite3
from dataclasses import dataclass

from ledger.reading import fetch_one

SAMPLE_LIMIT = 10_000  # receipts, the newest of the window

_SQL = (
    "SELECT count(queue_us), sum(queue_us), count(first_token_us), sum(first_token_us) "
    "FROM (SELECT queue_us, first_token_us FROM receipt AS found INDEXED BY receipt_time "
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND NOT EXISTS (SELECT 1 "
    "FROM receipt AS later WHERE later.request_id = found.request_id "
    "AND later.revision > found.revision) ORDER BY accepted_at_us DESC LIMIT ?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean over `count` measured requests, rounded half up to the microsecond."""

    count: int
    mean_us: int


def means_over_all(connection: sqlite3.Connection, start_us: int, end_us: int) -> dict[str, Mean]:
    """The means over all current receipts accepted in [start_us, end_us), every slice together.

    Of more than SAMPLE_LIMIT the newest are taken. What nothing was measured of is left out.
    """
    row = fetch_one(connection, _SQL, (start_us, end_us, SAMPLE_LIMIT))
    found: dict[str, Mean] = {}
    pairs: tuple[tuple[str, int, int | None], ...] = (
        ("queue", row[0], row[1]),
        ("ttft", row[2], row[3]),
    )
    for name, count, total in pairs:
        if count and total is not None:
            found[name] = Mean(count=count, mean_us=(2 * total + count) // (2 * count))
    return found
