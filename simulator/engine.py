"""One replica, driven event by event: by the clock as live backend, or in virtual time.

The same engine runs whole traces at full speed in batch.py. Semantics: SCHEDULING in
scheduler.py; sources SIM-1, SCH-1, SCH-2.
"""

from collections import deque
from heapq import heappop, heappush

import numpy as np

from simulator.gaps import Durations
from simulator.iterations import (
    Int64Array,
    log_of_rows,
    rows_of_iterations,
    token_times_ps,
)
from simulator.scheduler import OUTCOMES, Finished, Job, ReplicaConfig, Snapshot
from simulator.snapshots import RATE_WINDOW_PS, observe, steps_elapsed
from simulator.state import COMPLETED, LOG_CHUNK, LOG_WIDTH, NEVER, NO_MORE, ReplicaState
from simulator.stepping import stepping
from simulator.timing import MAX_PS, TimeModel, beyond_time, stretch_ps


class Replica:
    """A simulated replica; `now_ps` is how far it has been run, and nothing may come before it.

    With `retain_finished`, only so many ended jobs stay known, and memory stays bounded; without
    it, everything does.
    """

    def __init__(
        self, config: ReplicaConfig, model: TimeModel, *, retain_finished: int | None = None
    ) -> None:
        self.config, self.model = config, model
        self.now_ps = 0
        self.submitted = self.cancels_asked = self.ended = self._changes_before = 0
        self._state = ReplicaState(config, model)
        self._state.drops_lazily = False
        self._serials: list[int] = []
        self._state.serial = self._serials
        self._core = stepping(self._state)
        next(self._core)
        self._retain = retain_finished
        self._jobs: list[Job] = []
        self._slots: dict[int | str, int] = {}
        self._spare: list[int] = []
        self._retained: deque[int] = deque()
        self._refused: list[tuple[int, int, Job]] = []
        self._finished: list[Finished] = []
        self._changed_ps = NO_MORE
        self._log_limit = 4 * LOG_CHUNK
        self._durations = Durations()

    def renewed(self) -> "Replica":
        """Return an empty replica of this one's kind at 0 ps, whose snapshots follow this one's."""
        fresh = Replica(self.config, self.model, retain_finished=self._retain)
        fresh._changes_before = self.snapshot(self.now_ps).revision + 1
        return fresh

    @property
    def outstanding(self) -> int:
        """Jobs submitted that have not ended by `now_ps`: the usual measure of load."""
        return self.submitted - self.ended

    def submit(self, job: Job) -> None:
        """Take a job that arrives at `now_ps` or later; ties in time keep the order of calls.

        Raises ValueError where the arrival has passed or the id is still known.
        """
        if job.arrival_ps < self.now_ps:
            raise ValueError(f"job {job.job_id} arrives before {self.now_ps} ps")
        if job.job_id in self._slots:
            raise ValueError(f"job {job.job_id} is already known")
        self.submitted += 1
        self._changed_ps = min(self._changed_ps, job.arrival_ps)
        if job.input_tokens + job.output_tokens > self.config.max_servable_tokens:
            heappush(self._refused, (job.arrival_ps, self.submitted, job))
            return
        slot = self._place(job)
        pending, arrival = self._state.pending, self._state.arrival
        index = len(pending)
        while index and arrival[pending[index - 1]] > job.arrival_ps:
            index -= 1
        pending.insert(index, slot)
        if job.cancel_ps is not None:
            self.cancel(job.job_id, max(job.cancel_ps, job.arrival_ps))

    def cancel(self, job_id: int | str, at_ps: int) -> bool:
        """Ask that a job be cancelled at the first iteration boundary at or after `at_ps`.

        Returns whether there is anything left to cancel; it may still complete before that
        boundary. Raises ValueError where `at_ps` has passed.
        """
        if at_ps < self.now_ps:
            raise ValueError(f"a cancel at {at_ps} ps comes before {self.now_ps} ps")
        slot = self._slots.get(job_id)
        if slot is None or self._state.done[slot] >= 0:
            return False
        due_ps = max(at_ps, self._state.arrival[slot])
        heappush(self._state.cancels, (due_ps, self._serials[slot], slot))
        self.cancels_asked += 1
        self._changed_ps = min(self._changed_ps, due_ps)
        return True

    def advance_to(self, t_ps: int) -> list[Finished]:
        """Return the jobs that ended up to and including `t_ps`, in the order of their ends.

        An iteration that would start at `t_ps` has not been scheduled yet, so arrivals and
        cancels of that very moment may still be handed in. Raises ValueError on going back,
        OverflowError from MAX_PS on.
        """
        self._run(t_ps)
        finished, self._finished = self._finished, []
        return finished

    def next_event_ps(self) -> int | None:
        """Return a time after `now_ps` before which no job ends; None where none is left.

        It is a bound: a job may end later, and advancing to it always makes progress. What was
        handed in for `now_ps` itself may be refused or cancelled at that very moment.
        """
        return self._bounded(self._state.planned_end)

    def next_token_ps(self) -> int | None:
        """Return a time after `now_ps` before which no job ends or emits a token, or None."""
        state = self._state
        if state.planned_end is None or state.in_flight:
            return self._bounded(state.planned_end)
        step = self._steps_elapsed() + 1
        return self._bounded(state.now + stretch_ps(step, state.planned_a, state.planned_b))

    def progress(self, job_id: int | str) -> int:
        """Return how many tokens the job has emitted by `now_ps`; KeyError if it isn't known."""
        slot, state = self._slots[job_id], self._state
        if state.done[slot] >= 0 and state.outcome[slot] == COMPLETED:
            return self._jobs[slot].output_tokens
        emitted = self._jobs[slot].output_tokens - state.remaining[slot]
        if state.done_iteration[slot] >= 0:
            emitted += state.emitted_in_run(slot, state.iteration + self._steps_elapsed())
        return emitted

    def running_progress(self) -> list[tuple[int | str, int]]:
        """Return (job id, tokens emitted by `now_ps`) of every job that is decoding."""
        state, jobs = self._state, self._jobs
        iteration = state.iteration + self._steps_elapsed()
        return [
            (jobs[slot].job_id, jobs[slot].output_tokens - (state.done_iteration[slot] - iteration))
            for slot in state.running.values()
            if state.done_iteration[slot] >= 0
        ]

    def token_times_ps(self, job_id: int | str) -> Int64Array:
        """Return when each token that the job has emitted by `now_ps` was, in ps, exact.

        Raises KeyError where the job isn't known (refused ones never are).
        """
        slot, state = self._slots[job_id], self._state
        runs = list(state.runs.get(slot, []))
        last = state.done_iteration[slot]
        if last >= 0:
            first = last - state.remaining[slot] + 1
            runs.append((first, min(state.iteration + self._steps_elapsed(), last) - first + 1))
        if not runs:
            return np.empty(0, np.int64)
        state.flush_log()
        first, last = runs[0][0], runs[-1][0] + runs[-1][1] - 1
        rows = rows_of_iterations(state.log_store, first, min(last, state.iteration))
        if last > state.iteration:
            rows.extend(
                (
                    state.iteration,
                    state.now,
                    last - state.iteration,
                    state.planned_a,
                    state.planned_b,
                    state.decodes,
                )
            )
        return token_times_ps(log_of_rows(rows), runs)

    def inter_token_ps(self, job_id: int | str) -> Int64Array:
        """Return the gaps between the tokens that the job has emitted by `now_ps`, in ps, exact.

        They are the differences of `token_times_ps`, at a fraction of the work. Raises KeyError
        as that does.
        """
        slot, state = self._slots[job_id], self._state
        last = state.done_iteration[slot]
        if not 0 <= last <= state.iteration or slot in state.runs:
            return np.diff(self.token_times_ps(job_id))  # it runs, or was preempted
        state.flush_log()
        return self._durations.of(state.log_store, last - state.remaining[slot] + 2, last)

    def snapshot(self, t_ps: int) -> Snapshot:
        """Return the load at `t_ps`, running up to it; who ends until then is reported later.

        Waiting tokens are those to be computed before a first or next token. Held and free KV
        add up to the usable pool, whole blocks each. Raises ValueError on going back.
        """
        self._run(t_ps)
        changes = self.submitted + self.cancels_asked + self.ended
        return observe(self._state, t_ps, self._changes_before + changes)

    def run_to(self, t_ps: int) -> None:
        """Run up to `t_ps`; who ends until then is reported later. ValueError on going back."""
        self._run(t_ps)

    def _place(self, job: Job) -> int:
        state = self._state
        final_blocks = -(-(job.input_tokens + job.output_tokens - 1) // self.config.block_tokens)
        if self._spare:
            slot = self._spare.pop()
            state.reset(slot)
            state.runs.pop(slot, None)
            self._jobs[slot], self._serials[slot] = job, self.submitted
            state.arrival[slot], state.length[slot] = job.arrival_ps, job.input_tokens
            state.remaining[slot], state.final_blocks[slot] = job.output_tokens, final_blocks
            state.priority[slot], state.hashes[slot] = job.priority, job.block_hashes
        else:
            slot = len(self._jobs)
            state.grow(1)
            self._jobs.append(job)
            self._serials.append(self.submitted)
            state.arrival.append(job.arrival_ps)
            state.length.append(job.input_tokens)
            state.remaining.append(job.output_tokens)
            state.final_blocks.append(final_blocks)
            state.priority.append(job.priority)
            state.hashes.append(job.block_hashes)
        self._slots[job.job_id] = slot
        return slot

    def _run(self, t_ps: int) -> None:
        if t_ps >= MAX_PS:
            raise beyond_time()
        if t_ps < self.now_ps:
            raise ValueError(f"{t_ps} ps comes before {self.now_ps} ps")
        self._core.send(t_ps)
        self.now_ps = t_ps
        if self._changed_ps <= t_ps:
            self._changed_ps = NO_MORE
        state = self._state
        finished = [self._finished_job(slot) for slot in state.ended]
        self._retained.extend(state.ended)
        state.ended.clear()
        if self._refused and self._refused[0][0] <= t_ps:
            while self._refused and self._refused[0][0] <= t_ps:
                finished.append(_refused(heappop(self._refused)[2]))
            finished.sort(key=lambda end: end.done_ps)
        self.ended += len(finished)
        self._finished += finished
        if self._retain is not None:
            self._forget_old(self._retain)

    def _finished_job(self, slot: int) -> Finished:
        state, job = self._state, self._jobs[slot]
        outcome = state.outcome[slot]
        unemitted = 0 if outcome == COMPLETED else state.remaining[slot]
        return Finished(
            job_id=job.job_id,
            outcome=OUTCOMES[outcome],
            arrival_ps=job.arrival_ps,
            scheduled_ps=_reached(state.scheduled[slot]),
            first_token_ps=_reached(state.first_token[slot]),
            done_ps=state.done[slot],
            output_tokens=job.output_tokens - unemitted,
            cached_tokens=state.cached[slot],
            preemptions=state.preemptions[slot],
        )

    def _bounded(self, planned_ps: int | None) -> int | None:
        """Return the earliest of a plan and of what was handed in since, but after `now_ps`."""
        state = self._state
        candidates = [self._changed_ps]
        if planned_ps is not None:
            candidates.append(planned_ps)
        elif state.running or state.queue or state.urgent:
            candidates.append(self.now_ps)
        elif state.pending:
            candidates.append(state.arrival[state.pending[0]])
        if self._refused:
            candidates.append(self._refused[0][0])
        earliest = min(candidates)
        return None if earliest == NO_MORE else max(earliest, self.now_ps + 1)

    def _steps_elapsed(self) -> int:
        return steps_elapsed(self._state, self.now_ps)

    def _forget_old(self, retain: int) -> None:
        """Free the slots of ended jobs, save the last `retain`, and drop iterations of theirs."""
        while len(self._retained) > retain:
            slot = self._retained.popleft()
            del self._slots[self._jobs[slot].job_id]
            self._spare.append(slot)
        state = self._state
        if len(state.log_store) > self._log_limit:
            firsts = [state.iteration + 1]
            for slot in self._slots.values():
                if slot in state.runs:
                    firsts.append(state.runs[slot][0][0])
                elif state.done_iteration[slot] >= 0:
                    firsts.append(state.done_iteration[slot] - state.remaining[slot] + 1)
            self._durations.forget_before(min(firsts))
            kept = rows_of_iterations(state.log_store, min(firsts), state.iteration)
            window_ps = self.now_ps - RATE_WINDOW_PS
            row = len(state.log_store) - len(kept)
            while row and state.log_store[row + 1 - LOG_WIDTH] > window_ps:
                row -= LOG_WIDTH
            del state.log_store[:row]
            self._log_limit = max(4 * LOG_CHUNK, 2 * len(state.log_store))


def _reached(time_ps: int) -> int | None:
    return None if time_ps == NEVER else time_ps


def _refused(job: Job) -> Finished:
    return Finished(
        job_id=job.job_id,
        outcome="refused",
        arrival_ps=job.arrival_ps,
        scheduled_ps=None,
        first_token_ps=None,
        done_ps=job.arrival_ps,
        output_tokens=0,
        cached_tokens=0,
        preemptions=0,
    )
