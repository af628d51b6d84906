"""Fits a time model to the receipts of one replica: simulation in the loop.

`calibrate(receipts, config, prior)` returns a `Calibration`: the prior's coefficients scaled so
that the simulated latencies of the same requests meet the measured ones. `backtest` fits some
requests and judges the others. From iteration records, use `fitting.fit_iterations` instead.

Method: damped Gauss-Newton. Each pass simulates the whole workload once for each coefficient
moved up and once moved down by a twentieth, and solves for non-negative coefficients with a
ridge towards the prior. The steps are wide on purpose. A token earlier or later regroups the
batches behind it, so the latencies are a staircase in each coefficient; its slope at a point
ignores the regrouping and misleads (TTFT of unqueued requests would depend on all iterations
since the start), the secant over many stairs doesn't. Source: SIMULATOR.md "Fitting", SIM-1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.batch import job_arrays, simulate
from simulator.fitting import Floats, nnls
from simulator.observed import reach_of
from simulator.receipts import (
    METRICS,
    Latencies,
    MetricError,
    Receipts,
    compare,
    latencies,
    latencies_of,
)
from simulator.scheduler import ReplicaConfig
from simulator.timing import PS_PER_US, ObservedRange, TimeModel
from simulator.traces import Ints

Split = Literal["interleaved", "interleaved, other half", "first half to last half"]
SPLITS: tuple[Split, ...] = (
    "interleaved",
    "interleaved, other half",
    "first half to last half",
)

MIN_RECEIPTS = 20
MIN_BACKTESTED_RECEIPTS = 2 * MIN_RECEIPTS
"""Every split fits one half of them."""

MAX_CALIBRATED_RECEIPTS = 50_000
USED_RECEIPTS = 5_000
"""As many in a row fix a dozen coefficients; the time of a fit grows with them."""

OVERHEAD_PRIOR_PS = 20_000_000_000
OVERHEAD_SPREAD_PS = 50_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """Knobs of the fit, all relative; the defaults were chosen on the two public runs.

    `step` is the half-width of the secants and `ridge` the pull to the prior, both in units of
    the prior coefficient. `ttft_floor` adds that share of the mean to each TTFT before its
    relative error is taken, so that a few milliseconds of an unqueued request don't outweigh
    seconds of a queued one. `trust` limits the move in one pass.
    """

    passes: int = 8
    damping: float = 0.6
    step: float = 0.05
    ridge: float = 0.01
    ttft_floor: float = 0.5
    trust: float = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted model and how well it meets the requests that it was fitted to.

    `overhead_us` is spent outside the engine's iterations, before the first token: it counts
    into TTFT and E2E. `factors` are the coefficients over the prior's.
    """

    model: TimeModel
    overhead_us: int
    requests: int
    errors: tuple[MetricError, ...]
    factors: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """A calibration on one part of the receipts and its errors on the part that it never saw."""

    split: Split
    calibration: Calibration
    held_out: tuple[MetricError, ...]
    forecast: Latencies


def latest(receipts: Receipts, count: int = USED_RECEIPTS) -> Receipts:
    """The last `count` to arrive, all if there are no more.

    A row without gaps, not a sample: every request loads the replica that the others run on.
    """
    if len(receipts) <= count:
        return receipts
    return Receipts(
        source=receipts.source,
        arrival_us=receipts.arrival_us[-count:],
        first_token_us=receipts.first_token_us[-count:],
        last_token_us=receipts.last_token_us[-count:],
        input_tokens=receipts.input_tokens[-count:],
        output_tokens=receipts.output_tokens[-count:],
    )


def forecast(
    receipts: Receipts, config: ReplicaConfig, model: TimeModel, overhead_us: int = 0
) -> Latencies:
    """The simulated latencies of the receipts' requests in µs; NaN for one that is refused."""
    arrival_ps = (receipts.arrival_us - receipts.arrival_us[0]) * PS_PER_US
    jobs = job_arrays(arrival_ps, receipts.input_tokens, receipts.output_tokens)
    result = simulate(jobs, config, model)
    served = result.first_token_ps >= 0
    first = np.where(served, result.first_token_ps / PS_PER_US + overhead_us, np.nan)
    done = np.where(served, result.done_ps / PS_PER_US + overhead_us, np.nan)
    return latencies_of(arrival_ps / PS_PER_US, first, done, receipts.output_tokens)


