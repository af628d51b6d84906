"""Numpy lanes equal the scalar engine bit for bit, whatever their number."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.batch import JobArrays, jobs_to_arrays, simulate
from simulator.lanes import Lane, LaneResult, simulate_lanes
from simulator.scheduler import ReplicaConfig
from simulator.timing import TimeModel
from tests.simulator.scheduling_cases import Case, plain, seeded_cases

COLUMNS = ("outcome", "scheduled_ps", "first_token_ps", "done_ps", "output_tokens", "preemptions")
MODEL = TimeModel(
    name="of the size of an 8B model",
    breakpoints=((1, 7 * 10**9), (256, 9 * 10**9), (2048, 60 * 10**9)),
    per_decode_ps=10**7,
    per_context_token_ps=40_000,
    per_attention_pair_ps=500,
    mixed_ps=5 * 10**8,
)


def agrees_with_the_engine(lane: Lane, result: LaneResult) -> None:
    alone = simulate(lane.jobs, lane.config, lane.model)
    for name in COLUMNS:
        assert np.array_equal(getattr(alone, name), getattr(result, name)), name


@given(st.lists(seeded_cases(), min_size=2, max_size=4), st.booleans())
def test_unlike_lanes_together_equal_the_engine_bit_for_bit(drawn: list[Case], as_drawn: bool):
    lanes = [
        Lane(jobs=jobs_to_arrays(case.jobs), config=case.config, model=case.model)
        for case in (drawn if as_drawn else map(plain, drawn))
    ]
    for lane, result in zip(lanes, simulate_lanes(lanes, min_lanes=1), strict=True):
        agrees_with_the_engine(lane, result)


def scenario(seed: int) -> Lane:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 120))
    return Lane(
        jobs=JobArrays(
            arrival_ps=np.sort(rng.integers(0, 10**13, count)),
            input_tokens=rng.integers(1, 3000, count),
            output_tokens=rng.integers(1, 300, count),
            priority=np.zeros(count, np.int64),
            cancel_ps=np.full(count, -1, np.int64),
        ),
        config=ReplicaConfig(
            kv_blocks=int(rng.choice([300, 1000, 5000])), max_num_seqs=int(rng.choice([4, 64]))
        ),
        model=MODEL,
    )


def test_lanes_of_any_number_give_the_same_bytes():
    lanes = [scenario(seed) for seed in range(40)]
    together = simulate_lanes(lanes, min_lanes=1)
    for lane, result in zip(lanes, together, strict=True):
        agrees_with_the_engine(lane, result)
    halves = simulate_lanes(lanes[:20], min_lanes=1) + simulate_lanes(lanes[20:], min_lanes=1)
    for one, other in zip(together, halves, strict=True):
        assert all(
            getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in COLUMNS
        )


def test_no_lanes_and_lanes_without_jobs_have_nothing_to_tell():
    assert simulate_lanes([]) == []
    empty = Lane(jobs=jobs_to_arrays([]), config=ReplicaConfig(kv_blocks=9), model=MODEL)
    assert [len(result.outcome) for result in simulate_lanes([empty, empty], min_lanes=1)] == [0, 0]


def test_heads_that_share_an_iteration_and_ends_that_share_one_are_those_of_the_engine():
    lanes = []
    for seed in range(6):
        count, budget = 40, (64, 2048)[seed % 2]
        lengths = np.full(count, (1, 7, budget, budget + 1, 2 * budget + 1, 300)[seed])
        jobs = JobArrays(
            arrival_ps=np.arange(count) // 10 * 10**12,
            input_tokens=lengths,
            output_tokens=np.where(np.arange(count) % 3 == 0, 1, 20),
            priority=np.zeros(count, np.int64),
            cancel_ps=np.full(count, -1, np.int64),
        )
        config = ReplicaConfig(kv_blocks=20_000, max_num_seqs=48, max_num_batched_tokens=budget)
        lanes.append(Lane(jobs=jobs, config=config, model=MODEL))
    for lane, result in zip(lanes, simulate_lanes(lanes, min_lanes=1), strict=True):
        agrees_with_the_engine(lane, result)
