"""What the numpy lanes keep: jobs and parameters by lane, and the state of those still running.

Under first come first served, without preemption, what waits in a lane is a range of its jobs:
`head` is the next to be admitted. Semantics as in state.py, a row a lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from simulator.batch import JobArrays
from simulator.iterations import Int64Array
from simulator.scheduler import ReplicaConfig
from simulator.state import NEVER
from simulator.timing import MAX_PS, TimeModel

NO_END = np.iinfo(np.int32).max
BoolArray = NDArray[np.bool_]


class PerLane:
    """A parameter by lane; where all lanes share it, indexing gives that one value, unindexed."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = np.array(values, np.int64)
        uniform = bool((self.values == self.values[:1]).all())
        self._shared = np.int64(self.values[0]) if uniform else None

    def __getitem__(self, lanes: Int64Array) -> Int64Array | np.int64:
        """Return the values of these lanes: an array as long as `lanes`, or one that broadcasts."""
        if self._shared is not None:
            return self._shared
        values: Int64Array = self.values[lanes]
        return values


class Lanes:
    """Jobs of all lanes one after the other, in order of arrival, and each lane's parameters.

    After a lane's last job stands one that never arrives. `order[lane]` are the positions in
    submission order of the jobs that can be served.
    """

    def __init__(self, lanes: Sequence[tuple[JobArrays, ReplicaConfig, TimeModel]]) -> None:
        self.order: list[Int64Array] = []
        arrivals, inputs, outputs, finals = [], [], [], []
        for jobs, config, _ in lanes:
            total = jobs.input_tokens + jobs.output_tokens
            order = np.argsort(jobs.arrival_ps, kind="stable")
            order = order[total[order] <= config.max_servable_tokens]
            self.order.append(order)
            arrivals.append(np.append(jobs.arrival_ps[order], MAX_PS))
            inputs.append(np.append(jobs.input_tokens[order], 1))
            outputs.append(np.append(jobs.output_tokens[order], 1))
            finals.append(np.append(-(-(total[order] - 1) // config.block_tokens), 1))
        self.begin = np.concatenate([[0], np.cumsum([len(order) + 1 for order in self.order])])
        self.arrival = np.concatenate(arrivals).astype(np.int64)
        self.input = np.concatenate(inputs).astype(np.int64)
        self.output = np.concatenate(outputs).astype(np.int64)
        self.final_blocks = np.concatenate(finals).astype(np.int64)
        self.final_tokens = self.input + self.output - 1
        self.scheduled, self.first_token, self.done = (
            np.full(len(self.arrival), NEVER, np.int64) for _ in range(3)
        )
        configs = [config for _, config, _ in lanes]
        models = [model for _, _, model in lanes]
        self.usable = PerLane([config.usable_blocks for config in configs])
        self.admissible = PerLane([c.usable_blocks - c.watermark_blocks for c in configs])
        self.block_tokens = PerLane([config.block_tokens for config in configs])
        self.max_tokens = PerLane([config.max_num_batched_tokens for config in configs])
        self.max_seqs = PerLane([config.max_num_seqs for config in configs])
        self.chunked = PerLane([config.chunked_prefill for config in configs])
        self.whole_must_fit = PerLane([config.full_sequence_must_fit for config in configs])
        self.per_decode = PerLane([model.per_decode_ps for model in models])
        self.per_context = PerLane([model.per_context_token_ps for model in models])
        self.per_pair = PerLane([model.per_attention_pair_ps for model in models])
        self.mixed = PerLane([model.mixed_ps for model in models])
        longest = int(self.max_tokens.values.max())
        tables = {model: number for number, model in enumerate(dict.fromkeys(models))}
        self.table_of = PerLane([tables[model] for model in models])
        self.tables = np.array([model.batch_table(longest) for model in tables], np.int64)


@dataclass(slots=True, kw_only=True)
class LaneState:
    """The running lanes, a row each; `lane` says which. Rows that `stopped` are kept for a while.

    `ends` and `jobs` have shape (rows, seats): the last iteration and the job of each decode in
    the first `decodes` columns, NO_END beyond; the first to end sits in `next_seat`.
    """

    lane: Int64Array
    stopped: BoolArray
    now: Int64Array
    iteration: Int64Array
    head: Int64Array
    decodes: Int64Array
    offset_sum: Int64Array
    fixed: Int64Array
    committed: Int64Array
    partial: BoolArray
    computed: Int64Array
    blocks: Int64Array
    next_end: Int64Array
    next_seat: Int64Array
    ends: NDArray[np.int32]
    jobs: NDArray[np.int32]

    def keep(self, rows: BoolArray) -> None:
        """Drop all rows but these."""
        for name in (field.name for field in fields(self)):
            setattr(self, name, getattr(self, name)[rows])

    def over(self, lanes: Lanes) -> BoolArray:
        """Return which rows have run out of jobs."""
        empty = (self.decodes == 0) & ~self.partial
        result: BoolArray = empty & (lanes.arrival[self.head] == MAX_PS)
        return result

    def used_blocks(self, lanes: Lanes, at: Int64Array, iteration: Int64Array) -> Int64Array:
        """Return the blocks held by decodes and partly prefilled once so many iterations ran."""
        width = int(self.decodes[at].max(initial=0))
        job, ends = self.jobs[at, :width], self.ends[at, :width]
        steps_left = np.where(ends == NO_END, 0, ends - iteration[:, None])
        computed = lanes.final_tokens[job] - steps_left
        block_tokens = np.broadcast_to(lanes.block_tokens[self.lane[at]], len(at))[:, None]
        held = -(-computed // block_tokens)
        used: Int64Array = self.fixed[at] + np.where(ends == NO_END, 0, held).sum(axis=1)
        return used

    def enter(self, lanes: Lanes, at: Int64Array, first: Int64Array, count: Int64Array) -> None:
        """Let `count` jobs from `first` on, of the rows `at`, emit a token and decode from here."""
        some = count > 0
        if not some.all():
            at, first, count = at[some], first[some], count[some]
        if not len(at):
            return
        alone = int(count.max()) == 1
        row = at if alone else np.repeat(at, count)
        job = first if alone else ranges(first, count)
        seat = self.decodes[at] if alone else ranges(self.decodes[at], count)
        if int(seat.max()) >= self.ends.shape[1]:
            self._widen(int(seat.max()) + 1)
        lanes.first_token[job] = self.now[row]
        last = self.iteration[row] + lanes.output[job] - 1
        offset = lanes.input[job] - self.iteration[row]
        self.ends[row, seat] = last
        self.jobs[row, seat] = job
        if alone:
            self.offset_sum[at] += offset
        else:
            self.offset_sum[at] += np.add.reduceat(offset, np.cumsum(count) - count)
        if alone:
            sooner = last < self.next_end[at]
            self.next_end[at[sooner]] = last[sooner]
            self.next_seat[at[sooner]] = seat[sooner]
        else:
            taken = self.ends[:, : int(seat.max()) + 1][at]
            first_seat = taken.argmin(axis=1)
            self.next_seat[at] = first_seat
            self.next_end[at] = taken[np.arange(len(at)), first_seat]
        self.decodes[at] += count

    def complete(self, lanes: Lanes, at: Int64Array) -> None:
        """Let the decodes of the rows `at` whose last iteration this was end, and leave."""
        at = at[self.next_end[at] <= self.iteration[at]]
        ends, jobs = self.ends, self.jobs
        while len(at):
            seat, iteration = self.next_seat[at], self.iteration[at]
            job, last = jobs[at, seat], self.decodes[at] - 1
            lanes.done[job] = self.now[at]
            self.offset_sum[at] -= lanes.final_tokens[job] - iteration
            self.committed[at] -= lanes.final_blocks[job]
            self.decodes[at] = last
            ends[at, seat] = ends[at, last]
            jobs[at, seat] = jobs[at, last]
            ends[at, last] = NO_END
            taken = ends[:, : int(last.max()) + 1][at]
            seat = taken.argmin(axis=1)
            next_end = taken[np.arange(len(at)), seat]
            self.next_seat[at], self.next_end[at] = seat, next_end
            at = at[next_end <= iteration]

    def _widen(self, seats: int) -> None:
        more = max(seats, 2 * self.ends.shape[1]) - self.ends.shape[1]
        self.ends = np.pad(self.ends, ((0, 0), (0, more)), constant_values=NO_END)
        self.jobs = np.pad(self.jobs, ((0, 0), (0, more)))


def lane_state(lanes: Lanes) -> LaneState:
    """Return the state of all lanes before their first arrival."""
    count = len(lanes.order)
    zeros = {
        field.name: np.zeros(count, np.int64)
        for field in fields(LaneState)
        if field.name not in ("stopped", "partial", "ends", "jobs")
    }
    zeros["lane"] = np.arange(count)
    zeros["head"] = lanes.begin[:-1].astype(np.int64)
    zeros["next_end"] = np.full(count, NO_END)
    state = LaneState(
        stopped=np.zeros(count, bool),
        partial=np.zeros(count, bool),
        ends=np.full((count, 16), NO_END, np.int32),
        jobs=np.zeros((count, 16), np.int32),
        **zeros,
    )
    state.keep(~state.over(lanes))
    return state


def ranges(begins: Int64Array, counts: Int64Array) -> Int64Array:
    """Return begin, begin + 1 .. for each count, one after the other."""
    starts = np.cumsum(counts) - counts
    ranges: Int64Array = np.repeat(begins - starts, counts) + np.arange(int(counts.sum()))
    return ranges
