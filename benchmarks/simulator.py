"""`python -m benchmarks.simulator`: its speed on one core, beside the Dynamo mocker's replay.

Each figure stands beside what the project asks of it. Best of a few runs, in CPU time of this one
process, so that a busy machine spoils it less. The peer is installed into a virtual environment
under var/ and given the same trace and the same limits as far as it has them.
"""

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from simulator import compiled
from simulator.batch import JobArrays, job_arrays, simulate
from simulator.fleet import Fleet
from simulator.lanes import Lane, simulate_lanes
from simulator.scheduler import ReplicaConfig
from simulator.timing import PS_PER_S, PS_PER_US, TimeModel

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("WEIGHBRIDGE_SHARED", ROOT.parent / "shared"))
TRACE = SHARED / "data" / "traces" / "azure2023_conv.csv.gz"
PEER_ENVIRONMENT = ROOT / "var" / "dynamo-mocker"
PEER_PACKAGE = "ai-dynamo-runtime"
MODEL = TimeModel(
    name="of the size of an 8B model",
    breakpoints=((1, 7 * 10**9), (256, 9 * 10**9), (2048, 60 * 10**9)),
    per_decode_ps=10**7,
    per_context_token_ps=40_000,
    per_attention_pair_ps=500,
    mixed_ps=5 * 10**8,
)
ROOMY = ReplicaConfig(kv_blocks=40_000, max_model_len=32_768)
STARVED = ReplicaConfig(kv_blocks=2500, max_model_len=32_768)
EVERYTHING = ReplicaConfig(
    kv_blocks=12_000, max_model_len=32_768, prefix_cache=True, priority_scheduling=True
)

PEER_SCRIPT = """
import json, sys, time
from dynamo._core import run_mocker_trace_replay
trace, workers, cached = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
engine = {"num_gpu_blocks": int(sys.argv[4]), "block_size": 16, "max_num_seqs": 256,
          "max_num_batched_tokens": 2048, "enable_chunked_prefill": True,
          "enable_prefix_caching": cached}
begin = time.process_time()
result = run_mocker_trace_replay([trace], extra_engine_args={"engine": engine},
                                 num_workers=workers, trace_block_size=512,
                                 capture_planner_details=False)
print(json.dumps([time.process_time() - begin, result.summary["completed_requests"]]))
"""


def read_trace() -> JobArrays:
    with gzip.open(TRACE, "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    columns = [
        np.array([int(row[name]) for row in rows], np.int64)
        for name in ("arrival_us", "input_tokens", "output_tokens")
    ]
    return job_arrays(columns[0] * PS_PER_US, columns[1], columns[2])


