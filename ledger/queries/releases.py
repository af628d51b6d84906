"""Two sides of the same traffic compared: model identities, or the arms of a release (REL-2)."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ledger import distributions, histograms
from ledger.distributions import METRICS, Latency, Metric
from ledger.money import join
from ledger.queries.costs import unit_cost_pico
from ledger.reading import fetch
from ledger.releases import RatioTest, TailTest, ratio_test, tail_test
from ledger.rollups.cover import Segment, cover
from ledger.rollups.projection import read_state
from ledger.rollups.tables import LIVE
from ledger.zones import Period

EXACT_LIMIT = 20_000  # receipts of a side that are read one by one
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
    """What one side did. `judged` and `valid` are those of valid completion (SLO-0)."""

    side: Side
    receipts: int
    completed: int
    cancelled: int
    failed: int
    unknown: int
    degraded: int
    judged: int
    valid: int
    input_tokens: int
    output_tokens: int
    cost_total_pico: int
    cost_per_completed_pico: int | None
    latencies: tuple[Latency, ...]  # in the order of METRICS

    @property
    def completion_rate(self) -> Fraction | None:
        """Valid completions over those that count; None where none does."""
        return Fraction(self.valid, self.judged) if self.judged else None


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
    part, values = _totals_part(connection, period)
    sql = (
        f"WITH {part} SELECT s.logical_model, s.identity_id, s.release_id, s.arm, "  # noqa: S608
        f"SUM(part.receipts) FROM part CROSS JOIN {LIVE.name('series')} s "
        "ON s.series_id = part.series_id AND s.identity_id <> '' GROUP BY 1, 2, 3, 4"
    )
    counted: dict[tuple[str, Side], int] = {}
    for model, identity, release, arm, receipts in fetch(connection, sql, values):
        found = [Side(identity_id=identity)]
        if release and arm:
            found.append(Side(release_id=release, arm=arm))
        for side in found:
            counted[model, side] = counted.get((model, side), 0) + receipts
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

    Quantiles are exact where a side has at most EXACT_LIMIT receipts, else from histograms, with
    the bounds between which the exact value lies; tail tests need exact values on both sides.
    """
    reports, samples = [], []
    for side in (baseline, candidate):
        report, exact = _side(connection, period, logical_model, side, priority)
        reports.append(report)
        samples.append(exact)
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
            (reports[0].valid, reports[0].judged), (reports[1].valid, reports[1].judged)
        ),
        tails=tuple(tails),
    )


_Samples = dict[Metric, npt.NDArray[np.int64]]  # ascending


def _side(
    connection: sqlite3.Connection, period: Period, logical_model: str, side: Side, priority: str
) -> tuple[SideReport, _Samples | None]:
    where, wanted = _conditions(logical_model, side, priority)
    part, values = _totals_part(connection, period)
    sql = (
        f"WITH {part} SELECT s.status, s.degraded, s.route_id, SUM(part.receipts), "  # noqa: S608
        "SUM(part.judged), SUM(part.valid), SUM(part.input_tokens), SUM(part.output_tokens), "
        "SUM(part.cost_total_high), SUM(part.cost_total_low) "
        f"FROM part CROSS JOIN {LIVE.name('series')} s ON s.series_id = part.series_id "
        f"AND {where} GROUP BY 1, 2, 3 HAVING SUM(part.receipts) > 0"
    )
    rows = fetch(connection, sql, (*values, *wanted))
    receipts = sum(row[3] for row in rows)
    routes = sorted({row[2] for row in rows if row[2]})
    samples = None
    if receipts <= EXACT_LIMIT:
        samples = _samples(connection, period, routes, where, wanted)
        latencies = tuple(distributions.exact(metric, samples[metric]) for metric in METRICS)
    else:
        latencies = _bounded(connection, period, where, wanted)
    cost_pico = sum(join(row[8], row[9]) for row in rows)
    by_status = {
        status: sum(row[3] for row in rows if row[0] == status)
        for status in ("completed", "cancelled", "failed", "unknown")
    }
    report = SideReport(
        side=side,
        receipts=receipts,
        completed=by_status["completed"],
        cancelled=by_status["cancelled"],
        failed=by_status["failed"],
        unknown=by_status["unknown"],
        degraded=sum(row[3] for row in rows if row[1]),
        judged=sum(row[4] for row in rows),
        valid=sum(row[5] for row in rows),
        input_tokens=sum(row[6] for row in rows),
        output_tokens=sum(row[7] for row in rows),
        cost_total_pico=cost_pico,
        cost_per_completed_pico=unit_cost_pico(cost_pico, by_status["completed"]),
        latencies=latencies,
    )
    return report, samples


