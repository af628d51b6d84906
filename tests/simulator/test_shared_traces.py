"""Oracle, engine and lanes agree on real arrivals and lengths; two processes give the same bytes.

The traces are shared beside the project and are never part of it. In CI the oracle, which takes
one step at a time, runs as many of each trace as take it a second or two; in the long run the
first 2,000. With their lengths cut short it runs 2,000 of each in test_engine.py.
"""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from simulator.batch import JobArrays, job_arrays, simulate
from simulator.fleet import FleetResult
from simulator.lanes import Lane, simulate_lanes
from simulator.oracle import Oracle
from simulator.replay import jobs_of
from simulator.scheduler import Job, ReplicaConfig
from simulator.timing import TimeModel
from simulator.trace_files import read_trace
from tests.shared_data import shared_data_path
from tests.simulator.scheduling_cases import rows_of_oracle, rows_of_result

ROOT = Path(__file__).resolve().parents[2]
FIRST = 2_000
IN_FULL = os.environ.get("HYPOTHESIS_PROFILE") == "long"
BY_THE_ORACLE = {
    "azure2023_code.csv.gz": 2_000,
    "azure2023_conv.csv.gz": 500,
    "burstgpt3_first105.csv": 105,
    "mooncake_conversation.csv.gz": 100,
    "servegen_r1_30min_SAMPLED.csv.gz": 40,
}
"""By trace; ServeGen's answers are of some thousands of tokens."""
BLOCK_TOKENS = 128
"""Large, so that there are few: the oracle looks at every block at every step."""
HASHED_TOKENS = 512
"""The blocks that Mooncake has hashed."""
KV_TOKENS = {
    "azure2023_code.csv.gz": 24_000,
    "azure2023_conv.csv.gz": 24_000,
    "burstgpt3_first105.csv": 24_000,
    "mooncake_conversation.csv.gz": 160_000,
    "servegen_r1_30min_SAMPLED.csv.gz": 96_000,
}
"""Pools that are short of KV now and then, by trace."""
MODEL = TimeModel(
    name="of the size of an 8B model",
    breakpoints=((1, 7 * 10**9), (256, 9 * 10**9), (2048, 60 * 10**9)),
    per_decode_ps=10**7,
    per_context_token_ps=40_000,
    per_attention_pair_ps=500,
    mixed_ps=5 * 10**8,
)
COLUMNS = ("outcome", "scheduled_ps", "first_token_ps", "done_ps", "output_tokens", "preemptions")


@cache
def all_of(name: str, block_tokens: int) -> JobArrays:
    return jobs_of(read_trace(shared_data_path("traces", name)), block_tokens)


def first_of(
    name: str, count: int, block_tokens: int = BLOCK_TOKENS, *, hashed: bool = False
) -> tuple[JobArrays, ReplicaConfig]:
    config = ReplicaConfig(
        kv_blocks=KV_TOKENS[name] // block_tokens,
        block_tokens=block_tokens,
        max_model_len=160_000,
        prefix_cache=hashed,
    )
    jobs = all_of(name, block_tokens)
    part = job_arrays(
        jobs.arrival_ps[:count],
        jobs.input_tokens[:count],
        jobs.output_tokens[:count],
        block_hashes=list(jobs.block_hashes[:count]) if hashed and jobs.block_hashes else None,
    )
    return part, config


def by_the_oracle(jobs: JobArrays, config: ReplicaConfig) -> Oracle:
    hashes = jobs.block_hashes or [()] * len(jobs)
    columns = (jobs.arrival_ps, jobs.input_tokens, jobs.output_tokens)
    listed = [
        Job(
            job_id=index,
            arrival_ps=arrival,
            input_tokens=length,
            output_tokens=output,
            block_hashes=hashes[index],
        )
        for index, (arrival, length, output) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]
    return Oracle(listed, config, MODEL).run()


@pytest.mark.parametrize("name", KV_TOKENS)
def test_engine_and_oracle_agree_token_by_token_on_each_shared_trace(name: str):
    jobs, config = first_of(name, FIRST if IN_FULL else BY_THE_ORACLE[name])
    result = simulate(jobs, config, MODEL)
    assert rows_of_result(result) == rows_of_oracle(by_the_oracle(jobs, config))


def test_engine_and_oracle_agree_on_the_shared_prefixes_of_a_real_trace():
    name = "mooncake_conversation.csv.gz"
    jobs, config = first_of(name, FIRST if IN_FULL else 150, HASHED_TOKENS, hashed=True)
    result = simulate(jobs, config, MODEL)
    assert rows_of_result(result) == rows_of_oracle(by_the_oracle(jobs, config))
    assert result.cached_tokens.any() and result.preemptions.any()


def test_lanes_and_engine_agree_on_the_first_two_thousand_of_each_shared_trace():
    lanes = []
    for name in KV_TOKENS:
        jobs, config = first_of(name, FIRST)
        pools = (config, replace(config, kv_blocks=25_000))
        lanes += [Lane(jobs=jobs, config=pool, model=MODEL) for pool in pools]
    for lane, result in zip(lanes, simulate_lanes(lanes, min_lanes=1), strict=True):
        alone = simulate(lane.jobs, lane.config, lane.model)
        for column in COLUMNS:
            assert np.array_equal(getattr(alone, column), getattr(result, column)), column


SCRIPT = """
import numpy as np
from simulator.batch import job_arrays
from simulator.fleet import Fleet
from simulator.scheduler import ReplicaConfig
from tests.simulator.test_shared_traces import MODEL, digest_of
rng = np.random.default_rng(11)
arrivals = np.sort(rng.integers(0, 10**13, 300))
jobs = job_arrays(arrivals, rng.integers(1, 900, 300), rng.integers(1, 200, 300),
    priority=rng.integers(0, 3, 300),
    cancel_ps=np.where(rng.random(300) < 0.1, arrivals + 10**12, -1),
    block_hashes=[tuple(range(n % 30)) for n in rng.integers(0, 30, 300).tolist()])
config = ReplicaConfig(kv_blocks=400, prefix_cache=True, priority_scheduling=True)
print(digest_of(Fleet(jobs, [(config, MODEL)] * 3).run()))
"""


def digest_of(result: FleetResult) -> str:
    """Of every byte that a fleet's result holds."""
    digest = hashlib.sha256()
    jobs, iterations = result.jobs, result.iterations
    for column in (*COLUMNS, "cached_tokens", "last_run_start"):
        digest.update(getattr(jobs, column).tobytes())
    digest.update(result.replica.tobytes())
    for log in iterations:
        for column in ("before", "start_ps", "steps", "a_ps", "b_ps", "emitted"):
            digest.update(getattr(log, column).tobytes())
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_two_processes_with_unlike_hash_seeds():
    digests = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert len(digests[0].strip()) == 64
