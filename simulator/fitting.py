"""Fits the time model to iteration records by weighted non-negative least squares.

`fit_iterations(records, name=...)` returns the `TimeModel` in integer picoseconds and its error
by kind of iteration. Weights are 1 / duration, so the error that is minimised is relative, and
each kind of iteration (decode, prefill, mixed) carries a stated share of the weight: tables hold
a hundred mixed rows for each pure decode, yet a replica spends most of its time decoding.
Source: SIMULATOR.md "Clock and time model"; Lawson and Hanson 1974, chapter 23, for the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simulator.timing import PS_PER_US, ObservedRange, TimeModel
from simulator.traces import Ints

Floats = NDArray[np.float64]

KINDS = ("decode", "prefill", "mixed")
DEFAULT_KNOTS = (1, 64, 128, 256, 512, 1024, 2048)
DEFAULT_SHARES = (2.0, 1.0, 1.0)
MAX_RECORDS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRecords:
    """n measured iterations, each column of shape (n,); durations in µs, the rest in tokens.

    `decode_context_sum` adds up the computed tokens of the decodes, `attention_pairs` the
    query-key pairs of the prefill chunks, as in timing.py. Raises ValueError for columns of
    different lengths, for none, too many, or an iteration without tokens or time.
    """

    prefill_tokens: Ints
    decodes: Ints
    decode_context_sum: Ints
    attention_pairs: Ints
    duration_us: Floats

    def __post_init__(self) -> None:
        n = len(self.duration_us)
        columns = (
            self.prefill_tokens,
            self.decodes,
            self.decode_context_sum,
            self.attention_pairs,
        )
        if any(len(column) != n for column in columns):
            raise ValueError("the columns of iteration records differ in length")
        if not 0 < n <= MAX_RECORDS:
            raise ValueError(f"between 1 and {MAX_RECORDS} iteration records are needed")
        if min(int(column.min()) for column in columns) < 0 or not self.duration_us.min() > 0:
            raise ValueError("iteration records hold a negative count or no time")
        if int((self.prefill_tokens + self.decodes).min()) < 1:
            raise ValueError("an iteration record without tokens")

    def __len__(self) -> int:
        return len(self.duration_us)

    def kind(self) -> Ints:
        """Index into `KINDS` of each record, (n,)."""
        return np.where(self.prefill_tokens == 0, 0, np.where(self.decodes == 0, 1, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class KindError:
    """Relative error of the fit on one kind of iteration: fractions, model over measurement - 1."""

    kind: str
    records: int
    bias: float
    mean_abs: float
    p99_abs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """The model, rounded to integers, and the error of the rounded model on its own records."""

    model: TimeModel
    errors: tuple[KindError, ...]


def fit_iterations(
    records: IterationRecords,
    *,
    name: str,
    knots: tuple[int, ...] = DEFAULT_KNOTS,
    shares: tuple[float, float, float] = DEFAULT_SHARES,
    mixed_constant: bool = True,
    calibrated: bool = False,
) -> FittedModel:
    """The fit of f (linear between `knots`, in tokens), c_b, c_s, c_a and, if asked, c_mix.

    Non-negative slopes make f monotone. `shares` weigh the kinds in the order of `KINDS`; a kind
    without records gives its share up. Coefficients are rounded to whole picoseconds.
    """
    kind = records.kind()
    weights = np.zeros(len(records))
    for index, share in enumerate(shares):
        count = int((kind == index).sum())
        if count:
            weights[kind == index] = np.sqrt(share / count)
    columns = _design(records, knots, mixed_constant)
    solution = nnls(columns * (weights / records.duration_us)[:, None], weights)
    model = _model(solution, records, name, knots, mixed_constant, calibrated)
    return FittedModel(model=model, errors=iteration_errors(model, records))


def iteration_errors(model: TimeModel, records: IterationRecords) -> tuple[KindError, ...]:
    """The model's relative error on the records, for each kind that has any."""
    relative = predict_us(model, records) / records.duration_us - 1
    kind = records.kind()
    errors = []
    for index, name in enumerate(KINDS):
        of_kind = relative[kind == index]
        if len(of_kind):
            errors.append(
                KindError(
                    kind=name,
                    records=len(of_kind),
                    bias=float(of_kind.mean()),
                    mean_abs=float(np.abs(of_kind).mean()),
                    p99_abs=float(np.quantile(np.abs(of_kind), 0.99)),
                )
            )
    return tuple(errors)