def repeated(jobs: JobArrays, count: int) -> JobArrays:
    """The trace one after the other until there are `count` jobs, its pauses kept."""
    rounds = -(-count // len(jobs))
    period = int(jobs.arrival_ps[-1]) + PS_PER_S
    arrival = np.concatenate([jobs.arrival_ps + n * period for n in range(rounds)])[:count]
    return job_arrays(
        arrival,
        np.tile(jobs.input_tokens, rounds)[:count],
        np.tile(jobs.output_tokens, rounds)[:count],
    )


def overlaid(jobs: JobArrays, seed: int = 1) -> JobArrays:
    """Priorities, cancels (5 %) and a 64-token prompt shared by each of 20 tenants, by seed.

    Arrivals are eight times as dense, for eight replicas.
    """
    rng = np.random.default_rng(seed)
    count, arrival = len(jobs), jobs.arrival_ps // 8
    prompts = [tuple(range(100 * tenant, 100 * tenant + 4)) for tenant in range(20)]
    tenants = rng.integers(0, 20, count)
    patience = rng.integers(0, 20 * PS_PER_S, count)
    return job_arrays(
        arrival,
        jobs.input_tokens,
        jobs.output_tokens,
        priority=rng.integers(0, 3, count),
        cancel_ps=np.where(rng.random(count) < 0.05, arrival + patience, -1),
        block_hashes=[
            prompts[tenant][: tokens // 16]
            for tenant, tokens in zip(tenants.tolist(), jobs.input_tokens.tolist(), strict=True)
        ],
    )


def best_rate(run: Callable[[], object], requests: int, runs: int = 3) -> float:
    best = float("inf")
    for _ in range(runs):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return requests / best


def lanes_of(jobs: JobArrays, count: int, each: int) -> list[Lane]:
    rng = np.random.default_rng(7)
    lanes = []
    for start in rng.integers(0, len(jobs) - each, count).tolist():
        at = slice(start, start + each)
        arrival = jobs.arrival_ps[at] - jobs.arrival_ps[start]
        part = job_arrays(arrival, jobs.input_tokens[at], jobs.output_tokens[at])
        lanes.append(Lane(jobs=part, config=ROOMY, model=MODEL))
    return lanes


def million() -> tuple[float, float]:
    """Seconds of CPU and peak MiB of a process that simulates a million requests."""
    script = (
        "import resource, time; from benchmarks.simulator import *; "
        "jobs = repeated(read_trace(), 1_000_000); begin = time.process_time(); "
        "simulate(jobs, ROOMY, MODEL); print(time.process_time() - begin, "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return float(printed[0]), float(printed[1])


def growth(jobs: JobArrays) -> list[tuple[int, float]]:
    """CPU seconds at 10^3 .. 10^6 requests."""
    rows = []
    for count in (1_000, 10_000, 100_000, 1_000_000):
        part = repeated(jobs, count)
        runs = 3 if count < 1_000_000 else 1
        rows.append((count, count / best_rate(partial(simulate, part, ROOMY, MODEL), count, runs)))
    return rows


class PeerMissingError(Exception):
    """Why the peer can't be measured here."""


def peer_python() -> Path:
    """The interpreter of the peer's own environment; made on the first call."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(PEER_ENVIRONMENT, with_pip=True)
    has_it = subprocess.run([python, "-c", "import dynamo._core"], capture_output=True, check=False)
    if has_it.returncode:
        pip = [str(python), "-m", "pip", "install", "--quiet", PEER_PACKAGE]
        installed = subprocess.run(pip, capture_output=True, text=True, check=False)
        if installed.returncode:
            raise PeerMissingError(installed.stderr.strip().splitlines()[-1])
    return python


def peer_rate(jobs: JobArrays, workers: int, *, cached: bool, blocks: int) -> float:
    """Requests per CPU second of the Dynamo mocker's offline replay on the same jobs."""
    python = peer_python()
    trace = PEER_ENVIRONMENT / "trace.jsonl"
    next_hash = 0
    with trace.open("w") as lines:
        for at, length, output in zip(
            jobs.arrival_ps.tolist(),
            jobs.input_tokens.tolist(),
            jobs.output_tokens.tolist(),
            strict=True,
        ):
            hashes = list(range(next_hash, next_hash + -(-length // 512)))
            next_hash += len(hashes)
            row = {
                "timestamp": at / 10**9,
                "input_length": length,
                "output_length": output,
                "hash_ids": hashes,
            }
            lines.write(json.dumps(row) + "\n")
    run = subprocess.run(
        [str(python), "-c", PEER_SCRIPT, str(trace), str(workers), str(cached), str(blocks)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode:
        raise PeerMissingError(run.stderr.strip().splitlines()[-1])
    seconds, completed = json.loads(run.stdout.strip().splitlines()[-1])
    return float(completed) / float(seconds)


def show(name: str, figure: str, wanted: str) -> None:
    print(f"{name:<62} {figure:>16}   {wanted}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-peer", action="store_true", help="leave the Dynamo mocker out")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    if not TRACE.exists():
        sys.exit(f"not run: {TRACE.name} is absent (set WEIGHBRIDGE_SHARED)")
    jobs = read_trace()
    print("The engine:", "its source" if compiled.found() is None else "compiled by mypyc")
    figures: dict[str, float] = {}
    requests = len(jobs)
    one = best_rate(lambda: simulate(jobs, ROOMY, MODEL), requests)
    starved = best_rate(lambda: simulate(jobs, STARVED, MODEL), requests)
    figures |= {"one_replica": one, "one_replica_starved": starved}
    show("one replica, first come first served, chunked: requests/s", f"{one:,.0f}", ">= 100,000")
    show("the same starved of KV (preemptions): requests/s", f"{starved:,.0f}", ">= 100,000")
    all_of_it = overlaid(jobs)
    fleet = best_rate(lambda: Fleet(all_of_it, [(EVERYTHING, MODEL)] * 8).run(), requests)
    figures["fleet"] = fleet
    show(
        "8 replicas: cache, priorities, cancels, routing: requests/s", f"{fleet:,.0f}", ">= 50,000"
    )
    for count, each in ((128, 1000), (1024, 1000)):
        lanes = lanes_of(jobs, count, each)
        rate = best_rate(partial(simulate_lanes, lanes), count * each, runs=2)
        figures[f"lanes_{count}"] = rate
        wanted = ">= 500,000" if count == 1024 else ""
        show(f"{count} lanes together: requests/s", f"{rate:,.0f}", wanted)
    seconds, mebibytes = million()
    figures |= {"million_s": seconds, "million_mib": mebibytes}
    show("a million requests: seconds", f"{seconds:.1f}", "< 20")
    show("a million requests: MiB at most", f"{mebibytes:,.0f}", "< 1,024")
    rows = growth(jobs)
    for count, took in rows:
        show(f"{count:,} requests: seconds", f"{took:.3f}", "")
    per_n_log_n = [took / (count * np.log(count)) for count, took in rows]
    figures["growth_over_n_log_n"] = per_n_log_n[-1] / per_n_log_n[1]
    show("growth from 10^4 to 10^6, over that of n log n",
         f"{figures['growth_over_n_log_n']:.2f}", "<= 1")  # fmt: skip
    if not options.no_peer:
        try:
            peer = peer_rate(jobs, 1, cached=False, blocks=ROOMY.kv_blocks)
            peers = peer_rate(all_of_it, 8, cached=True, blocks=EVERYTHING.kv_blocks)
            figures |= {"dynamo_one": peer, "dynamo_eight": peers}
            show("Dynamo mocker, one worker: requests/s", f"{peer:,.0f}", f"{one / peer:.1f} times")
            show("Dynamo mocker, eight workers: requests/s", f"{peers:,.0f}",
                 f"{fleet / peers:.1f} times")  # fmt: skip
        except PeerMissingError as reason:
            print(f"Dynamo mocker not installed: {reason}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
