"""Sums read back from the rollups: one matrix for any set of periods, in one snapshot."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ledger.reading import fetch
from ledger.rollups import packing
from ledger.rollups.cover import Segment, balance
from ledger.rollups.packing import Matrix
from ledger.rollups.projection import read_state
from ledger.rollups.tables import DIMENSIONS, HOUR, LIVE

Span = tuple[int, int]  # start_us, end_us, in whole quarter hours

_SERIES = f"SELECT series_id, {', '.join(DIMENSIONS)} FROM {LIVE.name('series')}"


@dataclass(frozen=True, slots=True)
class Sums:
    """Row i: the measures (`tables.MEASURES`) of one series in one of the spans."""

    spans: npt.NDArray[np.int64]  # int64[n]: the span's place in what was asked
    series: npt.NDArray[np.int64]  # int64[n]: series_id
    measures: Matrix  # int64[n, len(MEASURES)]


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """A short read transaction: closing hours move rows from one table to another."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def read_series(connection: sqlite3.Connection) -> dict[int, tuple[str, ...]]:
    """The dimensions (`tables.DIMENSIONS`) of every series, by its id."""
    return {row[0]: tuple(row)[1:] for row in fetch(connection, _SERIES)}


def read_sums(connection: sqlite3.Connection, spans: Sequence[Span]) -> Sums:
    """The sums of disjoint, ascending spans by series; the caller holds a `snapshot`.

    Closed hours come from packed rows, as coarse as the spans allow; open ones from single rows.
    """
    state = read_state(connection)
    found: list[tuple[npt.NDArray[np.int64], Matrix]] = []
    ends: dict[Segment, list[Matrix]] = {}  # of the span before: its end is the next one's start
    for start_us, end_us in spans:
        closed_us = min(end_us, state.until(HOUR))
        parts = balance(start_us, closed_us, state)
        rows, taken = list[Matrix](), list[Matrix]()
        if parts.taken:
            ends = {
                part: ends.get(part) or _closed_rows(connection, part)
                for part in (*parts.added, *parts.taken)
            }
            rows += [one for part in parts.added for one in ends[part]]
            taken += [one for part in parts.taken for one in ends[part]]
        else:
            rows += [one for part in parts.added for one in _closed_rows(connection, part)]
        if end_us > closed_us:
            rows += _open_rows(connection, max(start_us, closed_us), end_us)
        found.append(packing.add_buckets(rows, taken))
    lengths = [len(series) for series, _ in found]
    return Sums(
        np.repeat(np.arange(len(spans)), lengths),
        np.concatenate([np.zeros(0, np.int64), *(series for series, _ in found)]),
        np.concatenate([packing.matrix(())[:, 1:], *(sums for _, sums in found)]),
    )


def _closed_rows(connection: sqlite3.Connection, part: Segment) -> list[Matrix]:
    """The packed rows of a segment, a matrix for each bucket."""
    key = (part.grain_min, part.start_us, part.end_us)
    return [packing.unpack((row[1],)) for row in fetch(connection, LIVE.range_packed, key)]


def _open_rows(connection: sqlite3.Connection, start_us: int, end_us: int) -> list[Matrix]:
    """The single rows of open quarter hours, a matrix for each quarter hour."""
    buckets: dict[int, list[tuple[int, ...]]] = {}
    for bucket_us, *row in fetch(connection, LIVE.range_total, (start_us, end_us)):
        buckets.setdefault(bucket_us, []).append(tuple(row))
    return [packing.matrix(rows) for rows in buckets.values()]
