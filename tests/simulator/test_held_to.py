"""Held to, beyond the oracle: queueing theory, scaling, and the source's own numbers."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.batch import SimulationResult, job_arrays, jobs_to_arrays, simulate
from simulator.fair_queue import QueuePolicy
from simulator.fleet import Fleet, FrontQueue
from simulator.scheduler import OUTCOMES, ReplicaConfig
from simulator.timing import PS_PER_MS, PS_PER_S, TimeModel, stretch_ps
from tests.simulator.scheduling_cases import Case, seeded_cases

ONE_AT_A_TIME = ReplicaConfig(
    kv_blocks=5000, max_num_seqs=1, max_num_batched_tokens=4096, max_model_len=4096
)
PER_TOKEN = TimeModel(
    name="a microsecond a token", breakpoints=((0, 0), (1, 10**6), (2, 2 * 10**6))
)


def waits_ps(result: SimulationResult) -> np.ndarray:
    return result.scheduled_ps - result.arrival_ps


def test_the_sources_first_token_takes_660_ms_and_the_last_3425():
    """Section 2: 0.24 + 0.36 + 0.04 + 0.02 s, then 79 tokens of 35 ms each."""
    ttft = (240 + 360 + 40 + 20) * PS_PER_MS
    assert ttft == 660 * PS_PER_MS
    assert ttft + stretch_ps(79, 35 * PS_PER_MS, 0) == 3_425 * PS_PER_MS


def test_the_sources_request_replayed_by_the_engine_gives_the_same_numbers():
    """Queue 240 ms behind a job ahead, prefill 360; 40 and 20 ms more lie outside the engine."""
    model = TimeModel(
        name="the source's example",
        breakpoints=((1, 35 * PS_PER_MS), (500, 240 * PS_PER_MS), (820, 360 * PS_PER_MS)),
    )
    jobs = job_arrays([0, 0], [500, 820], [1, 80])
    times = simulate(jobs, ReplicaConfig(kv_blocks=200, max_num_seqs=1), model).token_times_ps(1)
    outside = (40 + 20) * PS_PER_MS
    assert int(times[0]) + outside == 660 * PS_PER_MS
    assert int(times[-1]) + outside == 3_425 * PS_PER_MS


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 900)), min_size=1, max_size=60))
def test_one_sequence_of_one_token_follows_lindleys_recursion_exactly(rows):
    arrivals = np.sort(np.array([us for us, _ in rows])) * 10**6
    sizes = np.array([size for _, size in rows])
    result = simulate(job_arrays(arrivals, sizes, np.ones(len(rows))), ONE_AT_A_TIME, PER_TOKEN)
    wait = 0
    for index in range(len(rows)):
        if index:
            gap = int(arrivals[index] - arrivals[index - 1])
            wait = max(0, wait + int(sizes[index - 1]) * 10**6 - gap)
        assert waits_ps(result)[index] == wait
        assert result.done_ps[index] == arrivals[index] + wait + int(sizes[index]) * 10**6


def pollaczek_khinchine(load: float, sizes: np.ndarray, seed: int) -> None:
    """Compare the mean wait of Poisson arrivals with theory, by batch means of one long run."""
    rng = np.random.default_rng(seed)
    mean, second = sizes.mean(), (sizes.astype(float) ** 2).mean()
    expected = load * second / mean / (2 * (1 - load))
    count = 60_000
    drawn = rng.choice(sizes, count)
    gaps = rng.exponential(mean / load, count) * 10**6
    jobs = job_arrays(np.cumsum(gaps).astype(np.int64), drawn, np.ones(count))
    waits = waits_ps(simulate(jobs, ONE_AT_A_TIME, PER_TOKEN))[2000:] / 10**6
    means = waits[: 58_000 // 29 * 29].reshape(29, -1).mean(axis=1)
    half_width = 3.67 * means.std(ddof=1) / np.sqrt(29)  # Student's t, 28 degrees, 99.9 %
    assert abs(means.mean() - expected) <= half_width


def test_fixed_and_mixed_service_times_wait_as_pollaczek_and_khinchine_say():
    fixed, mixed = np.array([100]), np.array([10] * 9 + [400])
    for load in (0.3, 0.8):
        pollaczek_khinchine(load, fixed, seed=11)
        pollaczek_khinchine(load, mixed, seed=12)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 30)), min_size=1, max_size=20))
def test_without_context_costs_each_request_takes_exactly_its_output_in_iterations(rows):
    flat = TimeModel(name="flat", breakpoints=((0, 10),))
    arrivals, outputs = [at for at, _ in rows], [out for _, out in rows]
    result = simulate(
        job_arrays(arrivals, [3] * len(rows), outputs), ReplicaConfig(kv_blocks=500), flat
    )
    assert (result.done_ps - result.scheduled_ps).tolist() == [10 * out for out in outputs]


@given(seeded_cases(), st.integers(2, 7))
def test_scaling_coefficients_and_arrivals_scales_every_time(case: Case, factor: int):
    jobs = jobs_to_arrays(case.jobs)
    # Whole slopes, so that rounding between breakpoints scales as well.
    points = tuple((x, 60 * x + y) for x, y in case.model.breakpoints[:1])
    model = TimeModel(
        name="whole",
        breakpoints=points,
        per_decode_ps=case.model.per_decode_ps,
        per_context_token_ps=case.model.per_context_token_ps,
        per_attention_pair_ps=case.model.per_attention_pair_ps,
        mixed_ps=case.model.mixed_ps,
    )
    scaled_jobs = job_arrays(
        jobs.arrival_ps * factor,
        jobs.input_tokens,
        jobs.output_tokens,
        priority=jobs.priority,
        cancel_ps=np.where(jobs.cancel_ps < 0, -1, jobs.cancel_ps * factor),
        block_hashes=jobs.block_hashes,
    )
    one = simulate(jobs, case.config, model)
    many = simulate(scaled_jobs, case.config, model.scaled(factor))
    for name in ("scheduled_ps", "first_token_ps", "done_ps"):
        before, after = getattr(one, name), getattr(many, name)
        assert np.array_equal(np.where(before < 0, -1, before * factor), after)


def load_of_1_2(shed: bool) -> tuple[SimulationResult, np.ndarray]:
    """Offer 1.2 times the tokens that two replicas sustain, for ten minutes."""
    model = TimeModel(name="a fixed batch", breakpoints=((0, 25 * PS_PER_MS),))
    config = ReplicaConfig(kv_blocks=5000, max_num_seqs=16)
    # 16 sequences a step of 25 ms on two replicas: 1,280 tokens/s, 12.8 requests of 100 a second.
    rng = np.random.default_rng(5)
    count = int(1.2 * 12.8 * 600)
    arrivals = (np.cumsum(rng.exponential(600 / count, count)) * PS_PER_S).astype(np.int64)
    jobs = job_arrays(arrivals, np.full(count, 50), np.full(count, 100))
    ranks = rng.choice(3, count, p=[0.5, 0.25, 0.25]) if shed else np.zeros(count, np.int64)
    policy = QueuePolicy(
        max_items=20 if shed else 10**9, max_tokens=10**12, ageing_ps=3600 * PS_PER_S
    )
    front = FrontQueue(
        policy=policy, tenants=["one"] * count, ranks=ranks.tolist(), max_outstanding=16
    )
    return Fleet(jobs, [(config, model)] * 2, front=front).run().jobs, ranks


def test_unshed_a_load_of_1_2_makes_the_queue_grow_without_bound():
    result, _ = load_of_1_2(shed=False)
    means = [part.mean() for part in np.array_split(waits_ps(result), 6)]
    assert all(before < after for before, after in pairwise(means))
    # Every second brings 0.2 seconds of work more than it takes away.
    assert waits_ps(result)[-100:].mean() > 0.8 * 0.2 * 600 * PS_PER_S


def test_shed_at_the_same_load_the_accepted_interactive_keep_their_deadline():
    result, ranks = load_of_1_2(shed=True)
    completed = result.outcome == OUTCOMES.index("completed")
    shed = result.outcome == OUTCOMES.index("shed")
    assert (completed | shed).all()
    # Batch goes first, interactive last, and of interactive nearly nothing at 0.6 of capacity.
    rates = [shed[ranks == rank].mean() for rank in range(3)]
    assert rates[0] < rates[1] < rates[2] and rates[0] < 0.01
    deadline = (100 * 25 + 1000) * PS_PER_MS
    accepted = completed & (ranks == 0)
    met = (result.done_ps - result.arrival_ps)[accepted] <= deadline
    assert met.mean() >= 0.99
