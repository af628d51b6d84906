"""Draws a trace from published per-client fits: rates, gap shapes and length quantiles.

`read_client_fits(windows, lengths)` returns the fits of ServeGen's tables (Xiang et al. 2025,
Apache-2.0): one row of `windows` is a client's rate over ten minutes, one row of `lengths` the
quantiles of one field over six hours. `draw_from_clients` turns them into a seeded `Trace` with
a tenant a client. Source: SIM-1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.trace_files import table_rows
from simulator.traces import Ints, Trace, plain_trace
from simulator.workload import Floats, draw_lengths, uniforms

WINDOW_S = 600
MAX_DRAWN_REQUESTS = 10_000_000
QUANTILES = (0.0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
_COLUMNS = ("q01", "q05", "q10", "q25", "q50", "q75", "q90", "q95", "q99", "q100")


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFit:
    """A client's arrivals in one window: requests a second and the family and shape of its gaps."""

    client: str
    window_s: int
    rate_rps: float
    is_weibull: bool
    shape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFit:
    """Quantiles (at `QUANTILES`) of one field of a client's requests from `window_s` on."""

    client: str
    window_s: int
    field: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFits:
    """What `draw_from_clients` draws from, labelled with the files' names."""

    source: str
    gaps: tuple[GapFit, ...]
    lengths: tuple[LengthFit, ...]


def read_client_fits(windows: Path, lengths: Path) -> ClientFits:
    """The fits of two CSV files (optionally gzipped); `TraceError` with line and column if bad."""
    gaps = []
    for row in table_rows(windows):
        pattern = row.text("pattern")
        if pattern not in ("Gamma", "Weibull"):
            raise row.refuse("pattern", f"{pattern[:40]!r} is neither Gamma nor Weibull")
        gaps.append(
            GapFit(
                client=row.needed("client"),
                window_s=int(row.number("window_s", 0)),
                rate_rps=row.number("rate_rps", 0),
                is_weibull=pattern == "Weibull",
                shape=row.number("shape", 1e-4),
            )
        )
    fits = []
    for row in table_rows(lengths):
        values = [row.number(column, 0) for column in _COLUMNS]
        for column, low, high in zip(_COLUMNS[1:], values, values[1:], strict=False):
            if high < low:
                raise row.refuse(column, f"{high:g} is below the quantile before it")
        fits.append(
            LengthFit(
                client=row.needed("client"),
                window_s=int(row.number("window_s", 0)),
                field=row.text("field"),
                values=(values[0], *values),
            )
        )
    return ClientFits(
        source=f"drawn from {windows.name} and {lengths.name}",
        gaps=tuple(gaps),
        lengths=tuple(fits),
    )


def draw_from_clients(
    fits: ClientFits, seed: int, *, start_s: int, duration_s: int, rate: float = 1.0
) -> Trace:
    """A `Trace` of the requests that the clients would send in [start_s, start_s + duration_s).

    Each client and window is a renewal process whose gaps have the fitted family and shape and a
    mean of 1 / (rate x rate_rps), begun at a uniform point of its first gap. Input is
    `input_tokens`, or `text_tokens` + `image_tokens` x `image_count`. Raises ValueError when no
    request falls into the span or more than 10,000,000 would.
    """
    end_s = start_s + duration_s
    lengths = _length_index(fits)
    arrivals: list[Floats] = []
    inputs: list[Ints] = []
    outputs: list[Ints] = []
    tenants: list[Ints] = []
    names = sorted({gap.client for gap in fits.gaps})
    drawn = 0
    for stream, gap in enumerate(fits.gaps):
        if gap.window_s >= end_s or gap.window_s + WINDOW_S <= start_s or gap.rate_rps * rate <= 0:
            continue
        times = gap.window_s + _renewal(gap, gap.rate_rps * rate, seed, stream)
        times = times[(times >= start_s) & (times < end_s)]
        drawn += len(times)
        if drawn > MAX_DRAWN_REQUESTS:
            raise ValueError(f"more than {MAX_DRAWN_REQUESTS} requests")
        fields = _fields_at(lengths, gap.client, gap.window_s)
        draws = {
            name: draw_lengths(uniforms(seed, (stream << 4) + 8 + k, len(times)), QUANTILES, values)
            for k, (name, values) in enumerate(sorted(fields.items()))
            if name != "reason_ratio"
        }
        if "output_tokens" not in draws or not {"input_tokens", "text_tokens"} & draws.keys():
            continue
        arrivals.append(times)
        inputs.append(_input_tokens(draws))
        outputs.append(draws["output_tokens"])
        tenants.append(np.full(len(times), names.index(gap.client), dtype=np.int64))
    if not drawn or not arrivals:
        raise ValueError("no client sends anything in that span")
    at_us = np.floor(np.concatenate(arrivals) * 1e6).astype(np.int64)
    order = np.argsort(at_us, kind="stable")
    at_us = at_us[order]
    return plain_trace(
        f"{fits.source}; seed {seed}, {start_s}..{end_s} s, rate x {rate:g}",
        at_us - at_us[0],
        np.concatenate(inputs)[order],
        np.concatenate(outputs)[order],
        tenant=np.concatenate(tenants)[order],
        tenant_names=tuple(names),
    )


