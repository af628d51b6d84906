"""Cost attribution from the rollups: exact parts of an exact whole (CST-2, CST-9)."""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from operator import itemgetter
from typing import get_args

import numpy as np
import orjson

from ledger.money import join
from ledger.queries.cost_sums import (
    TOTAL_LIMBS,
    TRAITS,
    CostSums,
    measured,
    sums_of,
    traits_of,
)
from ledger.reading import fetch
from ledger.rollups import packing
from ledger.rollups.sums import Sums, read_series, read_sums, snapshot
from ledger.rollups.tables import DIMENSIONS as SERIES_DIMENSIONS
from ledger.rollups.tables import LIVE, OTHER_TAGS
from ledger.zones import HOUR_US, LocalBucket, Period, Unit, buckets

Dimension = str  # one of DIMENSIONS, or "tag:" and the key of a tag
TIME_DIMENSIONS: tuple[Unit, ...] = get_args(Unit)
DIMENSIONS_LIMIT = 3
ROWS_LIMIT = 1_000
HOURS_LIMIT = 200  # by hour: eight days
FILTER_VALUES_LIMIT = 100

_COLUMNS: dict[str, str] = {
    "tenant": "tenant_id",
    "key": "key_id",
    "logical_model": "logical_model",
    "identity": "identity_id",
    "route": "route_id",
    "priority": "priority",
    "path": "user_path",
    "task_type": "task_type",
    "release": "release_id",
    "arm": "arm",
    "status": "status",
    "reason": "reason",
    "degraded": "degraded",
}

DIMENSIONS: tuple[Dimension, ...] = (*_COLUMNS, *TIME_DIMENSIONS)
TAG_PREFIX = "tag:"
OTHER_TAGS_TEXT = "(more tags)"
_TAG_KEY = re.compile(r"[a-z0-9-]{1,32}")

