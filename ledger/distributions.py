"""Latency distributions: nearest-rank quantiles and bins for a picture. Pure."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ledger import histograms
from ledger.histograms import Counts
from ledger.quantiles import band_of, interval_ranks, nearest_rank_index

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
    from_us: int | None = None  # the quantile of all such requests lies in from..to at 95 %;
    to_us: int | None = None  # None: so few values don't bound that side


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

    @property
    def band(self) -> float:
        """How far each share of the picture may be from the true one, at 95 % for all at once."""
        return band_of(self.count)


def exact(metric: Metric, values_us: npt.NDArray[np.int64]) -> Latency:
    """The distribution of values in ascending order, with exact quantiles."""
    quantiles = []
    for numerator, denominator in QUANTILES if len(values_us) else ():
        value_us = int(values_us[nearest_rank_index(len(values_us), numerator, denominator)])
        first, last = interval_ranks(len(values_us), numerator, denominator)
        quantiles.append(
            Quantile(
                numerator=numerator,
                denominator=denominator,
                value_us=value_us,
                low_us=value_us,
                high_us=value_us,
                from_us=None if first is None else int(values_us[first - 1]),
                to_us=None if last is None else int(values_us[last - 1]),
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
    quantiles, count = [], int(counts.sum())
    for numerator, denominator in QUANTILES:
        first, last = interval_ranks(count, numerator, denominator)
        ends = [
            None if rank is None else histograms.quantile(counts, rank, count)
            for rank in (first, last)
        ]
        bound = histograms.quantile(counts, numerator, denominator)
        if bound is not None:
            quantiles.append(
                Quantile(
                    numerator=numerator,
                    denominator=denominator,
                    value_us=bound.estimate_us,
                    low_us=bound.low_us,
                    high_us=bound.high_us,
                    from_us=None if ends[0] is None else ends[0].low_us,
                    to_us=None if ends[1] is None else ends[1].high_us,
                )
            )
    return Latency(
        metric=metric,
        count=count,
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