def _input_tokens(draws: dict[str, Ints]) -> Ints:
    if "input_tokens" in draws:
        return draws["input_tokens"]
    none = np.zeros_like(draws["text_tokens"])
    return draws["text_tokens"] + draws.get("image_tokens", none) * draws.get("image_count", none)


def _length_index(fits: ClientFits) -> dict[str, dict[int, dict[str, tuple[float, ...]]]]:
    index: dict[str, dict[int, dict[str, tuple[float, ...]]]] = {}
    for fit in fits.lengths:
        index.setdefault(fit.client, {}).setdefault(fit.window_s, {})[fit.field] = fit.values
    return index


def _fields_at(
    index: dict[str, dict[int, dict[str, tuple[float, ...]]]], client: str, window_s: int
) -> dict[str, tuple[float, ...]]:
    """The client's length fits of the latest window at or before `window_s`, else its first."""
    windows = index.get(client, {})
    if not windows:
        return {}
    before = [at for at in windows if at <= window_s]
    return windows[max(before) if before else min(windows)]


def _renewal(gap: GapFit, rate_rps: float, seed: int, stream: int) -> Floats:
    """Arrival times (seconds) within one window, starting at 0."""
    expected = max(64, int(2 * rate_rps * WINDOW_S))
    times = np.empty(0)
    for part in range(1000):
        gaps = _unit_gaps(gap, seed, (stream << 4) + (part << 40), expected) / rate_rps
        if part == 0:
            gaps[0] *= uniforms(seed, (stream << 4) + 7, 1)[0]
        times = np.concatenate([times, np.cumsum(gaps) + (times[-1] if len(times) else 0.0)])
        if times[-1] >= WINDOW_S or len(times) > MAX_DRAWN_REQUESTS:
            break
    return times[times < WINDOW_S]


def _unit_gaps(gap: GapFit, seed: int, stream: int, n: int) -> Floats:
    """n gaps of mean 1 in the fitted family and shape."""
    if gap.is_weibull:
        draws = (-np.log1p(-uniforms(seed, stream, n))) ** (1 / gap.shape)
        return draws / math.gamma(1 + 1 / gap.shape)
    return unit_gamma(gap.shape, seed, stream, n) / gap.shape


def unit_gamma(shape: float, seed: int, stream: int, n: int) -> Floats:
    """n Gamma(shape, 1) draws by Marsaglia and Tsang's rejection (2000), boosted below shape 1.

    Of our own because numpy doesn't promise the same stream for its distributions across versions.
    """
    boosted = shape + 1 if shape < 1 else shape
    d = boosted - 1 / 3
    c = 1 / math.sqrt(9 * d)
    kept: list[Floats] = []
    found = 0
    part = 0
    while found < n:
        m = n - found + 64
        u = uniforms(seed, stream + (part << 60), 4 * m).reshape(4, m)
        # Box and Muller; 1 - u is never 0.
        normal = np.sqrt(-2 * np.log1p(-u[0])) * np.cos(2 * math.pi * u[1])
        v = (1 + c * normal) ** 3
        safe = np.where(v > 0, v, 1.0)
        accept = (v > 0) & (np.log1p(-u[2]) < normal**2 / 2 + d - d * v + d * np.log(safe))
        draws = d * v[accept]
        if shape < 1:
            draws = draws * (1 - u[3][accept]) ** (1 / shape)
        kept.append(draws)
        found += len(draws)
        part += 1
    return np.concatenate(kept)[:n]
