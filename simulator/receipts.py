"""What a deployment measured, request by request, and how far a forecast is from it.

`read_receipts(path)` returns `Receipts`; `latencies` their TTFT, TPOT and E2E; `compare` the
error of a forecast by metric, in the mean and at quantiles. Source: SIMULATOR.md "what is
promised", SIM-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.fitting import Floats
from simulator.trace_files import any_rows
from simulator.trace_shapes import MAX_TIME_US, MAX_TOKENS, Row
from simulator.traces import Ints, TraceError

METRICS = ("ttft", "tpot", "e2e")
QUANTILES = (0.50, 0.90, 0.95, 0.99)
MAX_RECEIPTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """n completed requests of one replica, columns of shape (n,), ordered by arrival.

    Times are int64 µs on one clock whose zero is free. Raises ValueError where a first token
    precedes its arrival or a last token its first, and for columns of different lengths.
    """

    source: str
    arrival_us: Ints
    first_token_us: Ints
    last_token_us: Ints
    input_tokens: Ints
    output_tokens: Ints

    def __post_init__(self) -> None:
        n = len(self.arrival_us)
        columns = (self.first_token_us, self.last_token_us, self.input_tokens, self.output_tokens)
        if any(len(column) != n for column in columns):
            raise ValueError("the columns of receipts differ in length")
        if not 0 < n <= MAX_RECEIPTS:
            raise ValueError(f"between 1 and {MAX_RECEIPTS} receipts are needed")
        if (np.diff(self.arrival_us) < 0).any():
            raise ValueError("receipts are ordered by arrival")
        if (self.first_token_us < self.arrival_us).any():
            raise ValueError("a first token precedes its arrival")
        if (self.last_token_us < self.first_token_us).any():
            raise ValueError("a last token precedes its first")
        if min(int(self.input_tokens.min()), int(self.output_tokens.min())) < 1:
            raise ValueError("a receipt has at least one input and one output token")

    def __len__(self) -> int:
        return len(self.arrival_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """TTFT, TPOT and E2E in µs, each of shape (n,); TPOT is NaN where there is one token."""

    ttft: Floats
    tpot: Floats
    e2e: Floats

    def of(self, metric: str) -> Floats:
        """The column of that metric, one of `METRICS`."""
        return {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.e2e}[metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricError:
    """A forecast against a measurement: fractions, forecast over measured - 1.

    `quantile_errors` go with `QUANTILES` and compare the two distributions; `mean_abs` is the
    mean over requests of each one's own absolute relative error.
    """

    metric: str
    requests: int
    measured_mean_us: float
    forecast_mean_us: float
    mean_error: float
    quantile_errors: tuple[float, ...]
    mean_abs: float

    @property
    def p99_error(self) -> float:
        """The error at the 99th percentile."""
        return self.quantile_errors[QUANTILES.index(0.99)]


def latencies(receipts: Receipts) -> Latencies:
    """The measured latencies of the receipts."""
    return latencies_of(
        receipts.arrival_us.astype(np.float64),
        receipts.first_token_us.astype(np.float64),
        receipts.last_token_us.astype(np.float64),
        receipts.output_tokens,
    )


def latencies_of(arrival: Floats, first: Floats, last: Floats, output_tokens: Ints) -> Latencies:
    """Latencies from three times on one clock, in its unit; TPOT = (last - first) / (out - 1)."""
    gaps = np.where(output_tokens > 1, output_tokens - 1, np.nan)
    return Latencies(ttft=first - arrival, tpot=(last - first) / gaps, e2e=last - arrival)


def compare(measured: Latencies, forecast: Latencies, rows: Ints) -> tuple[MetricError, ...]:
    """The forecast's error on `rows` (indices), one entry a metric that has any value there."""
    errors = []
    for metric in METRICS:
        real, told = measured.of(metric)[rows], forecast.of(metric)[rows]
        known = ~np.isnan(real) & ~np.isnan(told) & (real > 0)
        real, told = real[known], told[known]
        if len(real):
            at_real, at_told = np.quantile(real, QUANTILES), np.quantile(told, QUANTILES)
            errors.append(
                MetricError(
                    metric=metric,
                    requests=len(real),
                    measured_mean_us=float(real.mean()),
                    forecast_mean_us=float(told.mean()),
                    mean_error=float(told.mean() / real.mean() - 1),
                    quantile_errors=tuple((at_told / at_real - 1).tolist()),
                    mean_abs=float(np.abs(told / real - 1).mean()),
                )
            )
    return tuple(errors)


_OWN = frozenset({"arrival_us", "first_token_us", "last_token_us", "input_tokens", "output_tokens"})
_ENGINE = frozenset(
    {"arrival_time", "queued_ts", "first_token_ts", "last_token_ts", "input_toks", "output_toks"}
)


def read_receipts(path: Path) -> Receipts:
    """The receipts in a CSV or JSONL file, sorted by arrival.

    Two shapes: this project's (`arrival_us`, `first_token_us`, `last_token_us`, `input_tokens`,
    `output_tokens`), and vLLM's request metrics, whose `arrival_time` is wall-clock seconds and
    whose `*_ts` are engine seconds: the first request's `queued_ts` ties the two clocks, because
    later ones are quantised to iteration boundaries. Raises `TraceError` with line and column.
    """
    rows: list[tuple[int, int, int, int, int]] = []
    tie_us = 0
    for row in any_rows(path):
        names = set(row.fields)
        if names >= _OWN:
            times = [row.integer(name, 0, MAX_TIME_US) for name in _TIMES]
            lengths = [
                row.integer(name, 1, MAX_TOKENS) for name in ("input_tokens", "output_tokens")
            ]
        elif names >= _ENGINE:
            arrival_us = row.scaled_us("arrival_time", 1_000_000)
            if not rows:
                tie_us = row.scaled_us("queued_ts", 1_000_000) - arrival_us
            times = [arrival_us + tie_us]
            times += [row.scaled_us(f"{at}_token_ts", 1_000_000) for at in ("first", "last")]
            lengths = [row.integer(name, 1, MAX_TOKENS) for name in ("input_toks", "output_toks")]
        else:
            raise row.refuse("1", "neither this project's receipts nor vLLM's request metrics")
        _check_order(row, times)
        rows.append((times[0], times[1], times[2], lengths[0], lengths[1]))
        if len(rows) > MAX_RECEIPTS:
            raise row.refuse("1", f"more than {MAX_RECEIPTS} receipts")
    if not rows:
        raise TraceError(source=path.name, line=1, column="1", reason="holds no receipts")
    columns = np.array(sorted(rows), dtype=np.int64).T
    return Receipts(
        source=path.name,
        arrival_us=columns[0],
        first_token_us=columns[1],
        last_token_us=columns[2],
        input_tokens=columns[3],
        output_tokens=columns[4],
    )


_TIMES = ("arrival_us", "first_token_us", "last_token_us")


def _check_order(row: Row, times: list[int]) -> None:
    if not times[0] <= times[1] <= times[2]:
        raise row.refuse("first_token_us", "arrival, first token and last token are out of order")
