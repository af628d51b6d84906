"""Sums read back from the rollups: one matrix for any set of periods, in one snapshot."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ledger.reading import fetch
from ledger.rollups import packing
from ledger.rollups.cover import cover
from ledger.rollups.packing import Matrix
from ledger.rollups.projection import read_state
from ledger.rollups.tables import DIMENSIONS, HOUR, LIVE

Span = tuple[int, int]  # start_us, end_us, in whole quarter hours

_SERIES = f"SELECT series_id, {', '.join(DIMENSIONS)} FROM {LIVE.name('series')}"  # noqa: S608


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
    places: list[int] = []
    rows: list[Matrix] = []
    for place, (start_us, end_us) in enumerate(spans):
        closed_us = min(end_us, state.until(HOUR))
        packed: list[bytes] = []
        for part in cover(start_us, closed_us, state):
            key = (part.grain_min, part.start_us, part.end_us)
            packed += [row[1] for row in fetch(connection, LIVE.range_packed, key)]
        matrices = [packing.unpack(packed)]
        if end_us > closed_us:
            found = fetch(connection, LIVE.range_total, (max(start_us, closed_us), end_us))
            matrices.append(packing.matrix([tuple(row)[1:] for row in found]))
        rows += matrices
        places += [place] * len(matrices)
    whole = np.concatenate((packing.matrix(()), *rows))
    lengths = [0, *(len(one) for one in rows)]
    return _by_series(np.repeat(np.array([0, *places], dtype=np.int64), lengths), whole)


def _by_series(places: npt.NDArray[np.int64], rows: Matrix) -> Sums:
    """The rows with those of one span and series added up."""
    width = int(rows[:, 0].max(initial=0)) + 1
    keys, measures = packing.add_up(places * width + rows[:, 0], rows[:, 1:])
    spans, series = np.divmod(keys, width)
    return Sums(spans, series, measures)
