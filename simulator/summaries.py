"""Distributions and series of a run, from exact times to what a table or picture shows.

Quantiles are of values that occurred, never interpolated: `weighted_quantiles` returns the
smallest value with at least the share of the weight at or below it. Source: SIM-1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from simulator.fitting import Floats
from simulator.fleet import FleetResult
from simulator.iterations import IterationLog
from simulator.run_notes import waiting_at
from simulator.timing import PS_PER_S
from simulator.traces import Ints, Trace

QUANTILES = (0.50, 0.90, 0.95, 0.99)
AT_ONCE = 2**18
"""How many values of a long distribution are worked on at a time."""
CURVE_POINTS = 200
SERIES_POINTS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and the quantiles at `QUANTILES` of one latency, in ms; NaN without any value."""

    mean_ms: float
    quantiles_ms: tuple[float, ...]

    @property
    def p50_ms(self) -> float:
        """The median."""
        return self.quantiles_ms[QUANTILES.index(0.50)]

    @property
    def p99_ms(self) -> float:
        """The 99th percentile."""
        return self.quantiles_ms[QUANTILES.index(0.99)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A distribution: the value in ms below which each share of the cases lies."""

    shares: tuple[float, ...]
    values_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The fleet over time: seconds, requests waiting and in service, and the KV that they hold.

    `context_tokens` are held by requests in service: a prompt from its first scheduling, without
    what it found in the prefix cache (that counts for whoever computed it), and the output so
    far; nothing between a preempted request's runs. What is cached for nobody isn't in it.
    """

    at_s: tuple[float, ...]
    waiting: tuple[int, ...]
    in_service: tuple[int, ...]
    context_tokens: tuple[int, ...]
    kv_capacity_tokens: int


def weighted_quantiles(values: Floats, weights: Ints, shares: tuple[float, ...]) -> Floats:
    """The smallest value with at least each share of the weight at or below it; NaN if empty."""
    if not len(values):
        return np.full(len(shares), np.nan)
    order = np.argsort(values, kind="stable")
    cumulative = weights[order]
    np.cumsum(cumulative, out=cumulative)
    wanted = np.array(shares) * cumulative[-1]
    places = np.minimum(np.searchsorted(cumulative, wanted, side="left"), len(values) - 1)
    return np.asarray(values[order[places]], dtype=np.float64)


def distribution_of(values_ms: Floats) -> tuple[Spread, Curve]:
    """Mean, quantiles and curve of values that count once each."""
    return distribution_of_parts(lambda: [(values_ms, np.ones(len(values_ms), np.int64))])


def distribution_of_parts(
    parts: Callable[[], Iterable[tuple[Floats, Ints]]],
) -> tuple[Spread, Curve]:
    """Mean, quantiles and curve of all parts' values in ms, each of which counts as weighted.

    `parts` is called twice, and one part is held at a time: all gaps between the tokens of a
    large fleet would fill gigabytes. Kept are the different values, of which there are few. The
    curve is told at every half percent, 99.9 and 100 %; it is empty, and all else NaN, without
    values.
    """
    count, different, weighing = 0, np.empty(0), np.empty(0, np.int64)
    for values, weights in parts():
        count += len(values)
        different, weighing = _merged(
            np.concatenate([different, values]), np.concatenate([weighing, weights])
        )
    if not count:
        nothing = (float("nan"),) * len(QUANTILES)
        return Spread(mean_ms=float("nan"), quantiles_ms=nothing), Curve(shares=(), values_ms=())
    total = EndToEnd(values * weights for values, weights in parts()).sum(count)
    shares = (*(k / CURVE_POINTS for k in range(1, CURVE_POINTS)), 0.999, 1.0)
    told = weighted_quantiles(different, weighing, (*QUANTILES, *shares)).tolist()
    mean = total / int(weighing.sum())
    return (
        Spread(mean_ms=mean, quantiles_ms=tuple(told[: len(QUANTILES)])),
        Curve(shares=shares, values_ms=tuple(told[len(QUANTILES) :])),
    )


def _merged(values: Floats, weights: Ints) -> tuple[Floats, Ints]:
    """The different values, rising, and the weight of each."""
    different = np.unique(values)
    merged = np.zeros(len(different), np.int64)
    np.add.at(merged, np.searchsorted(different, values), weights)
    return different, merged


class EndToEnd:
    """Parts of one long array, of which `sum` is what numpy adds it up to, bit for bit.

    It halves an array down to 128 values and adds the halves' sums. So does `sum`, down to
    `at_once` values (128 at least), which are left to numpy.
    """

    def __init__(self, parts: Iterable[Floats], at_once: int = AT_ONCE) -> None:
        self._rest = iter(parts)
        self._held: Floats = np.empty(0)
        self._at_once = at_once

    def sum(self, count: int) -> float:
        """The sum of the next `count` values."""
        if count <= self._at_once:
            return float(self._take(count).sum())
        half = count // 2
        half -= half % 8
        return self.sum(half) + self.sum(count - half)

    def _take(self, count: int) -> Floats:
        pieces = []
        while count > len(self._held):
            count -= len(self._held)
            pieces.append(self._held)
            self._held = next(self._rest)
        pieces.append(self._held[:count])
        self._held = self._held[count:]
        return np.concatenate(pieces)


def series_of(trace: Trace, fleet: FleetResult, capacity_tokens: int) -> Series:
    """Counts at 240 even instants. Output grows evenly from the first to the last token of a
    run; a request preempted before its first token holds its prompt on."""
    jobs = fleet.jobs
    end = max(int(jobs.done_ps.max()), 1)
    at = np.linspace(0, end, SERIES_POINTS)
    started = np.where(jobs.scheduled_ps >= 0, jobs.scheduled_ps, jobs.done_ps)
    left_queue = np.searchsorted(np.sort(started), at, side="right")
    gone = np.searchsorted(np.sort(jobs.done_ps), at, side="right")
    begin, first, until, held, grown = _runs(trace, fleet)
    slope = grown / np.maximum(until - first, 1)
    context = _steps(begin, held, at) - _steps(until, held, at)
    context += _ramps(first, slope, at) - _ramps(first, slope, at, until=until)
    return Series(
        at_s=tuple((at / PS_PER_S).tolist()),
        waiting=tuple(waiting_at(jobs, at).tolist()),
        in_service=tuple((left_queue - gone).tolist()),
        context_tokens=tuple(np.maximum(np.rint(context), 0).astype(np.int64).tolist()),
        kv_capacity_tokens=capacity_tokens,
    )


def _runs(trace: Trace, fleet: FleetResult) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """(begin, first token, end in ps, tokens held from the beginning, tokens grown) by run.

    A request that was never preempted is one run, from its scheduling to its end.
    """
    jobs = fleet.jobs
    whole = jobs.first_token_ps >= 0
    whole[list(jobs.earlier_runs)] = False
    own = trace.input_tokens - jobs.cached_tokens
    parts = [
        np.stack(
            [
                jobs.scheduled_ps[whole],
                jobs.first_token_ps[whole],
                jobs.done_ps[whole],
                own[whole],
                jobs.output_tokens[whole],
            ]
        )
    ]
    rows: dict[int, list[tuple[int, int, int, int]]] = {}
    for job in jobs.earlier_runs:
        before = 0
        for iteration, count in jobs.runs(job):
            rows.setdefault(int(fleet.replica[job]), []).append((job, iteration, count, before))
            before += count
    for replica, listed in rows.items():
        job, iteration, count, before = np.array(listed, dtype=np.int64).T
        first = _ends_ps(fleet.iterations[replica], iteration)
        until = _ends_ps(fleet.iterations[replica], iteration + count - 1)
        begin = np.where(before == 0, jobs.scheduled_ps[job], first)
        held = np.where(before == 0, own[job], trace.input_tokens[job] + before)
        parts.append(np.stack([begin, first, until, held, count]))
    begin, first, until, held, grown = np.concatenate(parts, axis=1)
    return begin, first, until, held, grown


def _ends_ps(log: IterationLog, numbers: Ints) -> Ints:
    """When each of the iterations ended; in any order."""
    segment = np.searchsorted(log.before, numbers) - 1
    j = numbers - log.before[segment]
    ends = log.start_ps[segment] + j * log.a_ps[segment] + log.b_ps[segment] * (j * (j - 1) // 2)
    return np.asarray(ends, dtype=np.int64)


def busy_shares(fleet: FleetResult) -> tuple[float, ...]:
    """The share of the run, from the first arrival to the last end, that each replica computed."""
    span = max(int(fleet.jobs.done_ps.max()), 1)
    return tuple(
        int((log.steps * log.a_ps + log.b_ps * (log.steps * (log.steps - 1) // 2)).sum()) / span
        for log in fleet.iterations
    )


def _steps(times: Ints, heights: Ints, at: Floats) -> Floats:
    """The sum of the heights of all steps at or before each instant."""
    order = np.argsort(times, kind="stable")
    total = np.concatenate([[0], np.cumsum(heights[order])])
    return np.asarray(total[np.searchsorted(times[order], at, side="right")], dtype=np.float64)


def _ramps(first: Ints, slope: Floats, at: Floats, until: Ints | None = None) -> Floats:
    """The sum of slope x (t - first) over the ramps that began, or with `until` ended, by t."""
    times = first if until is None else until
    order = np.argsort(times, kind="stable")
    places = np.searchsorted(times[order], at, side="right")
    slopes = np.concatenate([[0.0], np.cumsum(slope[order])])[places]
    offsets = np.concatenate([[0.0], np.cumsum((slope * first)[order])])[places]
    return np.asarray(slopes * at - offsets)
