"""The projection that keeps the rollups, inside the transaction that writes the receipts."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast

import numpy as np

from ledger import histograms
from ledger.queries.objectives import declared_until, revisions
from ledger.records import OutcomeReport, Receipt, Record, SloDefinitionRecord
from ledger.rollups import packing
from ledger.rollups.aggregate import Aggregator, Batch, Dimensions, Histogram, measures_of
from ledger.rollups.outcomes import Change, Outcomes
from ledger.rollups.tables import (
    COARSE_MIN,
    DIMENSIONS,
    HOUR,
    LATENCIES,
    LATENCY_DIMENSIONS,
    LIVE,
    MINUTE,
    OTHER_TAGS,
    QUARTER,
    TAG_SETS_LIMIT,
    Tables,
    grain_us,
)
from ledger.rows import record_of, select
from ledger.slo import SloDefinition
from ledger.slo_defaults import DEFAULT_SLOS

SERIES_CACHE_LIMIT = 100_000
HISTOGRAMS_CACHE_LIMIT = 2_000
ROWS_PER_STATEMENT = 64
PACK_ABOVE_BYTES = 2_048
JOINS_LIMIT = 64
"""Commits after which a histogram is packed anew, so that its row has no pages beside its own."""

LatencyKey = tuple[int, int, int]  # grain, bucket, series
Placement = tuple[int, Receipt | OutcomeReport]  # seq, record
Blobs = tuple[bytes, ...]  # of LATENCIES

_NO_LATENCIES: Blobs = (b"",) * len(LATENCIES)
_PREDECESSOR = f"{select(Receipt)} WHERE request_id = ? AND revision = ?"


class Placed(Protocol):
    """What the store says of an appended row: its place in the chain."""

    @property
    def seq(self) -> int: ...


@dataclass(frozen=True, slots=True)
class State:
    """How far the rollups have come: the last row's seq, and until when coarse rows are there."""

    position: int
    until_us: tuple[int, int, int]  # of COARSE_MIN

    def until(self, grain_min: int) -> int:
        return self.until_us[COARSE_MIN.index(grain_min)]


def read_state(connection: sqlite3.Connection, tables: Tables = LIVE) -> State:
    """The state row; LookupError where the rollups' tables are there without it."""
    row = connection.execute(tables.read_state).fetchone()
    if row is None:
        raise LookupError("the rollups have no state row; run: manage.py rebuild_rollups")
    return State(row[0], (row[1], row[2], row[3]))