def predict_us(model: TimeModel, records: IterationRecords) -> Floats:
    """The model's duration of each record in µs, (n,), in floating point."""
    tokens = records.prefill_tokens + records.decodes
    at = np.array([point[0] for point in model.breakpoints], dtype=np.float64)
    ps = np.array([point[1] for point in model.breakpoints], dtype=np.float64)
    f = np.interp(tokens, at, ps)
    if len(at) > 1:
        f += np.maximum(tokens - at[-1], 0) * (ps[-1] - ps[-2]) / (at[-1] - at[-2])
    return np.asarray(
        (
            f
            + model.per_decode_ps * records.decodes
            + model.per_context_token_ps * records.decode_context_sum.astype(np.float64)
            + model.per_attention_pair_ps * records.attention_pairs.astype(np.float64)
            + model.mixed_ps * (records.prefill_tokens > 0)
        )
        / PS_PER_US
    )


def nnls(matrix: Floats, target: Floats) -> Floats:
    """The x >= 0 of shape (k,) that minimises |matrix x - target|, by Lawson and Hanson's method.

    `matrix` has shape (n, k). Columns are scaled to unit length first; a zero column gets 0.
    """
    norms = np.sqrt((matrix**2).sum(axis=0))
    used = np.where(norms > 0, norms, 1.0)
    scaled = matrix / used
    gram, moment = scaled.T @ scaled, scaled.T @ target
    tolerance = 1e-10 * max(1e-300, float(np.abs(moment).max()))
    k = len(norms)
    x = np.zeros(k)
    passive = np.zeros(k, dtype=bool)
    # Each outer step lowers the residual and no passive set returns; the bound is a named limit.
    for _ in range(30 * k):
        gradient = np.where(passive | (norms == 0), -np.inf, moment - gram @ x)
        if gradient.max() <= tolerance:
            break
        passive[int(gradient.argmax())] = True
        while True:
            trial = np.zeros(k)
            trial[passive] = np.linalg.lstsq(scaled[:, passive], target, rcond=None)[0]
            if not passive.any() or trial[passive].min() > 0:
                x = trial
                break
            falling = passive & (trial <= 0)
            step = (x[falling] / (x[falling] - trial[falling])).min()
            x = np.where(passive, x + step * (trial - x), 0.0)
            passive &= x > 1e-12 * max(1.0, float(x.max()))
            x = np.where(passive, x, 0.0)
    return np.asarray(x / used, dtype=np.float64)


def _design(records: IterationRecords, knots: tuple[int, ...], mixed_constant: bool) -> Floats:
    if len(knots) < 2 or knots[0] != 1 or any(b <= a for a, b in pairwise(knots)):
        raise ValueError("knots must rise from 1")
    tokens = (records.prefill_tokens + records.decodes).astype(np.float64)
    uppers = (*knots[1:-1], np.inf)
    columns = [np.ones_like(tokens)]
    columns += [
        np.clip(tokens - low, 0, high - low) for low, high in zip(knots[:-1], uppers, strict=True)
    ]
    columns += [
        records.decodes.astype(np.float64),
        records.decode_context_sum.astype(np.float64),
        records.attention_pairs.astype(np.float64),
    ]
    if mixed_constant:
        columns.append((records.prefill_tokens > 0).astype(np.float64))
    return np.stack(columns, axis=1)


def _model(
    solution: Floats,
    records: IterationRecords,
    name: str,
    knots: tuple[int, ...],
    mixed_constant: bool,
    calibrated: bool,
) -> TimeModel:
    segments = len(knots) - 1
    steps = solution[1 : segments + 1] * np.diff(np.array(knots, dtype=np.float64))
    heights = solution[0] + np.concatenate([[0.0], np.cumsum(steps)])
    whole = [max(1, round(float(h) * PS_PER_US)) for h in heights]
    rest = [round(float(c) * PS_PER_US) for c in solution[segments + 1 :]]
    return TimeModel(
        name=name,
        breakpoints=tuple(zip(knots, whole, strict=True)),
        per_decode_ps=rest[0],
        per_context_token_ps=rest[1],
        per_attention_pair_ps=rest[2],
        mixed_ps=rest[3] if mixed_constant else 0,
        calibrated=calibrated,
        observed=ObservedRange(
            max_prefill_tokens=int(records.prefill_tokens.max()),
            max_decodes=int(records.decodes.max()),
            max_decode_context_sum=int(records.decode_context_sum.max()),
        ),
    )
