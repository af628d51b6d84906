"""Distributions for the picture and the table: exact ones, and those that a histogram knows."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledger import distributions, histograms

values_us = st.lists(st.integers(0, 10**9), min_size=1, max_size=200)


def ascending(values):
    return np.sort(np.array(values, dtype=np.int64))


def test_exact_quantiles_are_nearest_rank():
    found = distributions.exact("ttft", ascending(range(1, 101)))
    assert [one.value_us for one in found.quantiles] == [50, 95, 99]
    assert all(one.low_us == one.value_us == one.high_us for one in found.quantiles)
    assert found.exact


@given(values_us)
def test_a_histogram_bounds_what_the_values_say_exactly(values):
    ordered = ascending(values)
    exact = distributions.exact("e2e", ordered)
    bounded = distributions.from_counts("e2e", histograms.of_values(ordered))
    assert bounded.count == exact.count == len(values)
    for known, bound in zip(exact.quantiles, bounded.quantiles, strict=True):
        assert bound.low_us <= known.value_us <= bound.high_us
    assert bounded.bins == exact.bins


@given(values_us)
def test_bins_hold_every_value_and_leave_no_gap(values):
    found = distributions.exact("itl", ascending(values)).bins
    assert sum(one.count for one in found) == len(values)
    assert found[0].count > 0
    assert found[-1].count > 0
    assert all(a.high_us + 1 == b.low_us for a, b in itertools.pairwise(found))
    assert found[0].low_us <= min(values)
    assert found[-1].high_us >= max(values)


def test_nothing_measured_has_no_quantiles_and_no_bins():
    nothing = np.zeros(0, dtype=np.int64)
    assert distributions.exact("queue", nothing).quantiles == ()
    empty = distributions.from_counts("queue", histograms.of_values(nothing))
    assert (empty.count, empty.quantiles, empty.bins) == (0, (), ())