def _conditions(logical_model: str, side: Side, priority: str) -> tuple[str, list[str]]:
    """The condition on the columns that receipts and series share, and its values."""
    named = {"logical_model": logical_model}
    if side.identity_id:
        named["identity_id"] = side.identity_id
    else:
        named |= {"release_id": side.release_id, "arm": side.arm}
    if priority:
        named["priority"] = priority
    return " AND ".join(f"s.{name} = ?" for name in named), list(named.values())


def _segments(connection: sqlite3.Connection, period: Period) -> tuple[str, list[int]]:
    """`VALUES (…)` of the segments that cover the period, which is at least one empty one."""
    parts = cover(period.start_us, period.end_us, read_state(connection)) or (Segment(0, 0, 0),)
    values = [n for part in parts for n in (part.grain_min, part.start_us, part.end_us)]
    return f"VALUES {', '.join(['(?, ?, ?)'] * len(parts))}", values


def _totals_part(connection: sqlite3.Connection, period: Period) -> tuple[str, list[int]]:
    """Common table expressions that end in `part`: the period's totals by series."""
    segments, values = _segments(connection, period)
    names = (
        "receipts",
        "judged",
        "valid",
        "input_tokens",
        "output_tokens",
        "cost_total_high",
        "cost_total_low",
    )
    sums = ", ".join(f"SUM(t.{name}) AS {name}" for name in names)
    sql = (
        f"seg(grain, start_us, end_us) AS ({segments}), "  # noqa: S608 - own names
        f"part AS (SELECT t.series_id AS series_id, {sums} FROM seg "
        f"CROSS JOIN {LIVE.name('total')} t ON t.grain_min = seg.grain "
        "AND t.bucket_us >= seg.start_us AND t.bucket_us < seg.end_us GROUP BY 1)"
    )
    return sql, values


def _samples(
    connection: sqlite3.Connection,
    period: Period,
    routes: Sequence[str],
    where: str,
    wanted: Sequence[str],
) -> _Samples:
    """Every measured value of the side's current receipts, ascending, by the routes' index."""
    if not routes:
        return {metric: np.empty(0, dtype=np.int64) for metric in METRICS}
    columns = ", ".join(f"s.{_COLUMN[metric]}" for metric in METRICS)
    sql = (
        f"SELECT {columns}, s.status FROM receipt s INDEXED BY receipt_route "  # noqa: S608
        f"WHERE s.route_id IN ({', '.join('?' * len(routes))}) "
        f"AND s.accepted_at_us >= ? AND s.accepted_at_us < ? AND {where} "
        "AND s.status <> 'rejected' AND (s.status <> 'unknown' OR NOT EXISTS (SELECT 1 "
        "FROM receipt n WHERE n.request_id = s.request_id AND n.revision = s.revision + 1)) "
        "LIMIT ?"
    )
    limit = EXACT_LIMIT + 1
    rows = fetch(connection, sql, (*routes, period.start_us, period.end_us, *wanted, limit))
    samples: _Samples = {}
    for place, metric in enumerate(METRICS):
        completed_only = metric == "e2e"
        values = [
            row[place]
            for row in rows
            if row[place] is not None and (not completed_only or row[4] == "completed")
        ]
        samples[metric] = np.sort(np.array(values, dtype=np.int64))
    return samples


def _bounded(
    connection: sqlite3.Connection, period: Period, where: str, wanted: Sequence[str]
) -> tuple[Latency, ...]:
    segments, values = _segments(connection, period)
    sql = (
        f"WITH seg(grain, start_us, end_us) AS ({segments}) "  # noqa: S608 - own names
        f"SELECT {', '.join(f't.{metric}' for metric in METRICS)} FROM seg "
        f"CROSS JOIN {LIVE.name('latency')} t ON t.grain_min = seg.grain "
        "AND t.bucket_us >= seg.start_us AND t.bucket_us < seg.end_us "
        f"CROSS JOIN {LIVE.name('latency_series')} s ON s.series_id = t.series_id AND {where}"
    )
    rows = fetch(connection, sql, (*values, *wanted))
    found = []
    for place, metric in enumerate(METRICS):
        counts = histograms.unpack(row[place] for row in rows)
        found.append(distributions.from_counts(metric, counts))
    return tuple(found)
