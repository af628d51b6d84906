"""SIM-1: what the engine takes, at its edges: the exact times, or words; never anything else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.batch import JobArrays, job_arrays, jobs_to_arrays, simulate
from simulator.engine import Replica
from simulator.fleet import Fleet
from simulator.lanes import Lane, simulate_lanes
from simulator.oracle import Oracle
from simulator.scheduler import MAX_BLOCK_TOKENS, OUTCOMES, Job, ReplicaConfig
from simulator.timing import MAX_PS, TimeModel
from tests.simulator.scheduling_cases import Case, seeded_case

CONFIG = ReplicaConfig(kv_blocks=100)
JOB: dict[str, Any] = {"job_id": 0, "arrival_ps": 0, "input_tokens": 1, "output_tokens": 1}
MODEL: dict[str, Any] = {"name": "edge", "breakpoints": ((0, 1),)}
COLUMNS = ("arrival_ps", "input_tokens", "output_tokens", "priority", "cancel_ps")
Ends = list[tuple[str, int]]

coefficients = st.sampled_from([0, 0, 1, 2**20, 2**40, MAX_PS - 1]) | st.integers(0, 62).map(
    lambda bits: 2**bits - 1
)


@st.composite
def edges(draw: st.DrawFn) -> Case:
    """A seeded case whose coefficients and arrivals lie anywhere up to the ends of their range."""
    case = seeded_case(draw(st.integers(0, 2**32)))
    first_ps = draw(coefficients)
    slow = model(
        breakpoints=((1, max(1, first_ps)), (9, max(1, first_ps, draw(coefficients)))),
        per_decode_ps=draw(coefficients),
        per_context_token_ps=draw(coefficients),
        per_attention_pair_ps=draw(coefficients),
        mixed_ps=draw(coefficients),
    )
    latest = max((job.arrival_ps for job in case.jobs), default=0)
    later_ps = draw(st.sampled_from([0, 0, MAX_PS // 2, MAX_PS - 10**6, MAX_PS - 1 - latest]))
    jobs = [
        replace(
            job,
            arrival_ps=job.arrival_ps + later_ps,
            cancel_ps=None if job.cancel_ps is None else job.cancel_ps + later_ps,
        )
        for job in case.jobs
    ]
    return Case(jobs=jobs, config=case.config, model=slow)


def of_columns(outcome: object, done_ps: object) -> Ends:
    codes, times = np.asarray(outcome).tolist(), np.asarray(done_ps).tolist()
    return [(OUTCOMES[code], done) for code, done in zip(codes, times, strict=True)]


def alone(case: Case) -> Ends:
    result = simulate(jobs_to_arrays(case.jobs), case.config, case.model)
    return of_columns(result.outcome, result.done_ps)


def in_a_fleet(case: Case) -> Ends:
    jobs = Fleet(jobs_to_arrays(case.jobs), [(case.config, case.model)]).run().jobs
    return of_columns(jobs.outcome, jobs.done_ps)


def in_lanes(case: Case) -> Ends:
    lane = Lane(jobs=jobs_to_arrays(case.jobs), config=case.config, model=case.model)
    result, _ = simulate_lanes([lane, lane], min_lanes=1)
    return of_columns(result.outcome, result.done_ps)


def by_events(case: Case) -> Ends:
    replica = Replica(case.config, case.model)
    for job in case.jobs:
        replica.submit(job)
    ended = []
    while (at_ps := replica.next_event_ps()) is not None:
        ended += replica.advance_to(at_ps)
        replica.snapshot(at_ps)
    return [(end.outcome, end.done_ps) for end in sorted(ended, key=lambda end: end.job_id)]


@settings(max_examples=40)
@given(edges())
def test_each_engine_gives_the_exact_times_or_says_that_they_leave_its_range(case: Case) -> None:
    """The reference counts in whole numbers without an end: what it says is the truth."""
    finished = sorted(Oracle(case.jobs, case.config, case.model).run().finished,
                      key=lambda end: end.job_id)  # fmt: skip
    true = [(end.outcome, end.done_ps) for end in finished]
    for engine in (alone, in_a_fleet, in_lanes, by_events):
        if max((done for _, done in true), default=0) < MAX_PS:
            assert engine(case) == true
        else:
            with pytest.raises(OverflowError, match="ran beyond"):
                engine(case)


def columns(**changed: Any) -> JobArrays:
    return JobArrays(**{name: np.ones(3, np.int64) for name in COLUMNS} | changed)


def job(**changed: Any) -> Job:
    return Job(**JOB | changed)


def model(**changed: Any) -> TimeModel:
    return TimeModel(**MODEL | changed)


def config(**changed: Any) -> ReplicaConfig:
    return replace(CONFIG, **changed)


REFUSED: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "may reach", lambda: model(mixed_ps=MAX_PS)),
    (ValueError, "may reach", lambda: model(breakpoints=((0, 1), (1, MAX_PS)))),
    (ValueError, "may reach", lambda: model(breakpoints=((0, 1), (MAX_PS, 1)))),
    (ValueError, "arrival_ps may not reach", lambda: job(arrival_ps=MAX_PS)),
    (ValueError, "cancel_ps may not", lambda: job(cancel_ps=-1)),
    (ValueError, "cancel_ps may not", lambda: job(cancel_ps=2**63)),
    (ValueError, "priority may not", lambda: job(priority=2**63)),
    (ValueError, "block_tokens", lambda: config(block_tokens=MAX_BLOCK_TOKENS + 1)),
    (ValueError, "whole numbers", lambda: job_arrays([2**63], [1], [1])),
    (ValueError, "whole numbers", lambda: job_arrays([1.5], [1], [1])),
    (ValueError, "whole numbers", lambda: job_arrays([np.nan], [1], [1])),
    (ValueError, "whole numbers", lambda: job_arrays(["1"], [1], [1])),
    (ValueError, "whole numbers", lambda: job_arrays([0], np.array([2**64 - 1], np.uint64), [1])),
    (ValueError, "may not reach", lambda: job_arrays([MAX_PS], [1], [1])),
    (ValueError, "at most 16777216 tokens", lambda: job_arrays([0], [2**62], [2**62])),
    (ValueError, "cancel_ps may not", lambda: job_arrays([0], [1], [1], cancel_ps=[-2])),
    (ValueError, "equally long", lambda: columns(priority=np.ones((3, 1), np.int64))),
    (TypeError, "int", lambda: job(arrival_ps=np.int64(0))),
    (TypeError, "int", lambda: job(cancel_ps=0.5)),
    (TypeError, "int", lambda: model(per_decode_ps=np.int64(1))),
    (TypeError, "int", lambda: model(breakpoints=((0, 1.5),))),
    (TypeError, "int", lambda: config(max_num_seqs=2.0)),
    (OverflowError, "ran beyond", lambda: Replica(CONFIG, model()).run_to(MAX_PS)),
]


@pytest.mark.parametrize(("error", "words", "given"), REFUSED)
def test_what_is_outside_of_the_domain_is_refused_at_the_edge(
    error: type[Exception], words: str, given: Callable[[], object]
) -> None:
    with pytest.raises(error, match=words):
        given()


@pytest.mark.parametrize("dtype", [np.uint64, np.int32, np.float64, object])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_another_type_are_refused(name: str, dtype: type) -> None:
    """Of numpy's unsigned numbers the engine's negations are huge: it would never end."""
    with pytest.raises(ValueError, match="are int64"):
        columns(**{name: np.ones(3, dtype)})


def test_whole_numbers_of_other_types_are_taken_as_what_they_say() -> None:
    jobs = job_arrays([0.0, 5.0], np.array([1, 2], np.uint64), np.array([3, 4], np.int8))
    assert [column.dtype for column in (jobs.arrival_ps, jobs.input_tokens)] == [np.int64] * 2
    assert jobs.output_tokens.tolist() == [3, 4]


def test_the_last_moment_of_all_is_within_the_domain() -> None:
    slowest = model(breakpoints=((0, MAX_PS - 1),))
    assert simulate(job_arrays([0], [1], [1]), CONFIG, slowest).done_ps.tolist() == [MAX_PS - 1]
    with pytest.raises(OverflowError, match=r"53 days"):
        simulate(job_arrays([1], [1], [1]), CONFIG, slowest)