def calibrate(
    receipts: Receipts,
    config: ReplicaConfig,
    prior: TimeModel,
    *,
    rows: Ints | None = None,
    settings: FitSettings | None = None,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """The best of the passes, judged on `rows` (indices of requests; all unless given).

    All requests are simulated, because all of them load the replica; only `rows` are fitted.
    Raises ValueError for fewer than 20 rows, more than 50,000 receipts, or a request that the
    configuration can't serve at all.
    """
    fitted = np.arange(len(receipts)) if rows is None else rows
    if len(fitted) < MIN_RECEIPTS:
        raise ValueError(f"at least {MIN_RECEIPTS} receipts are needed")
    if len(receipts) > MAX_CALIBRATED_RECEIPTS:
        raise ValueError(f"at most {MAX_CALIBRATED_RECEIPTS} receipts are calibrated on")
    totals = receipts.input_tokens + receipts.output_tokens
    if int(totals.max()) > config.max_servable_tokens:
        raise ValueError("a receipt is larger than this configuration can serve")
    problem = _Problem(receipts, config, prior, fitted, settings or FitSettings())
    vector = problem.solve(progress)
    model, overhead_us = problem.model(vector)
    told = forecast(receipts, config, model, overhead_us)
    return Calibration(
        model=model,
        overhead_us=overhead_us,
        requests=len(fitted),
        errors=compare(problem.measured, told, fitted),
        factors=problem.factors(vector),
    )


def backtest(
    receipts: Receipts,
    config: ReplicaConfig,
    prior: TimeModel,
    split: Split,
    *,
    settings: FitSettings | None = None,
    progress: Callable[[float], None] | None = None,
) -> Backtest:
    """The calibration on one side of the split and its errors on the other.

    Interleaved halves take every other request by arrival; the last split fits the requests that
    arrived in the first half of the list and judges the rest.
    """
    n = len(receipts)
    fitted, held = {
        "interleaved": (np.arange(0, n, 2), np.arange(1, n, 2)),
        "interleaved, other half": (np.arange(1, n, 2), np.arange(0, n, 2)),
        "first half to last half": (np.arange(n // 2), np.arange(n // 2, n)),
    }[split]
    found = calibrate(receipts, config, prior, rows=fitted, settings=settings, progress=progress)
    told = forecast(receipts, config, found.model, found.overhead_us)
    return Backtest(
        split=split,
        calibration=found,
        held_out=compare(latencies(receipts), told, held),
        forecast=told,
    )


class _Problem:
    """The vector of coefficients (ps): f at the first knot, its slopes, c_b, c_s, c_a, c_mix,
    and last the overhead outside the engine."""

    def __init__(
        self,
        receipts: Receipts,
        config: ReplicaConfig,
        prior: TimeModel,
        rows: Ints,
        settings: FitSettings,
    ) -> None:
        self.receipts, self.config, self.prior = receipts, config, prior
        self.rows, self.settings = rows, settings
        self.measured = latencies(receipts)
        self.knots = np.array([point[0] for point in prior.breakpoints], dtype=np.int64)
        heights = np.array([point[1] for point in prior.breakpoints], dtype=np.float64)
        slopes = np.diff(heights) / np.diff(self.knots)
        rest = [
            prior.per_decode_ps,
            prior.per_context_token_ps,
            prior.per_attention_pair_ps,
            prior.mixed_ps,
            OVERHEAD_PRIOR_PS,
        ]
        self.start = np.concatenate([heights[:1], slopes, np.array(rest, dtype=np.float64)])
        self.spread = self._spread(slopes)
        self.observed = self._observed()

    def _spread(self, slopes: Floats) -> Floats:
        """How far each coefficient may plausibly be off; a coefficient of 0 still needs room."""
        base = self.start[0]
        steepest = float(slopes.max(initial=0.0)) or base / 64
        floors = [base * 1e-3] + [steepest * 0.05] * len(slopes)
        floors += [base * 1e-4, base * 1e-6, steepest * 1e-5, base * 0.3, OVERHEAD_SPREAD_PS]
        return np.asarray(np.maximum(self.start, np.array(floors)), dtype=np.float64)

    def _observed(self) -> ObservedRange:
        return reach_of(
            self.receipts.first_token_us.astype(np.float64),
            self.receipts.last_token_us.astype(np.float64),
            self.receipts.input_tokens,
            self.receipts.output_tokens,
            max_batched_tokens=self.config.max_num_batched_tokens,
        )

    def model(self, vector: Floats) -> tuple[TimeModel, int]:
        """The time model of a vector, in whole picoseconds, and the overhead in µs."""
        n = len(self.knots)
        rises = np.concatenate([[0.0], np.cumsum(vector[1:n] * np.diff(self.knots))])
        heights = [max(1, round(float(h))) for h in vector[0] + rises]
        rest = [round(float(c)) for c in vector[n:]]
        model = TimeModel(
            name=f"{self.prior.name}, calibrated",
            breakpoints=tuple(zip(self.knots.tolist(), heights, strict=True)),
            per_decode_ps=rest[0],
            per_context_token_ps=rest[1],
            per_attention_pair_ps=rest[2],
            mixed_ps=rest[3],
            calibrated=True,
            observed=self.observed,
        )
        return model, round(rest[4] / PS_PER_US)

    def factors(self, vector: Floats) -> tuple[tuple[str, float], ...]:
        """Each coefficient over the prior's, where the prior has one."""
        names = ["f(1)"] + [f"slope of f to {knot}" for knot in self.knots[1:].tolist()]
        names += ["c_b", "c_s", "c_a", "c_mix"]
        return tuple(
            (name, float(now / before))
            for name, now, before in zip(names, vector[:-1], self.start[:-1], strict=True)
            if before > 0
        )

    def simulated(self, vector: Floats) -> Floats:
        """Forecast latencies of the fitted rows, (metrics, rows), µs; TPOT 0 where undefined."""
        told = forecast(self.receipts, self.config, *self.model(vector))
        return self._table(told)

    def _table(self, found: Latencies) -> Floats:
        table = np.stack([found.of(metric)[self.rows] for metric in METRICS])
        return np.nan_to_num(table)

    def solve(self, progress: Callable[[float], None] | None) -> Floats:
        """The vector with the least cost over all passes."""
        settings = self.settings
        target = self._table(self.measured)
        means = target.mean(axis=1, keepdims=True)
        floor = np.array([settings.ttft_floor, 0.0, 0.0])[:, None] * means
        # One-token answers have no TPOT: an unreachable scale takes them out of the fit.
        scale = np.where(target > 0, target + floor, np.inf)
        vector = best = self.start.copy()
        best_cost = np.inf
        for turn in range(settings.passes + 1):
            told = self.simulated(vector)
            cost = self._cost(vector, told, target, scale, means)
            if cost < best_cost:
                best, best_cost = vector, cost
            if turn == settings.passes:
                break
            vector = self._improved(vector, told, target, scale, means)
            if progress is not None:
                progress((turn + 1) / settings.passes)
        return best

    def _cost(
        self, vector: Floats, told: Floats, target: Floats, scale: Floats, means: Floats
    ) -> float:
        each = np.clip((told - target) / scale, -0.3, 0.3)
        mean = (told.mean(axis=1) - target.mean(axis=1)) / np.maximum(means[:, 0], 1e-9)
        pull = (vector - self.start) / self.spread
        return float(
            (each**2).mean(axis=1).sum() + (mean**2).sum() + self.settings.ridge * (pull**2).mean()
        )

    def _improved(
        self, vector: Floats, told: Floats, target: Floats, scale: Floats, means: Floats
    ) -> Floats:
        settings = self.settings
        slopes = self._secants(vector)
        rows: list[Floats] = []
        wanted: list[Floats] = []
        for metric in range(len(METRICS)):
            off = np.abs(told[metric] - target[metric]) / scale[metric]
            # Huber: a request that landed in another batch altogether pulls with bounded force.
            weight = 1 / (scale[metric] * np.sqrt(len(self.rows) * np.maximum(1.0, off / 0.1)))
            linear = slopes[:, metric]
            gap = target[metric] - told[metric]
            rows.append((linear * weight).T)
            wanted.append(weight * (gap + vector @ linear))
            mean_weight = 1 / max(float(means[metric, 0]), 1e-9)
            rows.append(mean_weight * linear.mean(axis=1)[None])
            wanted.append(np.array([mean_weight * (gap.mean() + vector @ linear.mean(axis=1))]))
        ridge = np.sqrt(settings.ridge / len(vector)) / self.spread
        rows.append(np.diag(ridge))
        wanted.append(ridge * self.start)
        matrix = np.concatenate(rows) * self.spread
        solution = nnls(matrix, np.concatenate(wanted)) * self.spread
        reach = settings.trust * self.spread
        solution = np.clip(solution, vector - reach, vector + reach)
        moved = vector + settings.damping * (solution - vector)
        return np.maximum(moved, 1e-3 * self.start)

    def _secants(self, vector: Floats) -> Floats:
        """d latency / d coefficient, secants to both sides, (coefficients, metrics, rows)."""
        slopes = []
        for index in range(len(vector)):
            step = self.settings.step * self.spread[index]
            up, down = vector.copy(), vector.copy()
            up[index] += step
            down[index] = max(0.0, down[index] - step)
            rise = self.simulated(up) - self.simulated(down)
            slopes.append(rise / (up[index] - down[index]))
        return np.stack(slopes)
