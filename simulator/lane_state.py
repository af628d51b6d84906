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

NO_END = np.int64(MAX_PS)
BoolArray = NDArray[np.bool_]


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
        self.scheduled, self.first_token, self.done = (
            np.full(len(self.arrival), NEVER, np.int64) for _ in range(3)
        )
        configs = [config for _, config, _ in lanes]
        models = [model for _, _, model in lanes]
        self.usable = np.array([config.usable_blocks for config in configs], np.int64)
        self.watermark = np.array([config.watermark_blocks for config in configs], np.int64)
        self.block_tokens = np.array([config.block_tokens for config in configs], np.int64)
        self.max_tokens = np.array([c.max_num_batched_tokens for c in configs], np.int64)
        self.max_seqs = np.array([config.max_num_seqs for config in configs], np.int64)
        self.chunked = np.array([config.chunked_prefill for config in configs], bool)
        self.whole_must_fit = np.array([c.full_sequence_must_fit for c in configs], bool)
        self.per_decode = np.array([model.per_decode_ps for model in models], np.int64)
        self.per_context = np.array([model.per_context_token_ps for model in models], np.int64)
        self.per_pair = np.array([model.per_attention_pair_ps for model in models], np.int64)
        self.mixed = np.array([model.mixed_ps for model in models], np.int64)
        longest = int(self.max_tokens.max())
        tables = {model: number for number, model in enumerate(dict.fromkeys(models))}
        self.table_of = np.array([tables[model] for model in models], np.int64)
        self.tables = np.array([model.batch_table(longest) for model in tables], np.int64)


@dataclass(slots=True, kw_only=True)
class LaneState:
    """The running lanes, a row each; `lane` says which. Rows that `stopped` are kept for a while.

    `ends` and `jobs` have shape (rows, seats): the last iteration and the job of each decode in
    the first `decodes` columns, NO_END beyond. `growth` has shape (rows, block tokens).
    """

    lane: Int64Array
    stopped: BoolArray
    now: Int64Array
    iteration: Int64Array
    head: Int64Array
    decodes: Int64Array
    offset_sum: Int64Array
    decode_blocks: Int64Array
    fixed: Int64Array
    committed: Int64Array
    partial: BoolArray
    computed: Int64Array
    blocks: Int64Array
    next_end: Int64Array
    growth: Int64Array
    ends: Int64Array
    jobs: Int64Array

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
        block_tokens = lanes.block_tokens[self.lane[at]]
        whole, rest = np.divmod(iteration, block_tokens)
        residue = np.arange(self.growth.shape[1])
        over = residue >= (block_tokens - rest)[:, None]
        grown = (self.growth[at] * over).sum(axis=1)
        used: Int64Array = (
            self.fixed[at] + self.decode_blocks[at] + self.decodes[at] * whole + grown
        )
        return used

    def enter(self, lanes: Lanes, at: Int64Array, first: Int64Array, count: Int64Array) -> None:
        """Let `count` jobs from `first` on, of the rows `at`, emit a token and decode from here."""
        some = count > 0
        if not some.all():
            at, first, count = at[some], first[some], count[some]
        if not len(at):
            return
        row = np.repeat(at, count)
        job = ranges(first, count)
        seat = ranges(self.decodes[at], count)
        if int(seat.max()) >= self.ends.shape[1]:
            self._widen(int(seat.max()) + 1)
        lanes.first_token[job] = self.now[row]
        last = self.iteration[row] + lanes.output[job] - 1
        offset = lanes.input[job] - self.iteration[row]
        block_tokens = lanes.block_tokens[self.lane[row]]
        raised = offset + block_tokens - 1
        self.ends[row, seat] = last
        self.jobs[row, seat] = job
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        self.offset_sum[at] += np.add.reduceat(offset, starts)
        self.decode_blocks[at] += np.add.reduceat(raised // block_tokens, starts)
        self.next_end[at] = np.minimum(self.next_end[at], np.minimum.reduceat(last, starts))
        np.add.at(self.growth, (row, raised % block_tokens), 1)
        self.decodes[at] += count

    def complete(self, lanes: Lanes, at: Int64Array) -> None:
        """Let the decodes of the rows `at` whose last iteration this was end, and leave."""
        at = at[self.next_end[at] <= self.iteration[at]]
        width = int(self.decodes[at].max(initial=0))
        while len(at):
            seat = self.ends[at, :width].argmin(axis=1)
            job = self.jobs[at, seat]
            lanes.done[job] = self.now[at]
            offset = lanes.input[job] + lanes.output[job] - 1 - self.iteration[at]
            block_tokens = lanes.block_tokens[self.lane[at]]
            raised = offset + block_tokens - 1
            self.offset_sum[at] -= offset
            self.decode_blocks[at] -= raised // block_tokens
            self.growth[at, raised % block_tokens] -= 1
            self.committed[at] -= lanes.final_blocks[job]
            last = self.decodes[at] - 1
            self.decodes[at] = last
            self.ends[at, seat] = self.ends[at, last]
            self.jobs[at, seat] = self.jobs[at, last]
            self.ends[at, last] = NO_END
            self.next_end[at] = self.ends[at, :width].min(axis=1)
            at = at[self.next_end[at] <= self.iteration[at]]

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
        if field.name not in ("stopped", "partial", "growth", "ends", "jobs")
    }
    zeros["lane"] = np.arange(count)
    zeros["head"] = lanes.begin[:-1].astype(np.int64)
    zeros["next_end"] = np.full(count, NO_END)
    state = LaneState(
        stopped=np.zeros(count, bool),
        partial=np.zeros(count, bool),
        growth=np.zeros((count, int(lanes.block_tokens.max())), np.int64),
        ends=np.full((count, 16), NO_END),
        jobs=np.zeros((count, 16), np.int64),
        **zeros,
    )
    state.keep(~state.over(lanes))
    return state


def ranges(begins: Int64Array, counts: Int64Array) -> Int64Array:
    """Return begin, begin + 1 .. for each count, one after the other."""
    starts = np.cumsum(counts) - counts
    ranges: Int64Array = np.repeat(begins - starts, counts) + np.arange(int(counts.sum()))
    return ranges
