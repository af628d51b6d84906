"""KV is plentiful, or only just not: the stride, its way into the exact loop and back."""

import os
from dataclasses import replace
from random import Random

from simulator.batch import JobArrays, job_arrays, jobs_to_arrays, load, simulate
from simulator.engine import Replica
from simulator.fleet import Fleet, Loads, fewest_outstanding
from simulator.kv import PrefixCache
from simulator.oracle import Oracle
from simulator.scheduler import OUTCOMES, Job, ReplicaConfig, Snapshot
from simulator.striding import pacing
from simulator.timing import TimeModel
from tests.simulator.scheduling_cases import (
    Case,
    chained,
    rows_of_oracle,
    rows_of_result,
    seeded_case,
)

WORKLOADS = 20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 400
FLAT = TimeModel(name="flat", breakpoints=((0, 10),))
SLOPED = TimeModel(name="sloped", breakpoints=((0, 10), (40, 400)), per_context_token_ps=1)


def roomy_case(seed: int) -> Case:
    """A seeded case with chains, some of them shared whole, and a pool that is seldom short."""
    draw = Random(seed)
    case = chained(seeded_case(seed))
    prompts = [tuple(range(1000 * n, 1000 * n + draw.randint(1, 6))) for n in range(1, 4)]
    block_tokens = case.config.block_tokens
    jobs = [
        replace(
            job,
            arrival_ps=job.arrival_ps * draw.choice([1, 1, 4]),
            block_hashes=draw.choice(prompts)[: (job.input_tokens - 1) // block_tokens]
            if draw.random() < 0.6
            else job.block_hashes,
        )
        for job in case.jobs
    ]
    config = replace(
        case.config,
        kv_blocks=draw.choice([30, 60, 120, 400]),
        prefix_cache=draw.random() < 0.8,
        long_prefill_token_threshold=0,
    )
    return replace(case, jobs=jobs, config=config)


def busy_fleet(seed: int) -> tuple[Case, list[int]]:
    """Some hundreds of jobs, many cancelled, on two or three replicas (KV blocks each)."""
    draw = Random(seed)
    chains = [tuple(range(1000 * n, 1000 * n + 4)) for n in range(3)]
    jobs, arrival = [], 0
    for row in range(300):
        arrival += int(draw.expovariate(1 / 40))
        prompt, patience = draw.choice([1, 6, 20, 60]), draw.randint(0, 900)
        jobs.append(
            Job(
                job_id=row,
                arrival_ps=arrival,
                input_tokens=prompt,
                output_tokens=draw.choice([1, 5, 20, 60]),
                priority=draw.randint(0, 2),
                cancel_ps=arrival + patience if draw.random() < 0.4 else None,
                block_hashes=draw.choice(chains)[: prompt // 4],
            )
        )
    config = ReplicaConfig(
        kv_blocks=99,
        block_tokens=4,
        max_model_len=128,
        max_num_batched_tokens=128,
        max_num_seqs=24,
        prefix_cache=draw.random() < 0.7,
        priority_scheduling=draw.random() < 0.7,
    )
    slopes = TimeModel(
        name="busy",
        breakpoints=((0, 7), (draw.randint(4, 9), 14), (80, 14 + draw.choice([40, 200]))),
        per_decode_ps=draw.choice([0, 5]),
        per_context_token_ps=draw.choice([0, 1]),
    )
    pools = [draw.choice([45, 120, 900]) for _ in range(draw.randint(2, 3))]
    return Case(jobs=jobs, config=config, model=slopes), pools


def test_oracle_and_engine_agree_where_kv_is_plentiful_or_only_just_not():
    hit = cancelled = preempted = 0
    for seed in range(WORKLOADS):
        case = roomy_case(seed)
        oracle = Oracle(case.jobs, case.config, case.model).run()
        result = simulate(jobs_to_arrays(case.jobs), case.config, case.model)
        assert rows_of_result(result) == rows_of_oracle(oracle), f"seed {seed}"
        preempted += sum(end.preemptions > 0 for end in oracle.finished)
        cancelled += sum(end.outcome == "cancelled" for end in oracle.finished)
        hit += sum(end.cached_tokens > 0 for end in oracle.finished)
    assert min(hit, cancelled) > WORKLOADS / 5 and preempted > WORKLOADS / 100


def test_a_fleet_run_only_where_something_can_end_equals_replicas_driven_at_each_arrival():
    """Routes, ends, token times, and what a snapshot says at each arrival."""
    seeds = [*range(WORKLOADS // 60), 228, 293]  # the last two: a cancel's boundary moves
    for seed in seeds:
        case, pools = busy_fleet(seed)
        members = [(replace(case.config, kv_blocks=blocks), case.model) for blocks in pools]
        looks = seed % 5 == 0
        seen: list[list[Snapshot]] = []

        def route(job: int, loads: Loads, look: bool = looks, into: list = seen) -> int:
            if look:
                into.append([loads.snapshot(n) for n in range(len(loads.outstanding))])
            return fewest_outstanding(loads.outstanding)

        fleet = Fleet(jobs_to_arrays(case.jobs), members, route).run()
        replicas = [Replica(config, model) for config, model in members]
        largest = max(config.max_servable_tokens for config, _ in members)
        ends = {}
        snapshots = []
        for job in sorted(case.jobs, key=lambda job: (job.arrival_ps, int(job.job_id))):
            row = int(job.job_id)
            for replica in replicas:
                if job.arrival_ps > replica.now_ps:
                    ends |= {end.job_id: end for end in replica.advance_to(job.arrival_ps)}
            if job.input_tokens + job.output_tokens > largest:
                continue
            if looks:  # which handles what ends at this very moment
                snapshots.append([replica.snapshot(job.arrival_ps) for replica in replicas])
            chosen = fewest_outstanding([replica.outstanding for replica in replicas])
            if job.input_tokens + job.output_tokens <= members[chosen][0].max_servable_tokens:
                assert fleet.replica[row] == chosen, f"seed {seed}, job {row}"
                replicas[chosen].submit(job)
        assert plain_columns(seen) == plain_columns(snapshots), f"seed {seed}"
        for replica in replicas:
            ends |= {end.job_id: end for end in replica.advance_to(10**9)}
        for row, end in ends.items():
            assert OUTCOMES[fleet.jobs.outcome[row]] == end.outcome, f"seed {seed}, job {row}"
            assert fleet.jobs.done_ps[row] == end.done_ps, f"seed {seed}, job {row}"
            assert fleet.jobs.cached_tokens[row] == end.cached_tokens
            replica = replicas[fleet.replica[row]]
            if row % 7:
                continue
            assert fleet.token_times_ps(row).tolist() == replica.token_times_ps(row).tolist()


def plain_columns(snapshots: list[list[Snapshot]]) -> list[list[Snapshot]]:
    """Without the revision, which a replica counts by cancels that were asked for as well."""
    return [[seen._replace(revision=0) for seen in moment] for moment in snapshots]


def two_replicas(jobs: JobArrays) -> list[int]:
    config = ReplicaConfig(kv_blocks=900)
    return Fleet(jobs, [(config, SLOPED)] * 2).run().replica.tolist()


def test_an_arrival_may_bring_forward_the_boundary_at_which_a_cancel_counts():
    """A prefill iteration ends sooner than the decode step that was planned would have begun."""
    arrivals, cancel = [0, 0, 100, 100, 4_000], 3_900
    jobs = job_arrays(
        arrivals, [30, 30, 30, 30, 8], [90, 90, 90, 90, 4], cancel_ps=[cancel, -1, -1, -1, -1]
    )
    replicas = [Replica(ReplicaConfig(kv_blocks=900), SLOPED) for _ in range(2)]
    expected = []
    for row, arrival in enumerate(arrivals):
        for replica in replicas:
            if arrival > replica.now_ps:
                replica.advance_to(arrival)
        expected.append(fewest_outstanding([replica.outstanding for replica in replicas]))
        replicas[expected[-1]].submit(
            Job(
                job_id=row,
                arrival_ps=arrival,
                input_tokens=int(jobs.input_tokens[row]),
                output_tokens=int(jobs.output_tokens[row]),
                cancel_ps=cancel if row == 0 else None,
            )
        )
    assert two_replicas(jobs) == expected


def test_a_paced_replica_says_when_something_can_end_next():
    jobs = job_arrays([0, 5], [4, 4], [3, 30])
    state = load(jobs, ReplicaConfig(kv_blocks=99, priority_scheduling=True), FLAT)
    core = pacing(state)
    next(core)
    assert core.send(12) == 30
    assert state.ended == []
    assert core.send(30) == 310
    assert state.ended == [0] and state.done[0] == 30


def test_jobs_with_the_very_same_chain_share_it_as_one_run():
    cache, chain = PrefixCache(20), (1, 2, 3)
    cache.settle(17)
    cache.claim(0, chain, 0)
    cache.publish(0, chain, 3)
    assert cache.take(1, chain, 9) == (3, 0)
    assert (cache.release(0, 0, 0, False), cache.release(1, 0, 0, False)) == (0, 3)
    assert [cache.take(slot, chain, 9) for slot in (2, 3)] == [(3, 3), (3, 0)]
    assert (cache.release(2, 0, 0, False), cache.release(3, 0, 0, False)) == (0, 3)
    assert cache.evictable_blocks == 20 and cache.never_hit_next() == 17


def test_another_chain_that_begins_alike_makes_the_run_single_blocks_in_their_place():
    cache, chain = PrefixCache(8), (1, 2, 3)
    cache.settle(5)
    cache.claim(0, chain, 0)
    cache.publish(0, chain, 3)
    cache.release(0, 0, 0, False)
    cache.take(1, chain, 9)
    cache.release(1, 2, 0, False)  # two blocks that nobody can hit, and the run behind them
    assert cache.take(2, (1, 9), 9) == (1, 1)
    assert cache.lookup(3, chain, 9) == (3, 2)
    cache.settle(cache.evictable_blocks - 8)  # all but the last of what can be evicted
    assert cache.lookup(3, chain, 9) == (2, 1)
    assert cache.release(2, 0, 0, False) == 1
    assert cache.lookup(3, chain, 9) == (2, 2)
