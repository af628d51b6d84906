"""The rollups' contents in a form that can be compared: in order, limbs joined, zeros left out.

Rows of which nothing is left (every receipt was resolved away) count as absent.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from ledger import histograms
from ledger.money import join
from ledger.rollups import packing
from ledger.rollups.tables import (
    COSTS,
    COUNTS,
    DIMENSIONS,
    GRAINS_MIN,
    LATENCIES,
    LATENCY_DIMENSIONS,
    LIVE,
    QUARTER,
)

Row = dict[str, Any]


def totals(connection: sqlite3.Connection) -> Iterator[Row]:
    """Each series' sums in each open quarter hour and each closed bucket of every grain."""
    names = ("series_id", *DIMENSIONS)
    series = {
        values[0]: dict(zip(names[1:], tuple(values)[1:], strict=True))
        for values in connection.execute(f"SELECT {', '.join(names)} FROM {LIVE.name('series')}")
    }
    everything = (-(2**63), 2**63 - 1)
    buckets: dict[tuple[int, int], list[Row]] = {}
    for bucket_us, series_id, *measures in connection.execute(LIVE.range_total, everything):
        row = _joined(QUARTER, bucket_us, series[series_id], measures)
        buckets.setdefault((QUARTER, bucket_us), []).append(row)
    for grain_min in GRAINS_MIN:
        for bucket_us, sums in connection.execute(LIVE.range_packed, (grain_min, *everything)):
            rows = [
                _joined(grain_min, bucket_us, series[series_id], measures)
                for series_id, *measures in packing.unpack((sums,)).tolist()
            ]
            buckets.setdefault((grain_min, bucket_us), []).extend(rows)
    for key in sorted(buckets):
        rows = [row for row in buckets[key] if any(row[count] for count in COUNTS)]
        yield from sorted(rows, key=lambda row: tuple(row[name] for name in DIMENSIONS))


def _joined(grain_min: int, bucket_us: int, series: Row, measures: Sequence[int]) -> Row:
    counts, limbs = measures[: len(COUNTS)], measures[len(COUNTS) :]
    costs = [join(high, low) for high, low in zip(limbs[::2], limbs[1::2], strict=True)]
    return {
        "grain_min": grain_min,
        "bucket_us": bucket_us,
        **series,
        **dict(zip(COUNTS, counts, strict=True)),
        **{f"{cost}_pico": value for cost, value in zip(COSTS, costs, strict=True)},
    }


def latencies(connection: sqlite3.Connection) -> Iterator[Row]:
    """Each histogram as a list of (bucket, count), by grain, bucket and dimensions."""
    names = ("grain_min", "bucket_us", *LATENCY_DIMENSIONS, *LATENCIES)
    sql = (
        f"SELECT {', '.join(names)} "
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
    """Each minute and closed hour of an objective with a valid request."""
    names = ("slo_key", "grain_min", "bucket_us", "good", "valid")
    sql = f"SELECT {', '.join(names)} FROM {LIVE.name('sli')} WHERE valid ORDER BY 1, 2, 3"
    for values in connection.execute(sql):
        yield dict(zip(names, values, strict=True))


CONTENTS = {
    LIVE.name("total"): totals,
    LIVE.name("latency"): latencies,
    LIVE.name("sli"): slis,
}
