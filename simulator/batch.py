"""Whole traces at full speed: arrays of jobs in, arrays of times out (SIM-1)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.iterations import (
    Int64Array,
    IterationLog,
    inter_token_parts,
    log_of_rows,
    token_times_ps,
)
from simulator.leaping import is_plain, leap
from simulator.scheduler import MAX_JOB_TOKENS, Job, ReplicaConfig
from simulator.state import COMPLETED, NEVER, NO_HASHES, REFUSED, ReplicaState, ints_of
from simulator.striding import OBSERVE, pacing
from simulator.timing import MAX_PS, MAX_PS_TEXT, TimeModel, beyond_time

PROGRESS_SLICES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class JobArrays:
    """A workload as columns of equal length, in submission order; ties in time keep that order.

    `cancel_ps` is NEVER (-1) where nobody cancels. `block_hashes` has one tuple a job, see
    scheduler.Job. Raises ValueError on unequal lengths, on another type than int64 and on values
    that a Job refuses.
    """

    arrival_ps: Int64Array
    input_tokens: Int64Array
    output_tokens: Int64Array
    priority: Int64Array
    cancel_ps: Int64Array
    block_hashes: Sequence[tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        columns = (
            self.arrival_ps,
            self.input_tokens,
            self.output_tokens,
            self.priority,
            self.cancel_ps,
        )
        count = len(self.arrival_ps)
        if any(column.dtype != np.int64 for column in columns):
            raise ValueError("the columns of a workload are int64: make them with job_arrays")
        if any(column.shape != (count,) for column in columns):
            raise ValueError("the columns of a workload must be equally long")
        if self.block_hashes is not None and len(self.block_hashes) != count:
            raise ValueError("a workload needs one tuple of block hashes a job")
        if not count:
            return
        if int(self.arrival_ps.min()) < 0:
            raise ValueError("arrival_ps may not be negative")
        if int(self.arrival_ps.max()) >= MAX_PS:
            raise ValueError(f"arrival_ps may not reach {MAX_PS_TEXT}")
        if int(self.cancel_ps.min()) < NEVER:
            raise ValueError(f"cancel_ps may not be negative, but for {NEVER}: nobody cancels")
        if min(int(self.input_tokens.min()), int(self.output_tokens.min())) < 1:
            raise ValueError("a job has at least one input and one output token")
        longest = max(int(self.input_tokens.max()), int(self.output_tokens.max()))
        if (
            longest > MAX_JOB_TOKENS  # its sum might not be an int64
            or int((self.input_tokens + self.output_tokens).max()) > MAX_JOB_TOKENS
        ):
            raise ValueError(f"a job has at most {MAX_JOB_TOKENS} tokens")

    def __len__(self) -> int:
        return len(self.arrival_ps)


def job_arrays(
    arrival_ps: ArrayLike,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    *,
    priority: ArrayLike | None = None,
    cancel_ps: ArrayLike | None = None,
    block_hashes: Sequence[tuple[int, ...]] | None = None,
) -> JobArrays:
    """Return a workload from anything array-like; what is left out is priority 0, no cancel.

    Raises ValueError for what is no whole number of int64, and as JobArrays does.
    """
    arrivals = _whole(arrival_ps)
    return JobArrays(
        arrival_ps=arrivals,
        input_tokens=_whole(input_tokens),
        output_tokens=_whole(output_tokens),
        priority=np.zeros(len(arrivals), np.int64) if priority is None else _whole(priority),
        cancel_ps=np.full(len(arrivals), NEVER, np.int64)
        if cancel_ps is None
        else _whole(cancel_ps),
        block_hashes=block_hashes,
    )


def _whole(values: ArrayLike) -> Int64Array:
    """Return them as int64, where that says the same: it would wrap around or round else."""
    given = np.asarray(values)
    if given.dtype == np.int64:
        return given
    with np.errstate(invalid="ignore"):
        whole = given.astype(np.int64) if given.dtype.kind in "iufb" else np.empty(0, np.int64)
    if not np.array_equal(whole, given):
        raise ValueError("the columns of a workload are whole numbers from -2^63 to 2^63 - 1")
    return whole


def jobs_to_arrays(jobs: Iterable[Job]) -> JobArrays:
    """Return the columns of a list of jobs; their ids become positions."""
    listed = list(jobs)
    return job_arrays(
        np.array([job.arrival_ps for job in listed], np.int64),
        np.array([job.input_tokens for job in listed], np.int64),
        np.array([job.output_tokens for job in listed], np.int64),
        priority=np.array([job.priority for job in listed], np.int64),
        cancel_ps=np.array(
            [NEVER if job.cancel_ps is None else job.cancel_ps for job in listed], np.int64
        ),
        block_hashes=[job.block_hashes for job in listed],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """One row a job in submission order; times in ps, NEVER (-1) where never reached.

    `outcome` indexes scheduler.OUTCOMES. `iterations` and the runs give every token's time.
    """

    outcome: NDArray[np.int8]
    arrival_ps: Int64Array
    scheduled_ps: Int64Array
    first_token_ps: Int64Array
    done_ps: Int64Array
    output_tokens: Int64Array
    cached_tokens: Int64Array
    preemptions: Int64Array
    iterations: IterationLog
    last_run_start: Int64Array
    earlier_runs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def runs(self, index: int) -> list[tuple[int, int]]:
        """Return the job's tokens as (first iteration, count), more than one if preempted."""
        earlier = self.earlier_runs.get(index, [])
        rest = int(self.output_tokens[index]) - sum(count for _, count in earlier)
        return [*earlier, (int(self.last_run_start[index]), rest)] if rest else list(earlier)

    def token_times_ps(self, index: int) -> Int64Array:
        """Return when each of the job's tokens was emitted, in ps."""
        return token_times_ps(self.iterations, self.runs(index))

    def inter_token_parts(self) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Yield all jobs' inter-token gaps, as (gap ps, how often): at once, those of a long run
        would take gigabytes."""
        counts = self.output_tokens.copy()
        split: list[tuple[int, int]] = []
        across: list[Int64Array] = []
        for index in self.earlier_runs:
            counts[index] = 0
            runs = self.runs(index)
            split += runs
            last = np.array([first + count - 1 for first, count in runs[:-1]])
            after = np.array([first for first, _ in runs[1:]])
            ends = [self.iterations.ends_ps(int(n), int(n))[0] for n in last]
            begins = [self.iterations.ends_ps(int(n), int(n))[0] for n in after]
            across.append(np.array(begins, np.int64) - np.array(ends, np.int64))
        whole = np.stack([self.last_run_start, counts], axis=1)[counts > 1]
        pieces = np.array(split, np.int64).reshape(-1, 2)
        yield from inter_token_parts(self.iterations, np.concatenate([whole, pieces]))
        if across:
            jumps = np.concatenate(across)
            yield jumps, np.ones(len(jumps), np.int64)


def simulate(
    jobs: JobArrays,
    config: ReplicaConfig,
    model: TimeModel,
    *,
    progress: Callable[[float], None] | None = None,
) -> SimulationResult:
    """Return how every job ends on one replica; `progress` hears the share that has arrived.

    Raises OverflowError where times leave the range of MAX_PS: rebase a longer trace.
    """
    state = load(jobs, config, model)
    if is_plain(state):
        leap(state, progress)
    else:
        core = pacing(state)
        next(core)
        if progress is not None and len(jobs):
            begin, end = int(jobs.arrival_ps.min()), int(jobs.arrival_ps.max())
            for part in range(1, PROGRESS_SLICES):
                core.send(begin + (end - begin) * part // PROGRESS_SLICES)
                progress(1.0 - len(state.pending) / len(jobs))
        core.send(MAX_PS - 1)
        core.send(OBSERVE)
        if state.running or state.pending or state.queue or state.urgent:
            raise beyond_time()
    if progress is not None:
        progress(1.0)
    return collect(state, jobs)


def load(jobs: JobArrays, config: ReplicaConfig, model: TimeModel) -> ReplicaState:
    """Return a state with all jobs pending; those that can never be served are refused."""
    state = ReplicaState(config, model)
    fill_columns(state, jobs)
    total = jobs.input_tokens + jobs.output_tokens
    served = total <= config.max_servable_tokens
    for slot in np.flatnonzero(~served).tolist():
        state.done[slot] = state.arrival[slot]
        state.outcome[slot] = REFUSED
        state.ended.append(slot)
    order = np.argsort(jobs.arrival_ps, kind="stable")
    state.pending.extend(order[served[order]].tolist())
    cancelling = np.flatnonzero((jobs.cancel_ps >= 0) & served)
    due = np.maximum(jobs.cancel_ps[cancelling], jobs.arrival_ps[cancelling])
    state.cancels = sorted(zip(due.tolist(), cancelling.tolist(), cancelling.tolist(), strict=True))
    return state


def fill_columns(state: ReplicaState, jobs: JobArrays) -> None:
    """Give an empty state one slot a job, none of them pending yet."""
    count = len(jobs)
    state.grow(count)
    state.arrival = jobs.arrival_ps.tolist()
    state.length = jobs.input_tokens.tolist()
    state.remaining = jobs.output_tokens.tolist()
    state.final_blocks = final_blocks(jobs, state.config)
    state.priority = jobs.priority.tolist()
    state.serial = range(count)
    state.hashes = [NO_HASHES] * count if jobs.block_hashes is None else list(jobs.block_hashes)


def final_blocks(jobs: JobArrays, config: ReplicaConfig) -> list[int]:
    """Return the blocks that each job holds at its end; its last token takes no slot."""
    slots = jobs.input_tokens + jobs.output_tokens - 1
    blocks: list[int] = (-(-slots // config.block_tokens)).tolist()
    return blocks


def collect(state: ReplicaState, jobs: JobArrays) -> SimulationResult:
    """Return the columns of a state in which every job has ended."""
    outcome = np.frombuffer(bytes(state.outcome), np.int8)
    last_run = ints_of(state.remaining)
    completed = outcome == COMPLETED
    return SimulationResult(
        outcome=outcome,
        arrival_ps=jobs.arrival_ps,
        scheduled_ps=ints_of(state.scheduled),
        first_token_ps=ints_of(state.first_token),
        done_ps=ints_of(state.done),
        output_tokens=jobs.output_tokens - np.where(completed, 0, last_run),
        cached_tokens=ints_of(state.cached),
        preemptions=ints_of(state.preemptions),
        iterations=iteration_log(state),
        last_run_start=ints_of(state.done_iteration) - last_run + 1,
        earlier_runs=dict(state.runs),
    )


def iteration_log(state: ReplicaState) -> IterationLog:
    """Return a copy of the iterations that `state` has kept."""
    state.flush_log()
    return log_of_rows(state.log_store)
