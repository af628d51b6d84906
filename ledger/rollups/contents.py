"""The rollups' contents in a form that can be compared: in order, limbs joined, zeros left out.

Rows of which nothing is left (every receipt was resolved away) count as absent.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

from ledger import histograms
from ledger.money import join
from ledger.rollups.tables import (
    COSTS,
    COUNTS,
    DIMENSIONS,
    LATENCIES,
    LATENCY_DIMENSIONS,
    LIMBS,
    LIVE,
)

Row = dict[str, Any]


def totals(connection: sqlite3.Connection) -> Iterator[Row]:
    """Each row of sums, by grain, bucket and dimensions."""
    names = ("grain_min", "bucket_us", *DIMENSIONS, *COUNTS, *LIMBS)
    sql = (
        f"SELECT {', '.join(names)} "  # noqa: S608 - own names
        f"FROM {LIVE.name('total')} JOIN {LIVE.name('series')} USING (series_id) "
        f"ORDER BY grain_min, bucket_us, {', '.join(DIMENSIONS)}"
    )
    for values in connection.execute(sql):
        row: Row = dict(zip(names, values, strict=True))
        for cost in COSTS:
            row[f"{cost}_pico"] = join(row.pop(f"{cost}_high"), row.pop(f"{cost}_low"))
        if any(row[count] for count in COUNTS):
            yield row


def latencies(connection: sqlite3.Connection) -> Iterator[Row]:
    """Each histogram as a list of (bucket, count), by grain, bucket and dimensions."""
    names = ("grain_min", "bucket_us", *LATENCY_DIMENSIONS, *LATENCIES)
    sql = (
        f"SELECT {', '.join(names)} "  # noqa: S608 - own names
        f"FROM {LIVE.name('latency')} JOIN {LIVE.name('latency_series')} USING (series_id) "
        f"ORDER BY grain_min, bucket_us, {', '.join(LATENCY_DIMENSIONS)}"
    )
    for values in connection.execute(sql):
        row: Row = dict(zip(names, values, strict=True))
        for latency in LATENCIES:
            counts = histograms.unpack((row[latency],))
            row[latency] = [(int(bucket), int(counts[bucket])) for bucket in counts.nonzero()[0]]
        if any(row[latency] for latency in LATENCIES):
            yield row


def slis(connection: sqlite3.Connection) -> Iterator[Row]:
    """Each minute of an objective with a valid request."""
    names = ("slo_key", "minute_us", "good", "valid")
    sql = f"SELECT {', '.join(names)} FROM {LIVE.name('sli')} WHERE valid ORDER BY 1, 2"  # noqa: S608
    for values in connection.execute(sql):
        yield dict(zip(names, values, strict=True))


CONTENTS = {
    LIVE.name("total"): totals,
    LIVE.name("latency"): latencies,
    LIVE.name("sli"): slis,
}
