"""Two sides of the same traffic compared: model identities, or the arms of a release (REL-2)."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ledger import distributions, histograms
from ledger.distributions import METRICS, Latency, Metric
from ledger.queries.cost_sums import CostSums
from ledger.queries.costs import CostTable, costs
from ledger.reading import fetch
from ledger.releases import RatioTest, TailTest, ratio_test, tail_test
from ledger.rollups.cover import cover
from ledger.rollups.projection import read_state
from ledger.rollups.sums import read_series, read_sums, snapshot
from ledger.rollups.tables import DIMENSIONS, LIVE
from ledger.zones import Period

EXACT_LIMIT = 20_000  # receipts of both sides that are read one by one
SIDES_LIMIT = 200

_COLUMN: dict[Metric, str] = {
    "ttft": "first_token_us",
    "itl": "itl_mean_us",
    "e2e": "e2e_us",
    "queue": "queue_us",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is compared: a model identity, or one arm of a release."""

    identity_id: str = ""
    release_id: str = ""
    arm: str = ""

    def __post_init__(self) -> None:
        if bool(self.identity_id) == bool(self.release_id and self.arm):
            raise ValueError("a side is an identity, or a release with an arm")

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a receipt that say that it is of this side."""
        if self.identity_id:
            return {"identity_id": self.identity_id}
        return {"release_id": self.release_id, "arm": self.arm}

    @property
    def label(self) -> str:
        return self.identity_id or f"{self.release_id}/{self.arm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A side that had traffic under a logical model in the period."""

    logical_model: str
    side: Side
    receipts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SideReport:
    """What one side did. `sums.judged` and `sums.valid` are those of valid completion (SLO-0)."""

    side: Side
    sums: CostSums
    latencies: tuple[Latency, ...]  # in the order of METRICS

    @property
    def completion_rate(self) -> Fraction | None:
        """Valid completions over those that count; None where none does."""
        return Fraction(self.sums.valid, self.sums.judged) if self.sums.judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both sides, and what the tests of REL-5 say of the candidate."""

    period: Period
    logical_model: str
    priority: str  # "": all
    baseline: SideReport
    candidate: SideReport
    completion: RatioTest
    tails: tuple[tuple[Metric, TailTest], ...]  # p99 of TTFT, ITL, e2e; only from exact values


def sides(connection: sqlite3.Connection, period: Period) -> tuple[Offered, ...]:
    """The identities and arms with traffic in the period, the busiest first, by logical model."""
    with snapshot(connection):
        series = read_series(connection)
        sums = read_sums(connection, [(period.start_us, period.end_us)])
    counted: dict[tuple[str, Side], int] = {}
    for series_id, measures in zip(sums.series.tolist(), sums.measures.tolist(), strict=True):
        one = dict(zip(DIMENSIONS, series[series_id], strict=True))
        found = [Side(identity_id=one["identity_id"])] if one["identity_id"] else []
        if one["release_id"] and one["arm"]:
            found.append(Side(release_id=one["release_id"], arm=one["arm"]))
        for side in found:
            key = (one["logical_model"], side)
            counted[key] = counted.get(key, 0) + measures[0]
    offered = [
        Offered(logical_model=model, side=side, receipts=receipts)
        for (model, side), receipts in counted.items()
        if receipts
    ]
    offered.sort(key=lambda one: (one.logical_model, -one.receipts, one.side.label))
    return tuple(offered[:SIDES_LIMIT])


def compare(
    connection: sqlite3.Connection,
    period: Period,
    *,
    logical_model: str,
    baseline: Side,
    candidate: Side,
    priority: str = "",
) -> Comparison:
    """The comparison of two sides over the requests that both got in the period.

    Quantiles are exact where both sides have at most EXACT_LIMIT receipts together, else from
    histograms, with the bounds between which the exact value lies; tail tests need exact values.
    """
    wanted = [_wanted(logical_model, side, priority) for side in (baseline, candidate)]
    with snapshot(connection):
        tables = [_table(connection, period, one) for one in wanted]
        exact = sum(table.total.receipts for table in tables) <= EXACT_LIMIT
        sides_found = zip((baseline, candidate), wanted, tables, strict=True)
        found = [
            _side(connection, side, one, table, exact=exact) for side, one, table in sides_found
        ]
    reports = [report for report, _ in found]
    samples = [values for _, values in found]
    tails: list[tuple[Metric, TailTest]] = []
    for metric in ("ttft", "itl", "e2e"):
        if samples[0] is not None and samples[1] is not None:
            test = tail_test(samples[0][metric].tolist(), samples[1][metric].tolist())
            if test is not None:
                tails.append((metric, test))
    return Comparison(
        period=period,
        logical_model=logical_model,
        priority=priority,
        baseline=reports[0],
        candidate=reports[1],
        completion=ratio_test(
            (reports[0].sums.valid, reports[0].sums.judged),
            (reports[1].sums.valid, reports[1].sums.judged),
        ),
        tails=tuple(tails),
    )


def compare_busiest(
    connection: sqlite3.Connection,
    period: Period,
    *,
    logical_model: str | None = None,
    baseline: Side | None = None,
    candidate: Side | None = None,
    priority: str = "",
) -> Comparison | None:
    """The comparison of what was named; what was not is the busiest: model, then identities.

    None where the period has no traffic to choose from. A model served by one identity alone is
    compared with itself.
    """
    offered = [one for one in sides(connection, period) if one.side.identity_id]
    if logical_model is None:
        identities: dict[str, int] = {}
        for one in offered:
            identities[one.logical_model] = identities.get(one.logical_model, 0) + 1
        # A model with two identities has something to compare; then the busier one.
        ranked = sorted(
            offered, key=lambda one: (-min(2, identities[one.logical_model]), -one.receipts)
        )
        if not ranked:
            return None
        logical_model = ranked[0].logical_model
    own = [one.side for one in offered if one.logical_model == logical_model]
    if baseline is None:
        baseline = next((side for side in own if side != candidate), candidate)
    if baseline is None:
        return None
    if candidate is None:
        candidate = next((side for side in own if side != baseline), baseline)
    return compare(
        connection,
        period,
        logical_model=logical_model,
        baseline=baseline,
        candidate=candidate,
        priority=priority,
    )


_Samples = dict[Metric, npt.NDArray[np.int64]]  # ascending


def _wanted(logical_model: str, side: Side, priority: str) -> dict[str, str]:
    """The columns, of receipts as of series, with what they have to be."""
    wanted = {"logical_model": logical_model, **side.columns}
    return wanted | ({"priority": priority} if priority else {})


def _table(connection: sqlite3.Connection, period: Period, wanted: Mapping[str, str]) -> CostTable:
    filters = {column.removesuffix("_id"): (value,) for column, value in wanted.items()}
    return costs(connection, period, ["route"], zone=UTC, filters=filters)


def _side(
    connection: sqlite3.Connection,
    side: Side,
    wanted: Mapping[str, str],
    table: CostTable,
    *,
    exact: bool,
) -> tuple[SideReport, _Samples | None]:
    if not exact:
        latencies = _bounded(connection, table.period, wanted)
        return SideReport(side=side, sums=table.total, latencies=latencies), None
    routes = [row.values[0] for row in table.rows if row.values[0]]
    samples = _samples(connection, table.period, routes, wanted)
    latencies = tuple(distributions.exact(metric, samples[metric]) for metric in METRICS)
    return SideReport(side=side, sums=table.total, latencies=latencies), samples


def _samples(
    connection: sqlite3.Connection, period: Period, routes: Sequence[str], wanted: Mapping[str, str]
) -> _Samples:
    """Every measured value of the side's current receipts, ascending, by the routes' index."""
    if not routes:
        return {metric: np.empty(0, dtype=np.int64) for metric in METRICS}
    sql = (
        f"SELECT {', '.join(_COLUMN[metric] for metric in METRICS)}, status "
        "FROM receipt AS r INDEXED BY receipt_route "
        f"WHERE route_id IN ({', '.join('?' * len(routes))}) "
        f"AND accepted_at_us >= ? AND accepted_at_us < ? AND {_condition('r', wanted)} "
        "AND status <> 'rejected' AND NOT EXISTS (SELECT 1 FROM receipt AS n "
        "WHERE n.request_id = r.request_id AND n.revision = r.revision + 1) LIMIT ?"
    )
    period_us = (period.start_us, period.end_us)
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples: a sixth faster, over thousands of rows
    values = (*routes, *period_us, *wanted.values(), EXACT_LIMIT + 1)
    rows = cursor.execute(sql, values).fetchall()
    samples: _Samples = {}
    for place, metric in enumerate(METRICS):
        measured = [
            row[place]
            for row in rows
            if row[place] is not None and (metric != "e2e" or row[-1] == "completed")
        ]
        samples[metric] = np.sort(np.array(measured, dtype=np.int64))
    return samples


def _bounded(
    connection: sqlite3.Connection, period: Period, wanted: Mapping[str, str]
) -> tuple[Latency, ...]:
    """The latencies as the merged histograms know them."""
    parts = cover(period.start_us, period.end_us, read_state(connection))
    values = [n for part in parts for n in (part.grain_min, part.start_us, part.end_us)]
    sql = (
        "WITH seg(grain, start_us, end_us) AS "
        f"(VALUES {', '.join(['(?, ?, ?)'] * len(parts))}) "
        f"SELECT {', '.join(METRICS)} FROM seg CROSS JOIN {LIVE.name('latency')} AS t "
        "ON t.grain_min = seg.grain AND t.bucket_us >= seg.start_us AND t.bucket_us < seg.end_us "
        f"CROSS JOIN {LIVE.name('latency_series')} AS s "
        f"ON s.series_id = t.series_id AND {_condition('s', wanted)}"
    )
    rows = fetch(connection, sql, (*values, *wanted.values()))
    return tuple(
        distributions.from_counts(metric, histograms.unpack(row[place] for row in rows))
        for place, metric in enumerate(METRICS)
    )


def _condition(table: str, wanted: Mapping[str, str]) -> str:
    return " AND ".join(f"{table}.{column} = ?" for column in wanted)
