"""Several replicas behind a routing callable, and the fair queue in front of them."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.batch import job_arrays, jobs_to_arrays, simulate
from simulator.engine import Replica
from simulator.fair_queue import FairQueue, QueuePolicy, Waiting
from simulator.fleet import NOT_ROUTED, Fleet, FrontQueue, Loads, least_loaded
from simulator.scheduler import OUTCOMES, ReplicaConfig
from simulator.timing import TimeModel
from tests.simulator.scheduling_cases import (
    Case,
    replica_configs,
    rows_of_result,
    seeded_cases,
    time_models,
)

FLAT = TimeModel(name="flat", breakpoints=((0, 10),))
ROOMY = QueuePolicy(max_items=1000, max_tokens=10**9, ageing_ps=10**9)


@given(seeded_cases())
def test_a_fleet_of_one_is_that_replica(case: Case):
    jobs = jobs_to_arrays(case.jobs)
    alone = simulate(jobs, case.config, case.model)
    fleet = Fleet(jobs, [(case.config, case.model)]).run()
    together = replace(fleet.jobs, iterations=fleet.iterations[0])
    assert rows_of_result(together) == rows_of_result(alone)


@given(seeded_cases(), st.data())
def test_unlike_replicas_behind_least_loaded_equal_replicas_driven_one_by_one(
    case: Case, data: st.DataObject
):
    others = data.draw(st.lists(st.tuples(replica_configs(), time_models()), max_size=3))
    members = [(case.config, case.model), *others]
    fleet = Fleet(jobs_to_arrays(case.jobs), members).run()
    replicas = [Replica(config, model) for config, model in members]
    largest = max(config.max_servable_tokens for config, _ in members)
    for job in sorted(case.jobs, key=lambda job: (job.arrival_ps, int(job.job_id))):
        row = int(job.job_id)
        for replica in replicas:
            if job.arrival_ps > replica.now_ps:  # what ends with an arrival is seen by later ones
                replica.advance_to(job.arrival_ps)
        if job.input_tokens + job.output_tokens > largest:
            assert fleet.replica[row] == NOT_ROUTED
            continue
        chosen = min(range(len(replicas)), key=lambda i: (replicas[i].outstanding, i))
        servable = job.input_tokens + job.output_tokens <= members[chosen][0].max_servable_tokens
        assert fleet.replica[row] == (chosen if servable else NOT_ROUTED)
        if servable:
            replicas[chosen].submit(job)
    for index, replica in enumerate(replicas):
        for end in replica.advance_to(10**9):
            row = int(end.job_id)
            assert fleet.replica[row] == index
            assert OUTCOMES[fleet.jobs.outcome[row]] == end.outcome
            assert fleet.jobs.done_ps[row] == end.done_ps
            assert fleet.jobs.output_tokens[row] == end.output_tokens
            assert fleet.token_times_ps(row).tolist() == replica.token_times_ps(row).tolist()


def test_a_routing_callable_sees_snapshots_as_old_as_the_interval_says():
    seen = []

    def route(job: int, loads: Loads) -> int:
        seen.append((loads.now_ps, loads.snapshot(0).observed_ps, loads.snapshot(0).revision))
        return 0

    jobs = job_arrays([0, 95, 130, 199, 250], [4] * 5, [3] * 5)
    config = ReplicaConfig(kv_blocks=99)
    Fleet(jobs, [(config, FLAT)], route, snapshot_interval_ps=100).run()
    assert [(now, observed) for now, observed, _ in seen] == [
        (0, 0), (95, 0), (130, 100), (199, 100), (250, 200),
    ]  # fmt: skip
    seen.clear()
    Fleet(jobs, [(config, FLAT)], route).run()
    assert [(now, observed) for now, observed, _ in seen] == [
        (t, t) for t in (0, 95, 130, 199, 250)
    ]
    revisions = [revision for _, _, revision in seen]
    assert revisions == sorted(set(revisions))


def test_a_job_that_is_routed_nowhere_is_shed():
    fleet = Fleet(
        job_arrays([5], [4], [3]), [(ReplicaConfig(kv_blocks=99), FLAT)], lambda job, loads: None
    ).run()
    assert OUTCOMES[fleet.jobs.outcome[0]] == "shed"
    assert (fleet.jobs.done_ps[0], fleet.replica[0]) == (5, NOT_ROUTED)


@given(seeded_cases(), st.integers(1, 6), st.integers(1, 4), st.data())
def test_behind_the_queue_each_job_ends_once_and_limits_hold(
    case: Case, max_items: int, max_outstanding: int, data: st.DataObject
):
    jobs = jobs_to_arrays(case.jobs)
    size = len(jobs)
    front = FrontQueue(
        policy=QueuePolicy(max_items=max_items, max_tokens=120, ageing_ps=50, quantum_tokens=7),
        tenants=data.draw(st.lists(st.sampled_from("abc"), min_size=size, max_size=size)),
        ranks=data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)),
        max_outstanding=max_outstanding,
    )
    members = [(case.config, case.model)] * 2
    most = 0

    def watch(job: int, loads: Loads) -> int:
        nonlocal most
        replica = least_loaded(job, loads)
        most = max(most, loads.outstanding[replica] + 1)
        return replica

    fleet = Fleet(jobs, members, watch, front=front).run()
    again = Fleet(jobs, members, front=front).run()
    assert most <= max_outstanding
    assert fleet.jobs.done_ps.tobytes() == again.jobs.done_ps.tobytes()
    for row in range(size):
        outcome = OUTCOMES[fleet.jobs.outcome[row]]
        assert fleet.jobs.done_ps[row] >= fleet.jobs.arrival_ps[row]
        assert (outcome == "completed") <= (fleet.replica[row] != NOT_ROUTED)
        if outcome == "completed":
            assert fleet.jobs.output_tokens[row] == case.jobs[row].output_tokens
        if outcome == "shed":
            assert fleet.jobs.scheduled_ps[row] == -1


def waiting(item: int, tenant: str = "a", rank: int = 0, tokens: int = 1, at: int = 0) -> Waiting:
    return Waiting(item=item, tenant=tenant, rank=rank, tokens=tokens, enqueued_ps=at)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 400)), min_size=30, max_size=120),
    st.integers(1, 300),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
)
def test_backlogged_tenants_get_tokens_in_proportion_to_their_weights(items, quantum, weights):
    shares = dict(zip("abc", weights, strict=True))
    policy = replace(ROOMY, quantum_tokens=quantum, weights=shares)
    queue = FairQueue(policy)
    for number, (tenant, tokens) in enumerate(items):
        queue.offer(waiting(number, tenant, tokens=tokens))
    left = {tenant: sum(1 for owner, _ in items if owner == tenant) for tenant in "abc"}
    served = dict.fromkeys("abc", 0)
    while all(left.values()):
        taken = queue.take(0)
        assert taken is not None
        served[taken.tenant] += taken.tokens
        left[taken.tenant] -= 1
        if not all(left.values()):
            break
        # The known bound of deficit round robin: one round and one longest item apart.
        for one in "abc":
            for other in "abc":
                apart = served[one] / shares[one] - served[other] / shares[other]
                assert apart <= quantum + 400 / shares[one] + 400 / shares[other]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=40))
def test_within_a_tenant_and_rank_first_in_is_first_out_and_ranks_go_first(items):
    queue = FairQueue(ROOMY)
    for number, (tenant, rank) in enumerate(items):
        queue.offer(waiting(number, tenant, rank))
    order = [taken for _ in items if (taken := queue.take(0)) is not None]
    assert len(order) == len(items)
    assert queue.take(0) is None and queue.tokens == 0 and len(queue) == 0
    assert [item.rank for item in order] == sorted(item.rank for item in order)
    for tenant in "ab":
        for rank in range(3):
            flow = [w.item for w in order if (w.tenant, w.rank) == (tenant, rank)]
            assert flow == sorted(flow)


def test_ageing_brings_batch_to_its_turn_under_endless_interactive_arrivals():
    """SCH-1: a class gains one rank per ageing interval, so batch is never starved."""
    queue = FairQueue(replace(ROOMY, ageing_ps=100, quantum_tokens=1))
    queue.offer(waiting(0, "slow", rank=2, at=0))
    numbers = count(1)
    for now in range(0, 400, 10):
        queue.offer(waiting(next(numbers), "busy", rank=0, at=now))
        queue.offer(waiting(next(numbers), "busy", rank=0, at=now))
        taken = queue.take(now)
        assert taken is not None
        if taken.item == 0:
            break
    assert now == 200


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50)), max_size=60), st.integers(1, 8))
def test_a_full_queue_sheds_the_least_urgent_first_and_the_latest_of_them(items, max_items):
    queue = FairQueue(replace(ROOMY, max_items=max_items, max_tokens=150))
    held: dict[int | str, Waiting] = {}
    for number, (rank, tokens) in enumerate(items):
        newcomer = waiting(number, rank=rank, tokens=tokens)
        held[number] = newcomer
        for victim in queue.offer(newcomer):
            worst = max(held.values(), key=lambda w: (w.rank, w.item))
            assert victim == worst
            del held[victim.item]
        assert len(queue) == len(held) <= max_items
        assert queue.tokens == sum(w.tokens for w in held.values()) <= 150


def test_a_queued_job_can_be_cancelled_before_it_reaches_a_replica():
    front = FrontQueue(policy=ROOMY, tenants=["a", "a"], ranks=[0, 0], max_outstanding=1)
    jobs = job_arrays([0, 0], [4, 4], [9, 9], cancel_ps=[-1, 33])
    fleet = Fleet(jobs, [(ReplicaConfig(kv_blocks=99), FLAT)], front=front).run()
    assert [OUTCOMES[code] for code in fleet.jobs.outcome] == ["completed", "cancelled"]
    assert fleet.jobs.done_ps.tolist() == [90, 33] and fleet.replica.tolist() == [0, NOT_ROUTED]


def test_one_tenants_flood_does_not_hold_up_another():
    """SCH-1: weighted deficit round robin over tokens by tenant."""
    tenants = ["flood"] * 40 + ["other"]
    front = FrontQueue(policy=ROOMY, tenants=tenants, ranks=[0] * 41, max_outstanding=1)
    jobs = job_arrays([0] * 40 + [1], [100] * 41, [2] * 41)
    fleet = Fleet(jobs, [(ReplicaConfig(kv_blocks=99), FLAT)], front=front).run()
    assert int(np.sum(fleet.jobs.done_ps < fleet.jobs.done_ps[40])) <= 7


def test_a_fleet_of_nobody_and_a_queue_without_limits_are_refused():
    with pytest.raises(ValueError, match="at least one replica"):
        Fleet(job_arrays([], [], []), [])
    with pytest.raises(ValueError, match="positive"):
        QueuePolicy(max_items=0, max_tokens=1, ageing_ps=1)
    queue = FairQueue(ROOMY)
    queue.offer(waiting(1))
    with pytest.raises(ValueError, match="queued already"):
        queue.offer(waiting(1))
