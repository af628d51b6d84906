"""What the sums of archived months say of themselves: for the audit, which has no archive at hand.

Nothing else in the ledger has their content, but each of them is kept in several grains, and how
many requests they are sums of is known.
"""

import sqlite3

import numpy as np

from ledger.reading import fetch_one
from ledger.rollups import packing
from ledger.rollups.packing import Matrix
from ledger.rollups.tables import ARCHIVED, COUNTS, MEASURES, QUARTER

LEAST_US, MOST_US = -(2**63), 2**63 - 1

_SERIES = ARCHIVED.name("series")
_RECEIPTS = COUNTS.index("receipts")
_EXTENT = (
    "SELECT min(bucket_us), max(bucket_us) FROM (SELECT bucket_us FROM "
    f"{ARCHIVED.name('total')} UNION ALL SELECT bucket_us FROM {ARCHIVED.name('packed')} "
    f"WHERE grain_min = {QUARTER})"
)


def has_archived(connection: sqlite3.Connection) -> bool:
    """Whether the ledger keeps sums of archived months: since its first archive."""
    sql = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return fetch_one(connection, sql, (ARCHIVED.name("state"),)) is not None


def archived_sums(connection: sqlite3.Connection, grain_min: int, until_us: int) -> Matrix:
    """The sums of all buckets of a grain before `until_us`: int64[series_id, MEASURES].

    LookupError for a series that isn't there, ValueError for bytes that are no packed sums.
    """
    most = fetch_one(connection, f"SELECT coalesce(max(series_id), 0) FROM {_SERIES}")[0]
    sums = np.zeros((most + 1, len(MEASURES)), dtype=np.int64)
    for _, packed in connection.execute(ARCHIVED.range_packed, (grain_min, LEAST_US, until_us)):
        bucket = packing.unpack((packed,))
        sums[bucket[:, 0]] += bucket[:, 1:]
    if grain_min == QUARTER:
        for _, series_id, *measures in connection.execute(
            ARCHIVED.range_total, (LEAST_US, until_us)
        ):
            sums[series_id] += np.array(measures, dtype=np.int64)
    packing.carried(sums)
    return sums


def archived_extent_us(connection: sqlite3.Connection) -> tuple[int, int] | None:
    """The first and the last quarter hour that the sums have; None where they have none."""
    first_us, last_us = fetch_one(connection, _EXTENT)
    return None if first_us is None else (first_us, last_us)


def requests_by_tenant(connection: sqlite3.Connection, sums: Matrix) -> dict[str, int]:
    """How many requests such sums are of, by tenant; a tenant of none isn't there."""
    found: dict[str, int] = {}
    for series_id, tenant_id in connection.execute(f"SELECT series_id, tenant_id FROM {_SERIES}"):
        if count := int(sums[series_id, _RECEIPTS]):
            found[tenant_id] = found.get(tenant_id, 0) + count
    return found