class Rollups:
    """Adds each commit's receipts to the rollups; one of the store's `projections`.

    What it remembers of the tables is dropped when the state row is not the one that it wrote: a
    rolled-back transaction or a rebuild lies between.
    """

    def __init__(
        self, definitions: Sequence[SloDefinition] | None = None, tables: Tables = LIVE
    ) -> None:
        """`definitions`: what is counted; None: the shipped and the declared objectives."""
        self._fixed = definitions is not None
        self._declared_until = 0
        self._declared = True  # what is declared may have changed: it is looked at
        self._define(DEFAULT_SLOS if definitions is None else definitions)
        self._tables = tables
        self._state: State | None = None
        self._series: dict[Dimensions, int] = {}
        self._latency_series: dict[Dimensions, int] = {}
        self._histograms: dict[LatencyKey, Blobs] = {}
        self._joins: dict[LatencyKey, int] = {}  # commits since these were packed

    def apply(self, connection: sqlite3.Connection, rows: Sequence[tuple[Record, Placed]]) -> None:
        """Adds the receipts and outcome reports among `rows`, in the caller's transaction."""
        placed: list[Placement] = []
        for record, place in rows:
            kind = type(record)
            if kind is Receipt or kind is OutcomeReport:
                placed.append((place.seq, cast("Receipt | OutcomeReport", record)))
            elif kind is SloDefinitionRecord:
                self._declared = True
        if placed:
            self.add(connection, placed)

    def add(self, connection: sqlite3.Connection, placed: Sequence[Placement]) -> None:
        """Adds records, each with its seq, in chain order; they stand in the ledger already."""
        state = read_state(connection, self._tables)
        if state != self._state or len(self._series) > SERIES_CACHE_LIMIT:
            self._series.clear()
            self._latency_series.clear()
            self._forget_histograms()
            self._declared = True
        self._state = None  # until all is written: what was learned may be rolled back
        if self._declared:
            self._follow_declarations(connection)
            self._declared = False
        receipts = [record for _, record in placed if isinstance(record, Receipt)]
        replaced = self._replaced(connection, placed)
        batch = self._aggregator.aggregate(receipts, [old for _, old, _ in replaced])
        if replaced or len(receipts) < len(placed):
            changes = self._outcome_changes(connection, placed, replaced)
            self._aggregator.add_outcomes(batch, changes)
        self._write_totals(connection, batch, state)
        self._write_latencies(connection, batch, state)
        self._write_slis(connection, batch, state)
        self._state = self._fold(connection, state, batch.newest_us, placed[-1][0])

    def _define(self, definitions: Sequence[SloDefinition]) -> None:
        self._definitions = tuple(definitions)
        self._aggregator = Aggregator(self._definitions)

    def _follow_declarations(self, connection: sqlite3.Connection) -> None:
        """Counts the objectives that the ledger has, whatever was declared or undone."""
        if self._fixed:
            return
        until = declared_until(self.source(connection))
        if until != self._declared_until:
            self._define(revisions(self.source(connection)))
            self._declared_until = until

    def source(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """The database that holds the records themselves: the one that holds the rollups."""
        return connection

    def _replaced(
        self, connection: sqlite3.Connection, placed: Sequence[Placement]
    ) -> list[tuple[int, Receipt, Receipt]]:
        """(seq, what a receipt of a revision above 0 replaces, that receipt), in chain order."""
        found = []
        for seq, record in placed:
            if isinstance(record, Receipt) and record.revision > 0:
                key = (record.request_id, record.revision - 1)
                row = self.source(connection).execute(_PREDECESSOR, key).fetchone()
                if row is None:
                    raise LookupError(f"{key[0]}: revision {key[1] + 1} without {key[1]}")
                found.append((seq, record_of(Receipt, row), record))
        return found

    def _outcome_changes(
        self,
        connection: sqlite3.Connection,
        placed: Sequence[Placement],
        replaced: Sequence[tuple[int, Receipt, Receipt]],
    ) -> list[Change]:
        outcomes = Outcomes(self.source(connection))
        changes = [
            change
            for seq, record in placed
            if isinstance(record, OutcomeReport)
            for change in outcomes.changes(record, seq)
        ]
        for seq, old, new in replaced:
            changes += outcomes.moved(old, new, seq)
        return changes

    def _write_totals(self, connection: sqlite3.Connection, batch: Batch, state: State) -> None:
        open_rows: list[tuple[int, ...]] = []
        late: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for (bucket_us, dimensions), group in batch.groups.items():
            series_id = self._series_id(connection, self._series, "series", DIMENSIONS, dimensions)
            row = (series_id, *measures_of(group.sums))
            if bucket_us >= state.until(HOUR):
                open_rows.append((bucket_us, *row))
            else:
                for key in _buckets(bucket_us, state):
                    late.setdefault(key, []).append(row)
        _put(connection, self._tables.add_total, open_rows)
        for key, rows in late.items():
            found = connection.execute(self._tables.find_packed, key).fetchone()
            kept = packing.unpack(found or ())
            sums = packing.pack(np.concatenate((kept, packing.matrix(rows))))
            connection.execute(self._tables.put_packed, (*key, sums))

    def _write_slis(self, connection: sqlite3.Connection, batch: Batch, state: State) -> None:
        rows: list[tuple[str | int, ...]] = []
        for (slo_key, minute_us), counts in batch.sli.items():
            rows.append((slo_key, MINUTE, minute_us, *counts))
            if minute_us < state.until(HOUR):
                rows.append((slo_key, HOUR, minute_us - minute_us % grain_us(HOUR), *counts))
        _put(connection, self._tables.add_sli, rows)

    def _write_latencies(self, connection: sqlite3.Connection, batch: Batch, state: State) -> None:
        touched: dict[LatencyKey, Blobs] = {}
        for (bucket_us, dimensions), added in batch.latencies.items():
            series_id = self._series_id(
                connection, self._latency_series, "latency_series", LATENCY_DIMENSIONS, dimensions
            )
            for grain_min, start_us in _buckets(bucket_us, state):
                key = (grain_min, start_us, series_id)  # several quarter hours may share a row
                packed = touched.get(key) or self._histograms.get(key)
                if packed is None:
                    packed = connection.execute(self._tables.find_latency, key).fetchone()
                joins = self._joins[key] = self._joins.get(key, 0) % JOINS_LIMIT + 1
                anew = joins == JOINS_LIMIT
                touched[key] = tuple(
                    [
                        _merge(one, more, anew=anew)
                        for one, more in zip(packed or _NO_LATENCIES, added, strict=True)
                    ]
                )
        _put(connection, self._tables.put_latency, [(*key, *b) for key, b in touched.items()])
        if len(self._histograms) + len(touched) > HISTOGRAMS_CACHE_LIMIT:
            self._forget_histograms()
        self._histograms |= touched

    def _forget_histograms(self) -> None:
        self._histograms.clear()
        self._joins.clear()

    def _series_id(
        self,
        connection: sqlite3.Connection,
        known: dict[Dimensions, int],
        kind: str,
        names: tuple[str, ...],
        dimensions: Dimensions,
    ) -> int:
        series_id = known.get(dimensions)
        if series_id is None:
            found = connection.execute(self._tables.find_series(kind, names), dimensions).fetchone()
            if found is None and kind == "series" and self._too_many_tags(connection, dimensions):
                others = (*dimensions[:-1], OTHER_TAGS)
                series_id = self._series_id(connection, known, kind, names, others)
            elif found is None:
                put = connection.execute(self._tables.put_series(kind, names), dimensions)
                series_id = put.lastrowid or 0
            else:
                series_id = int(found[0])
            known[dimensions] = series_id
        return series_id

    def _too_many_tags(self, connection: sqlite3.Connection, dimensions: Dimensions) -> bool:
        """Whether a new series would keep more sets of tags apart than one tenant may have."""
        if dimensions[-1] in ("{}", OTHER_TAGS):
            return False
        counted = connection.execute(self._tables.count_tag_sets, dimensions[:1]).fetchone()
        return int(counted[0]) >= TAG_SETS_LIMIT

    def _fold(
        self, connection: sqlite3.Connection, state: State, newest_us: int, position: int
    ) -> State:
        """Completes the coarse rows of every hour, shift and day that now lies in the past."""
        untils = []
        for grain_min, from_us in zip(COARSE_MIN, state.until_us, strict=True):
            until_us = max(from_us, newest_us - newest_us % grain_us(grain_min))
            untils.append(until_us)
            if until_us > from_us:
                fine_min = QUARTER if grain_min == HOUR else HOUR
                if grain_min == HOUR:
                    self._close_quarters(connection, from_us, until_us)
                self._fold_totals(connection, grain_min, fine_min, from_us, until_us)
                self._fold_latencies(connection, grain_min, fine_min, from_us, until_us)
        state = State(max(position, state.position), (untils[0], untils[1], untils[2]))
        connection.execute(self._tables.write_state, (state.position, *state.until_us))
        return state

    def _close_quarters(self, connection: sqlite3.Connection, from_us: int, until_us: int) -> None:
        """Packs the rows of closed quarter hours, and sums their minutes of SLO counts by hour."""
        buckets: dict[int, list[tuple[int, ...]]] = {}
        for bucket_us, *row in connection.execute(self._tables.range_total, (from_us, until_us)):
            buckets.setdefault(bucket_us, []).append(tuple(row))
        connection.executemany(
            self._tables.put_packed,
            [
                (QUARTER, bucket_us, packing.pack(packing.matrix(rows)))
                for bucket_us, rows in buckets.items()
            ],
        )
        connection.execute(self._tables.clear_total, (from_us, until_us))
        for definition in self._definitions:
            ended_us = definition.counted_until_us
            if definition.counted_from_us >= until_us or (
                ended_us is not None and ended_us <= from_us
            ):
                continue
            connection.execute(self._tables.fold_sli, (definition.key, from_us, until_us))

    def _fold_totals(
        self,
        connection: sqlite3.Connection,
        grain_min: int,
        fine_min: int,
        from_us: int,
        until_us: int,
    ) -> None:
        length_us = grain_us(grain_min)
        parts: dict[int, list[bytes]] = {}
        fine = connection.execute(self._tables.range_packed, (fine_min, from_us, until_us))
        for bucket_us, sums in fine:
            parts.setdefault(bucket_us - bucket_us % length_us, []).append(sums)
        connection.executemany(
            self._tables.put_packed,
            [
                (grain_min, start_us, packing.pack(packing.unpack(sums)))
                for start_us, sums in parts.items()
            ],
        )

    def _fold_latencies(
        self,
        connection: sqlite3.Connection,
        grain_min: int,
        fine_min: int,
        from_us: int,
        until_us: int,
    ) -> None:
        length_us = grain_us(grain_min)
        parts: dict[tuple[int, int], list[tuple[bytes, ...]]] = {}
        found = connection.execute(self._tables.range_latency, (fine_min, from_us, until_us))
        for bucket_us, series_id, *blobs in found:
            start_us = bucket_us - bucket_us % length_us
            parts.setdefault((start_us, series_id), []).append(tuple(blobs))
        connection.executemany(
            self._tables.put_latency,
            [
                (
                    grain_min,
                    start_us,
                    series_id,
                    *(
                        histograms.pack_counts(histograms.unpack(column))
                        for column in zip(*blobs, strict=True)
                    ),
                )
                for (start_us, series_id), blobs in parts.items()
            ],
        )


def _put(
    connection: sqlite3.Connection, sql: str, rows: Sequence[Sequence[int | str | bytes]]
) -> None:
    """Executes an INSERT for all rows, many rows a statement.

    Python's module hands the interpreter lock over at each step; a statement of many rows is one.
    """
    done = 0
    while done < len(rows):
        size = min(ROWS_PER_STATEMENT, 1 << (len(rows) - done).bit_length() - 1)
        values = [value for row in rows[done : done + size] for value in row]
        connection.execute(_of_rows(sql, size), values)
        done += size


@cache
def _of_rows(sql: str, size: int) -> str:
    """The INSERT of one row, made one of `size` rows."""
    head, _, rest = sql.partition("VALUES (")
    marks, _, tail = rest.partition(")")
    return f"{head}VALUES {', '.join([f'({marks})'] * size)}{tail}"


def _buckets(bucket_us: int, state: State) -> Iterable[tuple[int, int]]:
    """The grains and starts that a quarter hour counts under: its own, and what was folded."""
    yield QUARTER, bucket_us
    for grain_min, until_us in zip(COARSE_MIN, state.until_us, strict=True):
        if bucket_us < until_us:
            yield grain_min, bucket_us - bucket_us % grain_us(grain_min)


def _merge(packed: bytes, added: Histogram, *, anew: bool) -> bytes:
    """The packed histogram with counts added, or taken away.

    Additions are joined on, a fraction of the work; a run of pairs that grew long is packed anew.
    """
    if not added:
        return packed
    if not anew and min(added.values()) > 0 and len(packed) < PACK_ABOVE_BYTES:
        return packed + histograms.pack(added)
    counts = histograms.unpack((packed,))
    counts[np.fromiter(added.keys(), np.int64)] += np.fromiter(added.values(), np.int64)
    return histograms.pack_counts(counts)
