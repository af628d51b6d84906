"""Rounds into one summary: exact order statistics, and differences taken within a round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers.summing import cell, quantile_ms, ratio, summary
from benchmarks.peers.values import Taken
from tests.benchmarks import runs


def test_quantiles_are_nearest_rank_and_in_ms():
    times_ns = [n * 1_000_000 for n in range(100, 0, -1)]
    assert quantile_ms(times_ns, 50) == 50.0
    assert quantile_ms(times_ns, 99) == 99.0
    assert quantile_ms([], 99) is None


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40), st.integers(1, 100))
def test_a_quantile_is_one_of_the_values_and_has_its_share_at_or_below_it(times_ns, percent):
    found_ms = quantile_ms(times_ns, percent)
    assert found_ms in [each / 1e6 for each in times_ns]
    below = sum(each / 1e6 <= found_ms for each in times_ns)
    assert below * 100 >= percent * len(times_ns)


def test_a_cell_rates_what_ended_in_time_and_shares_the_cpu_among_all_whole_answers():
    taken = Taken(latencies_ns=[2_000_000] * 3, whole=4, whole_in_time=3, short=1, seconds=1.5)
    found = cell(
        taken, cpu_s=0.002, upstream_cpu_s=0.001, load_cpu_s=0.004, rss_mb=1.0, others_share=0.5
    )
    assert (found.requests_per_s, found.p50_ms, found.first_p50_ms) == (2.0, 2.0, None)
    assert (found.cpu_us, found.upstream_cpu_us, found.load_cpu_us) == (500.0, 250.0, 1_000.0)
    assert (found.whole, found.failed) == (4, 1)


def test_what_a_gateway_adds_is_taken_within_a_round_and_then_the_median():
    """In a noisy round both are slow; the difference of medians would say 4 ms, and be wrong."""
    straight = [runs.cell(p50_ms=p50) for p50 in (1.0, 9.0, 1.0)]
    mine = [runs.cell(p50_ms=p50) for p50 in (2.0, 10.0, 5.0)]
    found = summary(mine, straight)
    assert found.p50_ms == 5.0
    assert found.added_p50_ms == 1.0


def test_a_summary_keeps_the_median_the_spread_and_the_most_memory():
    mine = [runs.cell(requests_per_s=rate, rss_mb=rate / 10) for rate in (300.0, 100.0, 200.0)]
    found = summary(mine, [runs.STRAIGHT] * 3)
    assert (found.requests_per_s, found.spread, found.rss_mb) == (200.0, (100.0, 300.0), 30.0)


def test_rounds_that_answered_nothing_don_t_count():
    dead = runs.cell(whole=0, p50_ms=None, requests_per_s=0.0)
    found = summary([dead, None, runs.cell(requests_per_s=7.0)], [runs.STRAIGHT] * 3)
    assert (found.rounds, found.requests_per_s) == (1, 7.0)
    assert summary([dead, None], [runs.STRAIGHT] * 2) is None


def test_nothing_is_added_where_the_upstream_s_round_is_missing():
    assert summary([runs.cell()], [None]).added_p50_ms is None


@pytest.mark.parametrize("pair", [(None, 1.0), (1.0, None), (1.0, 0.0), (-1.0, 2.0)])
def test_there_is_no_ratio_without_two_positive_figures(pair):
    assert ratio(*pair) is None
    assert ratio(6.0, 2.0) == 3.0
