"""Latency distributions: nearest-rank quantiles and bins for a picture. Pure."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ledger import histograms
from ledger.histograms import Counts

Metric = Literal["ttft", "itl", "e2e", "queue"]
METRICS: tuple[Metric, ...] = get_args(Metric)
QUANTILES: tuple[tuple[int, int], ...] = ((50, 100), (95, 100), (99, 100))
BINS_PER_DOUBLING = 4  # of the picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A nearest-rank quantile in µs: exact, or within low..high (1/64 of it at the midpoint)."""

    numerator: int
    denominator: int
    value_us: int
    low_us: int
    high_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """How many requests took low_us..high_us, both inclusive."""

    low_us: int
    high_us: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One latency of one side. `quantiles` is empty where nothing was measured."""

    metric: Metric
    count: int
    exact: bool
    quantiles: tuple[Quantile, ...]
    bins: tuple[Bin, ...]  # without gaps, from the lowest value to the highest


def exact(metric: Metric, values_us: npt.NDArray[np.int64]) -> Latency:
    """The distribution of values in ascending order, with exact quantiles."""
    quantiles = []
    for numerator, denominator in QUANTILES if len(values_us) else ():
        value_us = int(values_us[-(-numerator * len(values_us) // denominator) - 1])
        quantiles.append(
            Quantile(
                numerator=numerator,
                denominator=denominator,
                value_us=value_us,
                low_us=value_us,
                high_us=value_us,
            )
        )
    return Latency(
        metric=metric,
        count=len(values_us),
        exact=True,
        quantiles=tuple(quantiles),
        bins=_bins(histograms.of_values(values_us)),
    )


def from_counts(metric: Metric, counts: Counts) -> Latency:
    """The distribution that a histogram knows, with the bounds of each quantile."""
    quantiles = []
    for numerator, denominator in QUANTILES:
        bound = histograms.quantile(counts, numerator, denominator)
        if bound is not None:
            quantiles.append(
                Quantile(
                    numerator=numerator,
                    denominator=denominator,
                    value_us=bound.estimate_us,
                    low_us=bound.low_us,
                    high_us=bound.high_us,
                )
            )
    return Latency(
        metric=metric,
        count=int(counts.sum()),
        exact=False,
        quantiles=tuple(quantiles),
        bins=_bins(counts),
    )


def _bins(counts: Counts) -> tuple[Bin, ...]:
    """The distribution in steps of a quarter of a doubling, for a picture."""
    width = histograms.SUB_BUCKETS // BINS_PER_DOUBLING
    coarse = counts.reshape(-1, width).sum(axis=1)
    filled = np.flatnonzero(coarse)
    if not len(filled):
        return ()
    return tuple(
        Bin(
            low_us=histograms.bucket_bounds(step * width)[0],
            high_us=histograms.bucket_bounds((step + 1) * width - 1)[1],
            count=int(coarse[step]),
        )
        for step in range(int(filled[0]), int(filled[-1]) + 1)
    )
