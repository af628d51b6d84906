"""Several replicas, alike or not, behind a routing callable; optionally a fair queue before them.

Each replica's next change lies in a heap, and a stretch of decode steps stays uncommitted, so an
arrival cuts only the stretch of the replica that it goes to. Sources SIM-1, SCH-1, SCH-2.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from simulator.batch import (
    JobArrays,
    SimulationResult,
    collect,
    fill_columns,
    final_blocks,
    iteration_log,
)
from simulator.fair_queue import FairQueue, QueuePolicy, Waiting
from simulator.iterations import Int64Array, IterationLog, token_times_ps
from simulator.scheduler import ReplicaConfig, Snapshot
from simulator.snapshots import observe
from simulator.state import CANCELLED, REFUSED, SHED, ReplicaState
from simulator.striding import OBSERVE, pacing
from simulator.timing import MAX_PS, PS_PER_S, TimeModel, beyond_time

NOT_ROUTED = -1
DRAIN_STEP_PS = PS_PER_S


class Loads:
    """What a routing callable may ask: `outstanding` jobs by replica, and snapshots.

    Snapshots are fresh, or, with an interval, as old as the last multiple of it (SCH-2): what
    was routed since then shows in `outstanding` only.
    """

    def __init__(self, states: Sequence[ReplicaState], run_to: Callable[[int, int], None]) -> None:
        self.now_ps = 0
        self.outstanding = [0] * len(states)
        self.submitted = [0] * len(states)
        self._states, self._run_to = states, run_to
        self._taken: list[Snapshot] | None = None

    def snapshot(self, replica: int) -> Snapshot:
        """Return what is known of a replica's load, with the time at which it was observed."""
        if self._taken is not None:
            return self._taken[replica]
        return self._observed(replica)

    def _observed(self, replica: int) -> Snapshot:
        self._run_to(replica, self.now_ps)
        changes = 2 * self.submitted[replica] - self.outstanding[replica]
        return observe(self._states[replica], self.now_ps, changes)

    def take_snapshots(self) -> None:
        """Observe all replicas now; from then on `snapshot` answers with that."""
        self._taken = [self._observed(replica) for replica in range(len(self._states))]


Route = Callable[[int, Loads], int | None]
"""From (position of the job in the workload, loads) to a replica, or None: shed."""


def fewest_outstanding(outstanding: list[int]) -> int:
    """Return the place of the fewest, the first of several: by this one the gateway serves, too."""
    return outstanding.index(min(outstanding))


def least_loaded(job: int, loads: Loads) -> int:
    """Return the replica with the fewest outstanding jobs, the first of several."""
    return fewest_outstanding(loads.outstanding)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontQueue:
    """A fair queue before the replicas, from which a job goes once one has fewer outstanding.

    `tenants` and `ranks` have an entry a job; what a job costs there is its prompt and output.
    """

    policy: QueuePolicy
    tenants: Sequence[str]
    ranks: Sequence[int]
    max_outstanding: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResult:
    """The jobs' ends, and `replica` where each one ran (-1: nowhere).

    `jobs` has no iterations of its own: they are in `iterations`, a log a replica.
    """

    jobs: SimulationResult
    replica: NDArray[np.int32]
    iterations: tuple[IterationLog, ...]

    def token_times_ps(self, job: int) -> Int64Array:
        """Return when each of the job's tokens was emitted, in ps."""
        if self.replica[job] == NOT_ROUTED:
            return np.empty(0, np.int64)
        return token_times_ps(self.iterations[self.replica[job]], self.jobs.runs(job))

    def of_replica(self, replica: int) -> SimulationResult:
        """Return the jobs that ran on one replica, in order of submission, with its iterations."""
        rows = np.flatnonzero(self.replica == replica)
        jobs = self.jobs
        return SimulationResult(
            outcome=jobs.outcome[rows],
            arrival_ps=jobs.arrival_ps[rows],
            scheduled_ps=jobs.scheduled_ps[rows],
            first_token_ps=jobs.first_token_ps[rows],
            done_ps=jobs.done_ps[rows],
            output_tokens=jobs.output_tokens[rows],
            cached_tokens=jobs.cached_tokens[rows],
            preemptions=jobs.preemptions[rows],
            iterations=self.iterations[replica],
            last_run_start=jobs.last_run_start[rows],
            earlier_runs={
                int(np.searchsorted(rows, job)): runs
                for job, runs in jobs.earlier_runs.items()
                if self.replica[job] == replica
            },
        )


