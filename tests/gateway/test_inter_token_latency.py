"""The gaps between output tokens, summed up (SPEC 9)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.outcomes import InterTokenLatency, inter_token_latency
from gateway.providers.simulator import timings_of
from ledger.quantiles import nearest_rank
from simulator.scheduler import Finished

PS = 1_000_000  # a microsecond


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300))
def test_a_summary_equals_that_of_the_sorted_list(gaps_us: list[int]):
    ordered = sorted(gaps_us)
    assert inter_token_latency(np.array(gaps_us, np.int64)) == InterTokenLatency(
        mean_us=sum(ordered) // len(ordered),
        p50_us=nearest_rank(ordered, 50, 100),
        p95_us=nearest_rank(ordered, 95, 100),
        max_us=ordered[-1],
    )


def test_no_gap_has_no_summary():
    assert inter_token_latency(np.empty(0, np.int64)) is None


def test_each_gap_is_rounded_half_to_even_by_itself():
    finished = Finished(
        job_id="a", outcome="completed", arrival_ps=0, scheduled_ps=PS, first_token_ps=3 * PS,
        done_ps=9 * PS, output_tokens=4, cached_tokens=0, preemptions=0,
    )  # fmt: skip
    gaps_ps = np.array([PS // 2, PS + PS // 2, 4 * PS], np.int64)
    timings = timings_of(finished, gaps_ps)
    assert timings.itl == InterTokenLatency(mean_us=2, p50_us=2, p95_us=4, max_us=4)
    assert (timings.queue_us, timings.prefill_us, timings.decode_us) == (1, 2, 6)
    faster = timings_of(finished, gaps_ps, 2.0)  # of 0.25, 0.75 and 2 µs
    assert faster.itl == InterTokenLatency(mean_us=1, p50_us=1, p95_us=2, max_us=2)
