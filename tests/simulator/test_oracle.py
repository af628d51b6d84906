"""The reference scheduler keeps what a scheduler must keep (SIMULATOR.md, held to)."""

from itertools import pairwise

from hypothesis import given

from simulator.oracle import Oracle
from simulator.scheduler import Job, ReplicaConfig
from simulator.timing import TimeModel
from tests.simulator.scheduling_cases import Case, seeded_cases

FLAT = TimeModel(name="flat", breakpoints=((0, 10),))


@given(seeded_cases())
def test_each_job_ends_exactly_once_in_order_and_within_the_limits(case: Case):
    oracle = Oracle(case.jobs, case.config, case.model).run()
    assert sorted(end.job_id for end in oracle.finished) == list(range(len(case.jobs)))
    for end in oracle.finished:
        reached = [end.arrival_ps, end.scheduled_ps, end.first_token_ps, end.done_ps]
        assert sorted(t for t in reached if t is not None) == [t for t in reached if t is not None]
        times = oracle.tokens_ps[end.job_id]
        assert len(times) == end.output_tokens and all(a < b for a, b in pairwise(times))
        if end.outcome == "completed":
            assert end.output_tokens == case.jobs[int(end.job_id)].output_tokens
            assert times[-1] == end.done_ps
    for step in oracle.steps:
        assert step.prefill_tokens + step.decodes <= case.config.max_num_batched_tokens
        assert step.running <= case.config.max_num_seqs


@given(seeded_cases())
def test_work_is_conserved_no_step_idles_while_a_job_is_there(case: Case):
    oracle = Oracle(case.jobs, case.config, case.model).run()
    gaps = [
        (before.end_ps, after.start_ps)
        for before, after in pairwise(oracle.steps)
        if after.start_ps > before.end_ps
    ]
    for end in oracle.finished:
        for begin, until in gaps:
            assert max(end.arrival_ps, begin) >= min(end.done_ps, until)


@given(seeded_cases())
def test_nobody_overtakes_at_first_admission_under_first_come_first_served(case: Case):
    if case.config.priority_scheduling:
        return
    oracle = Oracle(case.jobs, case.config, case.model).run()
    starts = sorted(
        (end.arrival_ps, int(end.job_id), end.scheduled_ps)
        for end in oracle.finished
        if end.scheduled_ps is not None
    )
    assert all(before[2] <= after[2] for before, after in pairwise(starts))


@given(seeded_cases())
def test_littles_law_holds_as_an_identity(case: Case):
    """The area under the number in the system equals the sum of the times in it."""
    oracle = Oracle(case.jobs, case.config, case.model).run()
    changes = sorted(
        [(end.arrival_ps, 1) for end in oracle.finished]
        + [(end.done_ps, -1) for end in oracle.finished]
    )
    area = present = last = 0
    for at, change in changes:
        area += present * (at - last)
        present, last = present + change, at
    assert area == sum(end.done_ps - end.arrival_ps for end in oracle.finished)


def test_a_job_that_can_never_fit_is_refused_on_arrival_and_takes_nothing():
    config = ReplicaConfig(kv_blocks=3, block_tokens=4)
    jobs = [
        Job(job_id="fits", arrival_ps=0, input_tokens=5, output_tokens=4),
        Job(job_id="too long", arrival_ps=7, input_tokens=5, output_tokens=5),
    ]
    fits, refused = sorted(
        Oracle(jobs, config, FLAT).run().finished, key=lambda end: str(end.job_id)
    )
    assert (fits.outcome, fits.output_tokens, fits.done_ps) == ("completed", 4, 40)
    assert (refused.outcome, refused.scheduled_ps, refused.done_ps) == ("refused", None, 7)


def test_shortage_of_kv_preempts_the_last_of_the_running_and_recomputes_it():
    config = ReplicaConfig(kv_blocks=4, block_tokens=2, reserved_blocks=0)
    jobs = [Job(job_id=name, arrival_ps=0, input_tokens=3, output_tokens=4) for name in ("a", "b")]
    oracle = Oracle(jobs, config, FLAT).run()
    first, second = oracle.finished
    # Both hold two blocks after prefill; the fifth slot takes a third one from the other.
    assert (first.job_id, first.preemptions, oracle.tokens_ps["a"]) == ("a", 0, (10, 20, 30, 40))
    assert (second.job_id, second.preemptions) == ("b", 1)
    assert oracle.tokens_ps["b"] == (10, 20, 50, 60)


def test_the_urgent_wait_for_a_shortage_and_then_the_least_urgent_gives_way():
    config = ReplicaConfig(kv_blocks=4, block_tokens=2, reserved_blocks=0, priority_scheduling=True)
    jobs = [
        Job(job_id="batch", arrival_ps=0, input_tokens=3, output_tokens=4, priority=2),
        Job(job_id="urgent", arrival_ps=5, input_tokens=3, output_tokens=4, priority=0),
    ]
    oracle = Oracle(jobs, config, FLAT).run()
    urgent, batch = oracle.finished
    assert (urgent.job_id, urgent.scheduled_ps, urgent.preemptions) == ("urgent", 10, 0)
    assert (batch.job_id, batch.preemptions) == ("batch", 1)


def test_a_shared_prefix_is_hit_up_to_the_last_token_but_one():
    config = ReplicaConfig(kv_blocks=20, block_tokens=4, prefix_cache=True)
    jobs = [
        Job(job_id=i, arrival_ps=100 * i, input_tokens=8, output_tokens=1, block_hashes=(1, 2))
        for i in range(2)
    ]
    first, second = Oracle(jobs, config, FLAT).run().finished
    assert (first.cached_tokens, second.cached_tokens) == (0, 4)


def test_a_cancel_frees_the_blocks_at_the_next_boundary_and_counts_what_was_generated():
    config = ReplicaConfig(kv_blocks=20, block_tokens=4)
    jobs = [Job(job_id=0, arrival_ps=0, input_tokens=4, output_tokens=9, cancel_ps=21)]
    (end,) = Oracle(jobs, config, FLAT).run().finished
    assert (end.outcome, end.done_ps, end.output_tokens) == ("cancelled", 30, 3)