class Fleet:
    """One simulation of `jobs` over replicas; `run` returns how they ended."""

    def __init__(
        self,
        jobs: JobArrays,
        replicas: Sequence[tuple[ReplicaConfig, TimeModel]],
        route: Route = least_loaded,
        *,
        front: FrontQueue | None = None,
        snapshot_interval_ps: int | None = None,
    ) -> None:
        if not replicas:
            raise ValueError("a fleet has at least one replica")
        if snapshot_interval_ps is not None and snapshot_interval_ps < 1:
            raise ValueError("the snapshot interval must be positive")
        self._jobs, self._route, self._front = jobs, route, front
        self._shared = ReplicaState(*replicas[0])
        fill_columns(self._shared, jobs)
        self._states = [_sharing(self._shared, jobs, *replica) for replica in replicas]
        self._runs = [_started(state).send for state in self._states]
        self._endings = [state.ended for state in self._states]
        self._servable = [config.max_servable_tokens for config, _ in replicas]
        self._largest = max(self._servable)
        self._due = [MAX_PS] * len(replicas)
        self._heap = [(MAX_PS, replica) for replica in range(len(replicas))]
        self._loads = Loads(self._states, self._observe)
        self._interval = snapshot_interval_ps
        self._replica = [NOT_ROUTED] * len(jobs)
        self._queue = None if front is None else FairQueue(front.policy)
        self._cancel_ps: list[int] = jobs.cancel_ps.tolist()
        self._waiting_cancels: list[tuple[int, int]] = []
        self._least_ps = [state.batch_table[1] for state in self._states]
        self._output: list[int] = jobs.output_tokens.tolist()
        self._total = (jobs.input_tokens + jobs.output_tokens).tolist()

    def run(self, progress: Callable[[int], None] | None = None) -> FleetResult:
        """Return how every job ended. Raises OverflowError beyond the range of times.

        After the last arrival `progress` hears, again and again, how many jobs are still there.
        """
        # A job's entry is set anew once it goes to a replica, when its arrival has been read.
        arrivals = self._shared.arrival
        order = np.argsort(self._jobs.arrival_ps, kind="stable").tolist()
        next_snapshot = 0 if self._interval is not None else MAX_PS
        heap, loads, route, waits = self._heap, self._loads, self._route, self._waiting_cancels
        arrive, submit = self._arrive, self._submit
        for job in order:
            now = arrivals[job]
            while next_snapshot <= now:
                self._advance(next_snapshot)
                loads.take_snapshots()
                next_snapshot += self._interval or MAX_PS
            if heap[0][0] <= now or waits:
                self._advance(now)
            loads.now_ps = now
            if self._total[job] > self._largest:
                self._end(job, REFUSED, now)
            elif self._queue is None:
                submit(job, route(job, loads), now)
            else:
                arrive(job, now)
        del order
        if progress is not None:
            self._drain(progress)
        self._advance(MAX_PS - 1)
        if any(self._loads.outstanding) or self._queue:
            raise beyond_time()
        for run in self._runs:
            run(OBSERVE)
        if progress is not None:
            progress(0)
        return FleetResult(
            jobs=collect(self._shared, self._jobs),
            replica=np.array(self._replica, np.int32),
            iterations=tuple(_taken_log(state) for state in self._states),
        )

    def _advance(self, now: int) -> None:
        """Handle all that happens at the replicas and in the queue up to and including `now`."""
        heap, due, cancels, queue = self._heap, self._due, self._waiting_cancels, self._queue
        runs, endings, outstanding = self._runs, self._endings, self._loads.outstanding
        while True:
            at, replica = heap[0]
            if cancels and cancels[0][0] < at and cancels[0][0] <= now:
                self._cancel_waiting()
            elif at > now:
                break
            elif due[replica] != at:
                heappop(heap)
            else:
                # With a queue in front, what ends makes room at that very moment.
                due[replica] = planned = runs[replica](now if queue is None else at)
                heapreplace(heap, (planned, replica))
                if endings[replica]:
                    outstanding[replica] -= len(endings[replica])
                    endings[replica].clear()
                if queue:
                    self._loads.now_ps = at
                    self._dispatch(at)
        self._loads.now_ps = now

    def _drain(self, progress: Callable[[int], None]) -> None:
        """Run on in steps of a hundredth of the time so far: not many, however long it takes."""
        while left := sum(self._loads.outstanding):
            now = self._loads.now_ps + max(DRAIN_STEP_PS, self._loads.now_ps // 100)
            if now >= MAX_PS:
                return
            progress(left)
            self._advance(now)

    def _observe(self, replica: int, now: int) -> None:
        """Bring a replica's state up to `now`, by when nobody can have ended there."""
        self._due[replica] = planned = self._runs[replica](now)
        heappush(self._heap, (planned, replica))
        self._runs[replica](OBSERVE)

    def _arrive(self, job: int, now: int) -> None:
        """Let a job queue up in front of the replicas, and go on to one that has room."""
        front, queue = self._front, self._queue
        assert front is not None and queue is not None  # noqa: S101 - only called with both
        shed = queue.offer(
            Waiting(
                item=job,
                tenant=front.tenants[job],
                rank=front.ranks[job],
                tokens=self._total[job],
                enqueued_ps=now,
            )
        )
        if self._cancel_ps[job] >= 0:
            heappush(self._waiting_cancels, (max(now, self._cancel_ps[job]), job))
        self._dispatch(now)
        for waiting in shed:
            self._end(int(waiting.item), SHED, now)

    def _dispatch(self, now: int) -> None:
        front, queue, outstanding = self._front, self._queue, self._loads.outstanding
        assert front is not None and queue is not None  # noqa: S101 - only called with both
        while len(queue) and min(outstanding) < front.max_outstanding:
            waiting = queue.take(now)
            assert waiting is not None  # noqa: S101 - it is not empty
            job = int(waiting.item)
            self._submit(job, self._route(job, self._loads), now)

    def _cancel_waiting(self) -> None:
        at, job = heappop(self._waiting_cancels)
        if self._queue is not None and self._queue.remove(job):
            self._end(job, CANCELLED, at)

    def _submit(self, job: int, replica: int | None, now: int) -> None:
        if replica is None:
            self._end(job, SHED, now)
            return
        if self._total[job] > self._servable[replica]:
            self._end(job, REFUSED, now)
            return
        state, cancel, loads = self._states[replica], self._cancel_ps[job], self._loads
        state.arrival[job] = now
        state.pending.append(job)
        self._replica[job] = replica
        loads.outstanding[replica] += 1
        loads.submitted[replica] += 1
        # Until something can end there, the replica needn't know of the job, unless another
        # might have to give way for it and the rest would be done sooner.
        state.room -= state.final_blocks[job]
        due = now + self._output[job] * self._least_ps[replica] if state.room >= 0 else now + 1
        if cancel >= 0:
            heappush(state.cancels, (max(now, cancel), job, job))
            due = min(due, max(now + 1, cancel))
        if due < self._due[replica]:
            self._due[replica] = due
            heappush(self._heap, (due, replica))

    def _end(self, job: int, outcome: int, now: int) -> None:
        self._shared.done[job] = now
        self._shared.outcome[job] = outcome


def _taken_log(state: ReplicaState) -> IterationLog:
    """Return the iterations of a state that won't run on, and keep no second copy of them."""
    log = iteration_log(state)
    del state.log_store[:]
    return log


def _started(state: ReplicaState) -> Generator[int, int, None]:
    core = pacing(state)
    next(core)
    return core


SHARED_COLUMNS = (
    *("arrival", "length", "remaining", "priority", "serial", "hashes", "outcome", "runs"),
    *("scheduled", "first_token", "done", "admission", "done_iteration", "cached"),
    *("computed", "blocks", "tracked", "preemptions"),
)


def _sharing(
    shared: ReplicaState, jobs: JobArrays, config: ReplicaConfig, model: TimeModel
) -> ReplicaState:
    """Return a replica's state whose job columns are those of `shared`: a job runs in one."""
    state = ReplicaState(config, model)
    for column in SHARED_COLUMNS:
        setattr(state, column, getattr(shared, column))
    same_blocks = config.block_tokens == shared.config.block_tokens
    state.final_blocks = shared.final_blocks if same_blocks else final_blocks(jobs, config)
    return state
