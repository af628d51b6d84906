"""Distributions of what doesn't fit into memory at once are those of the whole, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.iterations import GAPS_AT_ONCE, IterationLog, inter_token_parts
from simulator.summaries import EndToEnd, distribution_of, distribution_of_parts


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5000), st.lists(st.integers(0, 5000), max_size=5))
def test_parts_end_to_end_add_up_as_numpy_adds_up_the_whole(seed: int, count: int, cuts: list[int]):
    values = np.random.default_rng(seed).random(count) * 10.0 ** (seed % 20)
    parts = np.split(values, sorted(min(cut, count) for cut in cuts))
    assert EndToEnd(parts, at_once=128).sum(count) == float(values.sum())


def test_a_distribution_in_parts_is_that_of_the_whole():
    rng = np.random.default_rng(1)
    values = rng.integers(1, 200, 3000) / 7
    halves = [(values[at], np.ones(1500, np.int64)) for at in (slice(1500), slice(1500, None))]
    spread, curve = distribution_of(values)
    assert distribution_of_parts(lambda: halves) == (spread, curve)
    assert spread.mean_ms == float(values.sum()) / 3000
    assert spread.p50_ms == np.sort(values)[1499]
    assert curve.values_ms[-1] == values.max()


def test_values_count_as_they_are_weighted_and_none_have_no_distribution():
    weighted = [(np.array([1.0, 2.0, 1.0]), np.array([1, 5, 2]))]
    spread, _ = distribution_of_parts(lambda: weighted)
    assert (spread.mean_ms, spread.p50_ms) == (13 / 8, 2.0)
    spread, curve = distribution_of(np.empty(0))
    assert np.isnan([spread.mean_ms, *spread.quantiles_ms]).all()
    assert curve.values_ms == ()


def test_gaps_of_more_iterations_than_are_worked_out_at_once_are_those_between_all_their_ends():
    steps = np.array([GAPS_AT_ONCE - 3, 40, GAPS_AT_ONCE], np.int64)
    log = IterationLog(
        before=np.cumsum(steps) - steps,
        start_ps=np.array([0, 10**12, 2 * 10**12], np.int64),
        steps=steps,
        a_ps=np.array([900, 1000, 1100], np.int64),
        b_ps=np.array([0, 1, 2], np.int64),
        emitted=np.ones(3, np.int64),
    )
    last = log.last
    runs = np.array([[1, last], [5, 1], [GAPS_AT_ONCE - 9, 30], [last - 1, 2]], np.int64)
    parts = list(inter_token_parts(log, runs))
    gaps, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    assert gaps.tolist() == np.diff(log.ends_ps(1, last)).tolist()
    assert counts.sum() == sum(tokens - 1 for _, tokens in runs.tolist())
    assert counts[[GAPS_AT_ONCE - 11, GAPS_AT_ONCE - 10, -1]].tolist() == [1, 2, 2]
