"""Whose requests are bad under an objective: by route, tenant, model or arm, one by one read."""

import sqlite3
from collections import Counter

from ledger.queries.means import Measured
from ledger.slo import SloDefinition, judge

SAMPLE_LIMIT = 2_000  # receipts, the newest of the window: enough to name the worst
ARMS_LIMIT = 200_000  # receipts of a release since its step began

_NEWEST = (
    f"SELECT {', '.join(Measured._fields)} FROM receipt AS found INDEXED BY receipt_time "
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? {} AND NOT EXISTS (SELECT 1 "
    "FROM receipt AS later WHERE later.request_id = found.request_id "
    "AND later.revision > found.revision) ORDER BY accepted_at_us DESC LIMIT ?"
)


def by_bad(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    start_us: int,
    end_us: int,
    column: str,
) -> list[str]:
    """The values of a column by how many bad requests they have, the worst first, then by name."""
    bad: Counter[str] = Counter()
    for one in _rows(connection, _NEWEST.format(""), (start_us, end_us, SAMPLE_LIMIT)):
        name = getattr(one, column)
        if name and judge(definition, one) == "bad":
            bad[name] += 1
    return sorted(bad, key=lambda name: (-bad[name], name))


def bad_by_arm(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    release_id: str,
    start_us: int,
    end_us: int,
) -> tuple[int, int]:
    """(bad of the baseline, bad of the canary) among a release's requests.

    None of either above ARMS_LIMIT requests: a part of them would be no evidence under peeking.
    """
    sql = _NEWEST.format("AND release_id = ?")
    rows = _rows(connection, sql, (start_us, end_us, release_id, ARMS_LIMIT + 1))
    if len(rows) > ARMS_LIMIT:
        return 0, 0
    found = [one.arm for one in rows if judge(definition, one) == "bad"]
    return found.count("baseline"), found.count("canary")


def _rows(
    connection: sqlite3.Connection, sql: str, values: tuple[int | str, ...]
) -> list[Measured]:
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples: thousands of rows
    return [Measured._make(row) for row in cursor.execute(sql, values).fetchall()]
