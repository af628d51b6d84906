"""What the numpy lanes keep: jobs and parameters by lane, and the state of those still running.

Under first come first served, without preemption, what waits in a lane is a range of its jobs:
`head` is the next to be admitted. Semantics as in state.py, a row a lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.batch import JobArrays
from simulator.iterations import Int64Array
from simulator.scheduler import ReplicaConfig
from simulator.state import NEVER
from simulator.timing import MAX_PS, TimeModel

NO_END = np.iinfo(np.int32).max
FIRST_SEATS = 16
BoolArray = NDArray[np.bool_]
ByRow = Int64Array | int
"""A parameter of each row; one number where all lanes share it."""


class Lanes:
    """Jobs of all lanes one after the other, in order of arrival; after each lane's, one for ever.

    That one never arrives. `place` are the places of the jobs that can be served, `position` their
    positions among all jobs, in the order of `place`; `begin` is where each lane begins.
    """

    def __init__(self, lanes: Sequence[tuple[JobArrays, ReplicaConfig, TimeModel]]) -> None:
        configs = [config for _, config, _ in lanes]
        counts = np.array([len(jobs) for jobs, _, _ in lanes])
        lane = np.repeat(np.arange(len(lanes)), counts)
        self.arrivals = np.concatenate([jobs.arrival_ps for jobs, _, _ in lanes])
        inputs = np.concatenate([jobs.input_tokens for jobs, _, _ in lanes])
        outputs = np.concatenate([jobs.output_tokens for jobs, _, _ in lanes])
        servable = np.array([config.max_servable_tokens for config in configs])
        self.position = np.flatnonzero(inputs + outputs <= servable[lane])
        served = self.arrivals[self.position]
        if bool(((np.diff(served) < 0) & (np.diff(lane[self.position]) == 0)).any()):
            self.position = self.position[np.lexsort((served, lane[self.position]))]
        lane = lane[self.position]
        self.place = np.arange(len(lane)) + lane
        per_lane = np.bincount(lane, minlength=len(lanes)) + 1
        self.begin = np.cumsum(per_lane) - per_lane
        size = len(lane) + len(lanes)
        block_tokens = np.array([config.block_tokens for config in configs])[lane]

        self.arrival = np.full(size, MAX_PS, np.int64)
        self.arrival[self.place] = self.arrivals[self.position]
        self.input, self.output = np.ones(size, np.int64), np.ones(size, np.int64)
        self.input[self.place] = inputs[self.position]
        self.output[self.place] = outputs[self.position]
        self.final_tokens = self.input + self.output - 1
        self.final_blocks = np.ones(size, np.int64)
        self.final_blocks[self.place] = -(-self.final_tokens[self.place] // block_tokens)
        self.has_single_tokens = bool((self.input[self.place] == 1).any())
        self.scheduled, self.first_token, self.done = (
            np.full(size, NEVER, np.int64) for _ in range(3)
        )
        models = [model for _, _, model in lanes]
        longest = max(config.max_num_batched_tokens for config in configs)
        numbers = {model: number for number, model in enumerate(dict.fromkeys(models))}
        tables = [model.batch_table(longest) for model in numbers]
        per_decode = np.array([[model.per_decode_ps] for model in numbers]) * np.arange(longest + 1)
        self.decode_table = (np.array(tables, np.int64) + per_decode).ravel()
        self.parameters: dict[str, Any] = {
            "usable": by_row([config.usable_blocks for config in configs]),
            "admissible": by_row([c.usable_blocks - c.watermark_blocks for c in configs]),
            "block_tokens": by_row([config.block_tokens for config in configs]),
            "max_tokens": by_row([config.max_num_batched_tokens for config in configs]),
            "max_seqs": by_row([config.max_num_seqs for config in configs]),
            "chunked": by_row([int(config.chunked_prefill) for config in configs]),
            "whole_must_fit": by_row([int(config.full_sequence_must_fit) for config in configs]),
            "per_decode": by_row([model.per_decode_ps for model in models]),
            "per_context": by_row([model.per_context_token_ps for model in models]),
            "per_pair": by_row([model.per_attention_pair_ps for model in models]),
            "mixed": by_row([model.mixed_ps for model in models]),
            "table_begin": by_row([numbers[model] * (longest + 1) for model in models]),
        }


def by_row(values: Sequence[int]) -> ByRow:
    """Return one number where all are alike, else an array."""
    return values[0] if len(set(values)) == 1 else np.array(values, np.int64)


def of_rows(parameter: ByRow, rows: Int64Array) -> ByRow:
    """Return a parameter of these rows: an array as long as `rows`, or the one number."""
    return parameter if isinstance(parameter, int) else parameter[rows]


@dataclass(slots=True, kw_only=True)
class LaneState:
    """The running lanes, a row each; `lane` says which.

    `context` sums up the computed tokens of the decodes. `ends` and `jobs` have shape (rows,
    seats): the last iteration and the job of each decode in the first `decodes` columns, NO_END
    beyond; the first to end sits in `next_seat`. Of the job at `head`, `computed` tokens have been
    prefilled: it runs where there are any.
    """

    lane: Int64Array
    now: Int64Array
    iteration: Int64Array
    head: Int64Array
    next_arrival: Int64Array
    decodes: Int64Array
    context: Int64Array
    committed: Int64Array
    computed: Int64Array
    next_end: Int64Array
    next_seat: Int64Array
    ends: NDArray[np.int32]
    jobs: NDArray[np.int32]
    usable: ByRow
    admissible: ByRow
    block_tokens: ByRow
    max_tokens: ByRow
    max_seqs: ByRow
    chunked: ByRow
    whole_must_fit: ByRow
    per_decode: ByRow
    per_context: ByRow
    per_pair: ByRow
    mixed: ByRow
    table_begin: ByRow

    def keep(self, rows: BoolArray) -> None:
        """Drop all rows but these."""
        for name in (field.name for field in fields(self)):
            column = getattr(self, name)
            if not isinstance(column, int):
                setattr(self, name, column[rows])

    def used_blocks(self, lanes: Lanes, at: Int64Array, iteration: Int64Array) -> Int64Array:
        """Return the blocks held by decodes and partly prefilled once so many iterations ran."""
        width = int(self.decodes[at].max(initial=0))
        job, ends = self.jobs[at, :width], self.ends[at, :width]
        steps_left = np.where(ends == NO_END, 0, ends - iteration[:, None])
        computed = lanes.final_tokens[job] - steps_left
        block_tokens = np.broadcast_to(of_rows(self.block_tokens, at), len(at))[:, None]
        held = -(-computed // block_tokens)
        used: Int64Array = np.where(ends == NO_END, 0, held).sum(axis=1)
        used += -(-self.computed[at] // of_rows(self.block_tokens, at))
        return used

    def enter(self, lanes: Lanes, at: Int64Array, job: Int64Array) -> None:
        """Let a job in each of the rows `at` decode from the end of the coming iteration on."""
        seat = self.decodes[at]
        if int(seat.max()) >= self.ends.shape[1]:
            self._widen()
        last = self.iteration[at] + lanes.output[job]
        flat = at * self.ends.shape[1] + seat
        self.ends.reshape(-1)[flat] = last
        self.jobs.reshape(-1)[flat] = job
        self.context[at] += lanes.input[job]
        self.decodes[at] = seat + 1
        sooner = (last < self.next_end[at]).nonzero()[0]
        at = at[sooner]
        self.next_end[at] = last[sooner]
        self.next_seat[at] = seat[sooner]

    def complete(self, lanes: Lanes, at: Int64Array) -> None:
        """Let those of the rows `at` leave whose last iteration this was, one a row at least."""
        width = self.ends.shape[1]
        ends, jobs = self.ends.reshape(-1), self.jobs.reshape(-1)
        while len(at):
            begin, last = at * width, self.decodes[at] - 1
            first, final = begin + self.next_seat[at], begin + last
            job = jobs[first]
            lanes.done[job] = self.now[at]
            self.context[at] -= lanes.final_tokens[job]
            self.committed[at] -= lanes.final_blocks[job]
            self.decodes[at] = last
            ends[first] = ends[final]
            jobs[first] = jobs[final]
            ends[final] = NO_END
            taken = self.ends[:, : int(last.max()) + 1][at]
            seat = taken.argmin(axis=1)
            self.next_seat[at] = seat
            next_end = ends[begin + seat]
            self.next_end[at] = next_end
            at = at[next_end <= self.iteration[at]]

    def _widen(self) -> None:
        more = self.ends.shape[1]
        self.ends = np.pad(self.ends, ((0, 0), (0, more)), constant_values=NO_END)
        self.jobs = np.pad(self.jobs, ((0, 0), (0, more)))


def lane_state(lanes: Lanes) -> LaneState:
    """Return the state of all lanes before their first arrival."""
    count = len(lanes.begin)
    columns: dict[str, Any] = {
        name: np.zeros(count, np.int64)
        for name in (
            *("now", "iteration", "decodes", "context", "committed", "computed"),
            "next_seat",
        )
    }
    return LaneState(
        lane=np.arange(count),
        head=lanes.begin.copy(),
        next_arrival=lanes.arrival[lanes.begin],
        next_end=np.full(count, NO_END, np.int64),
        ends=np.full((count, FIRST_SEATS), NO_END, np.int32),
        jobs=np.zeros((count, FIRST_SEATS), np.int32),
        **columns,
        **lanes.parameters,
    )
