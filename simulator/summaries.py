"""Distributions and series of a run, from exact times to what a table or picture shows.

Quantiles are of values that occurred, never interpolated: `weighted_quantiles` returns the
smallest value with at least the share of the weight at or below it. Source: SIM-1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.batch import SimulationResult
from simulator.fitting import Floats
from simulator.timing import PS_PER_S
from simulator.traces import Ints, Trace

QUANTILES = (0.50, 0.90, 0.95, 0.99)
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
    """The fleet over time: seconds, requests waiting and in service, their context tokens."""

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
    cumulative = np.cumsum(weights[order])
    wanted = np.array(shares) * cumulative[-1]
    places = np.minimum(np.searchsorted(cumulative, wanted, side="left"), len(values) - 1)
    return np.asarray(values[order][places], dtype=np.float64)


def spread_of(values_ms: Floats, weights: Ints) -> Spread:
    """Mean and quantiles of values that each count `weights` times."""
    mean = float((values_ms * weights).sum() / weights.sum()) if len(values_ms) else float("nan")
    return Spread(
        mean_ms=mean, quantiles_ms=tuple(weighted_quantiles(values_ms, weights, QUANTILES).tolist())
    )


def curve_of(values_ms: Floats, weights: Ints) -> Curve:
    """The distribution at every half percent, 99.9 and 100 %; empty without values."""
    shares = (*(k / CURVE_POINTS for k in range(1, CURVE_POINTS)), 0.999, 1.0)
    if not len(values_ms):
        return Curve(shares=(), values_ms=())
    values = weighted_quantiles(values_ms, weights, shares)
    return Curve(shares=shares, values_ms=tuple(values.tolist()))


def series_of(trace: Trace, jobs: SimulationResult, capacity_tokens: int) -> Series:
    """Counts at 240 even instants. Context grows evenly between first and last token; that of a
    preempted request counts on while it waits, because its client sees one request."""
    end = max(int(jobs.done_ps.max()), 1)
    at = np.linspace(0, end, SERIES_POINTS)
    started = np.where(jobs.scheduled_ps >= 0, jobs.scheduled_ps, jobs.done_ps)
    arrived = np.searchsorted(np.sort(jobs.arrival_ps), at, side="right")
    left_queue = np.searchsorted(np.sort(started), at, side="right")
    gone = np.searchsorted(np.sort(jobs.done_ps), at, side="right")
    ran = jobs.first_token_ps >= 0
    begin, done = jobs.scheduled_ps[ran], jobs.done_ps[ran]
    first = jobs.first_token_ps[ran]
    slope = jobs.output_tokens[ran] / np.maximum(done - first, 1)
    held = _steps(begin, trace.input_tokens[ran], at) - _steps(done, trace.input_tokens[ran], at)
    grown = _ramps(first, slope, at) - _ramps(first, slope, at, until=done)
    return Series(
        at_s=tuple((at / PS_PER_S).tolist()),
        waiting=tuple((arrived - left_queue).tolist()),
        in_service=tuple((left_queue - gone).tolist()),
        context_tokens=tuple(np.maximum(np.rint(held + grown), 0).astype(np.int64).tolist()),
        kv_capacity_tokens=capacity_tokens,
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