Filter = Mapping[str, Sequence[str]]  # dimension -> values, any of which matches
_Filters = tuple[tuple[Dimension, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One combination of the table's dimensions, in their order; "" stands for none."""

    values: tuple[str, ...]
    sums: CostSums


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """The receipts behind a row: accepted in the period, each dimension with one of its values."""

    period: Period
    values: tuple[tuple[Dimension, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """Rows by falling cost (by time first, where time is a dimension), and their exact sum.

    Rows beyond the limit are not dropped: those of the lowest cost are added up in `others`,
    which stand for `others_count` rows.
    """

    period: Period
    zone: tzinfo
    dimensions: tuple[Dimension, ...]
    filters: _Filters
    rows: tuple[CostRow, ...]
    others: CostSums | None
    others_count: int
    total: CostSums
    time_buckets: tuple[LocalBucket, ...]  # of the time dimension, those without cost too

    def drill(self, row: CostRow) -> Drill:
        """What to ask of the receipts for the very rows that this one sums."""
        period = self.period
        values = dict(self.filters)
        for dimension, value in zip(self.dimensions, row.values, strict=True):
            if dimension in TIME_DIMENSIONS:
                bucket = next(b for b in self.time_buckets if b.label == value)
                period = Period(start_us=bucket.start_us, end_us=bucket.end_us)
            else:
                values[dimension] = (value,)
        return Drill(period=period, values=tuple(values.items()))


def costs(
    connection: sqlite3.Connection,
    period: Period,
    dimensions: Sequence[str],
    *,
    zone: tzinfo,
    filters: Filter | None = None,
    rows_limit: int = ROWS_LIMIT,
) -> CostTable:
    """The costs of a period by up to three dimensions, of which at most one is a time.

    ValueError, saying which, for dimensions or filters that can't be asked for.
    """
    chosen, wanted = _checked(dimensions, filters or {})
    unit = next((unit for unit in TIME_DIMENSIONS if unit in chosen), None)
    if unit == "hour" and period.end_us - period.start_us > HOURS_LIMIT * HOUR_US:
        raise ValueError(f"by hour for at most {HOURS_LIMIT} hours: choose a shorter period")
    times = buckets(period, unit, zone) if unit else ()
    spans = [(one.start_us, one.end_us) for one in times] or [(period.start_us, period.end_us)]
    with snapshot(connection):
        series = read_series(connection)
        sums = read_sums(connection, spans)
    labels, measures = _grouped(sums, series, chosen, wanted, times)
    amounts = [join(high, low) for high, low in measures[:, TOTAL_LIMBS].tolist()]
    ranked = sorted(range(len(labels)), key=lambda place: (-amounts[place], labels[place]))
    kept, rest = ranked[:rows_limit], ranked[rows_limit:]
    if unit:
        column = chosen.index(unit)
        order = {bucket.label: number for number, bucket in enumerate(times)}
        kept.sort(key=lambda place: order[labels[place][column]])
    return CostTable(
        period=period,
        zone=zone,
        dimensions=chosen,
        filters=wanted,
        rows=tuple(
            CostRow(values=labels[place], sums=sums_of(values))
            for place, values in zip(kept, measures[kept].tolist(), strict=True)
        ),
        others=sums_of(measures[rest].sum(axis=0).tolist()) if rest else None,
        others_count=len(rest),
        total=sums_of(measures.sum(axis=0).tolist()),
        time_buckets=times,
    )


def tag_keys(connection: sqlite3.Connection, limit: int = 200) -> list[str]:
    """The keys of tags that costs can be asked for by, in order."""
    sql = f"SELECT DISTINCT tags FROM {LIVE.name('series')} WHERE tags NOT IN ('{{}}', ?)"
    keys = {key for row in fetch(connection, sql, (OTHER_TAGS,)) for key in orjson.loads(row[0])}
    return sorted(keys)[:limit]


def _checked(dimensions: Sequence[str], filters: Filter) -> tuple[tuple[Dimension, ...], _Filters]:
    """Both, known to be askable; ValueError names what is not."""
    unknown = [name for name in (*dimensions, *filters) if not is_dimension(name)]
    if unknown:
        known = ", ".join(DIMENSIONS)
        raise ValueError(f"no dimension {unknown[0]!r}; there are {known} and {TAG_PREFIX}<key>")
    if len(set(dimensions)) < len(dimensions) or not 1 <= len(dimensions) <= DIMENSIONS_LIMIT:
        raise ValueError(f"choose one to {DIMENSIONS_LIMIT} different dimensions")
    if sum(name in TIME_DIMENSIONS for name in dimensions) > 1:
        raise ValueError("choose one of hour, day and month")
    for name, allowed in filters.items():
        if name in TIME_DIMENSIONS:
            raise ValueError(f"{name} is no filter: choose another period")
        if not 1 <= len(allowed) <= FILTER_VALUES_LIMIT:
            raise ValueError(f"filter {name} takes 1 to {FILTER_VALUES_LIMIT} values")
    return tuple(dimensions), tuple((name, tuple(allowed)) for name, allowed in filters.items())


def is_dimension(name: str) -> bool:
    """Whether costs can be asked for by it: one of DIMENSIONS, or `tag:<key>`."""
    if name.startswith(TAG_PREFIX):
        return _TAG_KEY.fullmatch(name.removeprefix(TAG_PREFIX)) is not None
    return name in DIMENSIONS


_PLACES = {name: SERIES_DIMENSIONS.index(column) for name, column in _COLUMNS.items()}
_TAGS = SERIES_DIMENSIONS.index("tags")
_traits_of_series = itemgetter(
    *(SERIES_DIMENSIONS.index(name) for name in ("status", "degraded", "schema_valid"))
)


def _reader(dimension: Dimension) -> Callable[[tuple[str, ...]], str]:
    """What reads a dimension's value from those of a series; "" where it has none."""
    if not dimension.startswith(TAG_PREFIX):
        return itemgetter(_PLACES[dimension])
    key = dimension.removeprefix(TAG_PREFIX)

    def value(series: tuple[str, ...]) -> str:
        if series[_TAGS] == OTHER_TAGS:
            return OTHER_TAGS_TEXT
        tags: dict[str, str] = orjson.loads(series[_TAGS])
        return tags.get(key, "")

    return value


def _grouped(
    sums: Sums,
    series: Mapping[int, tuple[str, ...]],
    dimensions: Sequence[Dimension],
    filters: _Filters,
    times: Sequence[LocalBucket],
) -> tuple[list[tuple[str, ...]], packing.Matrix]:
    """The values of every combination that has a receipt, and what `_sums` takes, row by row."""
    readers = [_reader(name) for name in dimensions if name not in TIME_DIMENSIONS]
    passes = [(_reader(name), allowed) for name, allowed in filters]
    groups: dict[tuple[str, ...], int] = {}
    kinds: dict[tuple[str, ...], int] = {}
    group_of = np.full(max(series, default=0) + 1, -1, dtype=np.int64)
    kind_of = np.zeros(len(group_of), dtype=np.int64)
    for series_id, values in series.items():
        if all(read(values) in allowed for read, allowed in passes):
            key = tuple([read(values) for read in readers])
            group_of[series_id] = groups.setdefault(key, len(groups))
            kind_of[series_id] = kinds.setdefault(_traits_of_series(values), len(kinds))
    traits = np.array([traits_of(*kind) for kind in kinds], dtype=bool).reshape(-1, TRAITS)
    kept = np.flatnonzero(group_of[sums.series] >= 0)
    of_series = sums.series[kept]
    keys = sums.spans[kept] * len(groups) + group_of[of_series]
    # Series of equal traits are added up before they are spread over the columns of these.
    number = max(len(kinds), 1)
    keys, measures = packing.add_up(keys * number + kind_of[of_series], sums.measures[kept])
    keys, measures = packing.add_up(keys // number, measured(measures, traits[keys % number]))
    there = measures[:, 0] > 0  # none where all were resolved away
    texts = list(groups)
    labels = []
    for key in keys[there].tolist():
        span, group = divmod(key, len(groups))
        found = iter(texts[group])
        labels.append(
            tuple(
                times[span].label if name in TIME_DIMENSIONS else next(found) for name in dimensions
            )
        )
    return labels, measures[there]
