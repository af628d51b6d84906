"""Cost attribution from the rollups: exact parts of an exact whole (CST-2, CST-3, CST-9)."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import tzinfo
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ledger.money import join
from ledger.reading import fetch
from ledger.rollups import packing
from ledger.rollups.sums import Sums, read_series, read_sums, snapshot
from ledger.rollups.tables import COSTS, LIVE
from ledger.rollups.tables import DIMENSIONS as SERIES_DIMENSIONS
from ledger.zones import HOUR_US, LocalBucket, Period, Unit, buckets

Dimension = Literal[
    "tenant",
    "key",
    "logical_model",
    "identity",
    "route",
    "priority",
    "path",
    "task_type",
    "release",
    "arm",
    "status",
    "reason",
    "degraded",
    "hour",
    "day",
    "month",
]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
TIME_DIMENSIONS: tuple[Unit, ...] = get_args(Unit)
DIMENSIONS_LIMIT = 3
ROWS_LIMIT = 1_000
HOURS_LIMIT = 200  # by hour: eight days
FILTER_VALUES_LIMIT = 100

_COLUMNS: dict[Dimension, str] = {
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

Filter = Mapping[str, Sequence[str]]  # dimension -> values, any of which matches
_Filters = tuple[tuple[Dimension, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSums:
    """Sums over receipts. Costs are exact Python integers in pico units, of any size."""

    receipts: int = 0
    completed: int = 0
    rejected: int = 0
    cancelled: int = 0
    failed: int = 0
    unknown: int = 0
    degraded: int = 0
    judged: int = 0  # the denominator of valid completion (SLO-0)
    valid: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    attempts: int = 0
    cost_input_pico: int = 0
    cost_cached_input_pico: int = 0
    cost_output_pico: int = 0
    cost_fixed_pico: int = 0
    cost_retry_and_hedge_pico: int = 0
    cost_total_pico: int = 0
    cost_waste_pico: int = 0  # retries, hedges, not completed, or completed with invalid schema

    @property
    def cost_per_completed_pico(self) -> int | None:
        """All cost over completed requests, rounded half to even once; None without any."""
        return unit_cost_pico(self.cost_total_pico, self.completed)

    def plus(self, other: "CostSums") -> "CostSums":
        added = {name: getattr(self, name) + getattr(other, name) for name in _SUM_NAMES}
        return CostSums(**added)


_SUM_NAMES = tuple(field.name for field in fields(CostSums))


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


def unit_cost_pico(cost_pico: int, count: int) -> int | None:
    """The cost of one of `count`, rounded half to even once; None where there is none."""
    return round(Fraction(cost_pico, count)) if count else None


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
    amounts = [join(high, low) for high, low in measures[:, _TOTAL_LIMBS].tolist()]
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
            CostRow(values=labels[place], sums=_sums(values))
            for place, values in zip(kept, measures[kept].tolist(), strict=True)
        ),
        others=_sums(measures[rest].sum(axis=0).tolist()) if rest else None,
        others_count=len(rest),
        total=_sums(measures.sum(axis=0).tolist()),
        time_buckets=times,
    )


def values_of(connection: sqlite3.Connection, dimension: str, limit: int = 200) -> list[str]:
    """The values that a dimension has had, in order, without "": what a filter can offer."""
    column = next((column for name, column in _COLUMNS.items() if name == dimension), None)
    if column is None:
        raise ValueError(f"{dimension} has no list of values")
    sql = (
        f"SELECT DISTINCT {column} FROM {LIVE.name('series')} "  # noqa: S608 - own names
        f"WHERE {column} <> '' ORDER BY 1 LIMIT ?"
    )
    return [row[0] for row in fetch(connection, sql, (limit,))]


def _checked(dimensions: Sequence[str], filters: Filter) -> tuple[tuple[Dimension, ...], _Filters]:
    """Both, known to be askable; ValueError names what is not."""
    unknown = [name for name in (*dimensions, *filters) if name not in DIMENSIONS]
    if unknown:
        raise ValueError(f"no dimension {unknown[0]!r}; there are {', '.join(DIMENSIONS)}")
    if len(set(dimensions)) < len(dimensions) or not 1 <= len(dimensions) <= DIMENSIONS_LIMIT:
        raise ValueError(f"choose one to {DIMENSIONS_LIMIT} different dimensions")
    if sum(name in TIME_DIMENSIONS for name in dimensions) > 1:
        raise ValueError("choose one of hour, day and month")
    for name, allowed in filters.items():
        if name in TIME_DIMENSIONS:
            raise ValueError(f"{name} is no filter: choose another period")
        if not 1 <= len(allowed) <= FILTER_VALUES_LIMIT:
            raise ValueError(f"filter {name} takes 1 to {FILTER_VALUES_LIMIT} values")
    known: dict[str, Dimension] = {name: name for name in DIMENSIONS}
    return (
        tuple(known[name] for name in dimensions),
        tuple((known[name], tuple(allowed)) for name, allowed in filters.items()),
    )


# In what `_measures` returns, the limbs of the total cost: before those of the wasted one.
_TOTAL_LIMBS = slice(-4, -2)
_OF_STATUS = ("completed", "rejected", "cancelled", "failed", "unknown")


def _grouped(
    sums: Sums,
    series: Mapping[int, tuple[str, ...]],
    dimensions: Sequence[Dimension],
    filters: _Filters,
    times: Sequence[LocalBucket],
) -> tuple[list[tuple[str, ...]], packing.Matrix]:
    """The values of every combination that has a receipt, and what `_sums` takes, row by row."""
    plain = [name for name in dimensions if name not in TIME_DIMENSIONS]
    groups: dict[tuple[str, ...], int] = {}
    group_of = np.full(max(series, default=0) + 1, -1, dtype=np.int64)
    traits = np.zeros((len(group_of), len(_OF_STATUS) + 2), dtype=bool)
    for series_id, values in series.items():
        named = dict(zip(SERIES_DIMENSIONS, values, strict=True))
        if all(named[_COLUMNS[name]] in allowed for name, allowed in filters):
            key = tuple(named[_COLUMNS[name]] for name in plain)
            group_of[series_id] = groups.setdefault(key, len(groups))
            wasted = named["status"] != "completed" or named["schema_valid"] == "0"
            statuses = [named["status"] == status for status in _OF_STATUS]
            traits[series_id] = [*statuses, named["degraded"] == "1", wasted]
    kept = np.flatnonzero(group_of[sums.series] >= 0)
    keys = sums.spans[kept] * len(groups) + group_of[sums.series[kept]]
    measures = _measures(sums.measures[kept], traits[sums.series[kept]])
    keys, measures = packing.add_up(keys, measures)
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


def _measures(measures: packing.Matrix, traits: npt.NDArray[np.bool_]) -> packing.Matrix:
    """`_sums` takes these: receipts; by status and degraded; other counts; limbs; wasted limbs."""
    receipts = measures[:, :1]
    wasted = traits[:, -1:]
    total, retried = measures[:, -2:], measures[:, -4:-2]
    return np.hstack(
        (
            receipts,
            receipts * traits[:, :-1],
            measures[:, 1:],
            np.where(wasted, total, retried),
        )
    )


def _sums(values: Sequence[int]) -> CostSums:
    counts = len(_SUM_NAMES) - len(COSTS) - 1
    limbs = values[counts:]
    money = [join(high, low) for high, low in zip(limbs[::2], limbs[1::2], strict=True)]
    return CostSums(**dict(zip(_SUM_NAMES, (*values[:counts], *money), strict=True)))
