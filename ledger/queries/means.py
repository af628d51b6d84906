"""The mean of a time over everybody: what an average says while a tail suffers (SLO-2)."""

import sqlite3
from dataclasses import dataclass
from typing import Literal

from ledger.reading import fetch_one

SAMPLE_LIMIT = 20_000  # receipts, the newest of the window

_COLUMNS = {"queue": "queue_us", "ttft": "first_token_us"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean over `count` measured requests, rounded half up to the microsecond."""

    indicator: Literal["queue", "ttft"]
    count: int
    mean_us: int


def mean_over_all(
    connection: sqlite3.Connection,
    indicator: Literal["queue", "ttft"],
    start_us: int,
    end_us: int,
) -> Mean | None:
    """The mean over all current receipts accepted in [start_us, end_us), every slice together.

    Of more than SAMPLE_LIMIT the newest are taken. None where nothing was measured.
    """
    column = _COLUMNS[indicator]
    sql = (
        f"SELECT count({column}), sum({column}) FROM (SELECT {column} "  # noqa: S608 - own names
        "FROM receipt AS found INDEXED BY receipt_time "
        "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND NOT EXISTS (SELECT 1 "
        "FROM receipt AS later WHERE later.request_id = found.request_id "
        "AND later.revision > found.revision) ORDER BY accepted_at_us DESC LIMIT ?)"
    )
    count, total = fetch_one(connection, sql, (start_us, end_us, SAMPLE_LIMIT))
    if not count:
        return None
    return Mean(indicator=indicator, count=count, mean_us=(2 * total + count) // (2 * count))
