"""`python -m benchmarks.simulator_live`: how late the live backend's tokens leave.

200 concurrent streams on one replica in real time. A token is late by when its reader has it, less
when the engine says it was due. A busy machine adds its own delays to that; the second line counts
only the CPU time that this process has spent since its timer fired: what an idle one would add.
"""

import argparse
import asyncio
import os
import time

import numpy as np

from simulator.engine import Replica
from simulator.live import LiveReplica, sleep_ps
from simulator.profiles import DEFAULT_PROFILE, profile
from simulator.scheduler import Job
from simulator.timing import PS_PER_MS

PS_PER_NS = 1_000
LIMIT_MS = 5.0
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def clock_ps() -> int:
    return time.monotonic_ns() * PS_PER_NS


class Measured:
    """Streams on one live replica, and how late each of their tokens was, in ps."""

    def __init__(self) -> None:
        chosen = profile(DEFAULT_PROFILE)
        self.late: list[int] = []
        self.late_in_cpu: list[int] = []
        self._woken_ns = time.process_time_ns()
        replica = Replica(chosen.replica, chosen.time, retain_finished=1_000)
        self._start_ps = clock_ps()  # virtual time begins with the live replica, a few us later
        self.live = LiveReplica(replica, clock_ps, self._sleep)

    async def _sleep(self, duration_ps: int) -> None:
        await sleep_ps(duration_ps)
        self._woken_ns = time.process_time_ns()

    async def read(self, job: Job) -> None:
        taken = []
        async for _ in self.live.submit(job):
            taken.append(clock_ps() - self._start_ps)
            self.late_in_cpu.append((time.process_time_ns() - self._woken_ns) * PS_PER_NS)
        due = self.live.replica.token_times_ps(job.job_id)
        self.late += [at - int(wanted) for at, wanted in zip(taken, due, strict=True)]

    async def run(self, streams: int, tokens: int) -> None:
        pump = asyncio.create_task(self.live.run())
        jobs = [
            Job(job_id=number, arrival_ps=0, input_tokens=64, output_tokens=tokens)
            for number in range(streams)
        ]
        await asyncio.gather(*(self.read(job) for job in jobs))
        pump.cancel()


def show(name: str, late_ps: list[int]) -> None:
    late_ms = np.array(late_ps) / PS_PER_MS
    figures = ", ".join(f"{q} {np.quantile(late_ms, at):.2f}" for q, at in QUANTILES.items())
    print(f"{name} (ms): {figures}; within {LIMIT_MS:.0f} ms: {(late_ms <= LIMIT_MS).mean():.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args()
    measured = Measured()
    begin = time.process_time()
    asyncio.run(measured.run(options.streams, options.tokens))
    used_us = (time.process_time() - begin) * 1e6
    count = len(measured.late)
    print(f"{options.streams} streams, {count:,} tokens, load average {os.getloadavg()[0]:.1f}")
    show("late by the clock", measured.late)
    show("late by this process's own CPU time", measured.late_in_cpu)
    print(f"CPU a token: {used_us / count:.1f} us")


if __name__ == "__main__":
    main()
