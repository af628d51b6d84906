"""Oracle, engine and lanes agree to the picosecond and token on thousands of seeded workloads."""

import os

import numpy as np

from simulator.batch import jobs_to_arrays, simulate
from simulator.lanes import Lane, simulate_lanes
from simulator.oracle import Oracle
from tests.simulator.scheduling_cases import plain, rows_of_oracle, rows_of_result, seeded_case

WORKLOADS = 20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 2_000


def test_oracle_and_engine_agree_on_every_seeded_workload_preemptions_and_all():
    preempted = cancelled = hit = 0
    for seed in range(WORKLOADS):
        case = seeded_case(seed)
        oracle = Oracle(case.jobs, case.config, case.model).run()
        result = simulate(jobs_to_arrays(case.jobs), case.config, case.model)
        assert rows_of_result(result) == rows_of_oracle(oracle), f"seed {seed}"
        preempted += sum(end.preemptions for end in oracle.finished)
        cancelled += sum(end.outcome == "cancelled" for end in oracle.finished)
        hit += sum(end.cached_tokens > 0 for end in oracle.finished)
    assert min(preempted, cancelled, hit) > WORKLOADS / 10


def test_oracle_and_lanes_agree_on_every_seeded_workload_all_lanes_at_once():
    cases = [plain(seeded_case(seed)) for seed in range(WORKLOADS)]
    lanes = [
        Lane(jobs=jobs_to_arrays(case.jobs), config=case.config, model=case.model) for case in cases
    ]
    for seed, (case, result) in enumerate(zip(cases, simulate_lanes(lanes), strict=True)):
        rows = rows_of_oracle(Oracle(case.jobs, case.config, case.model).run())
        expected = np.array([rows[index][1:5] for index in range(len(rows))]).reshape(-1, 4)
        got = [result.scheduled_ps, result.first_token_ps, result.done_ps, result.output_tokens]
        assert np.array_equal(np.stack(got, axis=1), expected), f"seed {seed}"
