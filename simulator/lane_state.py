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

SEAT_BITS = np.array(16)
"""A decode's key is its last iteration, then its seat in so many bits: MAX_SEQS have room."""
SEATS = np.array((1 << 16) - 1)
NO_END = np.iinfo(np.int64).max
FIRST_SEATS = 16
ZERO, ONE = np.array(0), np.array(1)
"""As arrays: numpy takes as long to convert a number of Python as to add a thousand."""
BoolArray = NDArray[np.bool_]


class Lanes:
    """Jobs of all lanes one after the other, in order of arrival; after each lane's, one for ever.

    That one never arrives. Those of a lane are in `at`. `served` are the positions, among the
    lane's jobs, of those that can be served, None where that is all of them as they stand.
    """

    def __init__(self, lanes: Sequence[tuple[JobArrays, ReplicaConfig, TimeModel]]) -> None:
        configs = [config for _, config, _ in lanes]
        workloads = [jobs for jobs, _, _ in lanes]
        self.served = [_served(jobs, config) for jobs, config, _ in lanes]
        self.arrival = self._column([jobs.arrival_ps for jobs in workloads], MAX_PS)
        self.input = self._column([jobs.input_tokens for jobs in workloads], 1)
        self.output = self._column([jobs.output_tokens for jobs in workloads], 1)
        counts = [
            len(jobs if rows is None else rows)
            for jobs, rows in zip(workloads, self.served, strict=True)
        ]
        per_lane = np.array(counts, np.int64) + 1
        self.begin = np.cumsum(per_lane) - per_lane
        self.at = [
            slice(begin, begin + count)
            for begin, count in zip(self.begin.tolist(), counts, strict=True)
        ]
        block_tokens = by_row([config.block_tokens for config in configs])
        self.final_tokens = self.input + self.output
        self.final_tokens -= 1
        wide = np.repeat(block_tokens, per_lane) if block_tokens.ndim else block_tokens
        self.final_blocks = -(-self.final_tokens // wide)
        self.all_chunked = all(config.chunked_prefill for config in configs)
        self.scheduled, self.first_token, self.done = (
            np.full(len(self.arrival), NEVER, np.int64) for _ in range(3)
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
            "block_tokens": block_tokens,
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

    def _column(self, of_lanes: Sequence[Int64Array], of_the_last: int) -> Int64Array:
        last = np.array([of_the_last], np.int64)
        parts: list[Int64Array] = []
        for values, rows in zip(of_lanes, self.served, strict=True):
            parts += (values if rows is None else values[rows], last)
        return np.concatenate(parts)


def _served(jobs: JobArrays, config: ReplicaConfig) -> Int64Array | None:
    """Return the positions of the jobs that can be served by arrival; None for all as they are."""
    fits = jobs.input_tokens + jobs.output_tokens <= config.max_servable_tokens
    in_order = not (jobs.arrival_ps[1:] < jobs.arrival_ps[:-1]).any()
    if in_order and fits.all():
        return None
    by_arrival = np.argsort(jobs.arrival_ps, kind="stable")
    served: Int64Array = by_arrival[fits[by_arrival]]
    return served


def told_with_the_next(times: Int64Array) -> Int64Array:
    """Return the times where each NEVER is that of the next entry that has one, if any."""
    known = np.where(times == NEVER, len(times) - 1, np.arange(len(times)))
    told: Int64Array = times[np.minimum.accumulate(known[::-1])[::-1]]
    return told


def by_row(values: Sequence[int]) -> Int64Array:
    """Return one number, without dimensions, where all are alike, else one a row."""
    alike = len(set(values)) == 1
    return np.array(values[0] if alike else values, np.int64)


def of_rows(parameter: Int64Array, rows: Int64Array) -> Int64Array:
    """Return a parameter of these rows: an array as long as `rows`, or the one number."""
    return parameter[rows] if parameter.ndim else parameter


@dataclass(slots=True, kw_only=True)
class LaneState:
    """The running lanes, a row each; `lane` says which.

    `context` sums up the computed tokens of the decodes, `committed` their final blocks. `ends`
    and `jobs` have shape (seats, rows): the key and the job of each decode in the first `decodes`
    seats, NO_END beyond; `next_key` is the least. Of the job at `head`, which will hold
    `head_blocks`, `computed` tokens have been prefilled: it runs where there are any.

    `held` rows are within an iteration that may take more heads. Of that iteration are `prefill`
    tokens and twice their `pairs`, and `joined` decodes with `joined_context` tokens, who are among
    the decodes already but not of its batch: rows of `batch`. `singles` says whether any of its
    prefills may be a last single token, which counts as a decode.
    """

    lane: Int64Array
    now: Int64Array
    iteration: Int64Array
    head: Int64Array
    next_arrival: Int64Array
    head_blocks: Int64Array
    decodes: Int64Array
    context: Int64Array
    committed: Int64Array
    computed: Int64Array
    next_key: Int64Array
    held: BoolArray
    batch: Int64Array
    ends: Int64Array
    jobs: Int64Array
    usable: Int64Array
    admissible: Int64Array
    block_tokens: Int64Array
    max_tokens: Int64Array
    max_seqs: Int64Array
    chunked: Int64Array
    whole_must_fit: Int64Array
    per_decode: Int64Array
    per_context: Int64Array
    per_pair: Int64Array
    mixed: Int64Array
    table_begin: Int64Array
    singles: bool = False
    taken: int = 0

    def keep(self, rows: BoolArray) -> None:
        """Drop all rows but these."""
        for name in (field.name for field in fields(self)):
            column = getattr(self, name)
            if isinstance(column, np.ndarray) and column.ndim:
                setattr(self, name, column.compress(rows, axis=-1))

    def used_blocks(self, lanes: Lanes, at: Int64Array, iteration: Int64Array) -> Int64Array:
        """Return the blocks held by decodes and partly prefilled once so many iterations ran."""
        seats = int(self.decodes[at].max(initial=0))
        job, key = self.jobs[:seats, at], self.ends[:seats, at]
        empty = key == NO_END
        steps_left = np.where(empty, 0, (key >> SEAT_BITS) - iteration)
        computed = lanes.final_tokens[job] - steps_left
        block_tokens = of_rows(self.block_tokens, at)
        used: Int64Array = np.where(empty, 0, -(-computed // block_tokens)).sum(axis=0)
        used += -(-self.computed[at] // block_tokens)
        return used

    def take_seats(self) -> None:
        """Have a free seat in each row; `taken` is beyond the last seat in use, and one more."""
        self.taken = int(self.decodes.max(initial=0)) + 1
        more = len(self.ends)
        if self.taken > more:
            self.ends = np.pad(self.ends, ((0, more), (0, 0)), constant_values=NO_END)
            self.jobs = np.pad(self.jobs, ((0, more), (0, 0)))

    def seat(self, lanes: Lanes, at: Int64Array) -> None:
        """Give the heads of the rows `at` a seat each, to decode from the coming iteration on."""
        job, seat = self.head[at], self.decodes[at]
        key = self.iteration[at]
        key += lanes.output[job]
        key <<= SEAT_BITS
        key |= seat
        seat *= self.ends.shape[1]
        seat += at
        self.ends.reshape(-1)[seat] = key
        self.jobs.reshape(-1)[seat] = job
        self.next_key[at] = np.minimum(key, self.next_key[at])

    def complete(self, lanes: Lanes, at: Int64Array) -> None:
        """Let the first to end in each of the rows `at` leave."""
        rows = self.ends.shape[1]
        ends, jobs = self.ends.reshape(-1), self.jobs.reshape(-1)
        seat, last = self.next_key[at], self.decodes[at]
        seat &= SEATS
        last -= ONE
        self.decodes[at] = last
        first, final = seat * rows, last * rows
        first += at
        final += at
        job = jobs[first]
        lanes.done[job] = self.now[at]
        self.context[at] -= lanes.final_tokens[job]
        self.committed[at] -= lanes.final_blocks[job]
        # Who sits last takes the free seat.
        moved = ends[final]
        seat -= last
        moved += seat
        ends[first] = moved
        jobs[first] = jobs[final]
        ends[final] = NO_END
        np.minimum.reduce(self.ends[: self.taken], axis=0, out=self.next_key)


def lane_state(lanes: Lanes) -> LaneState:
    """Return the state of all lanes before their first arrival."""
    count = len(lanes.begin)
    columns: dict[str, Any] = {
        name: np.zeros(count, np.int64)
        for name in ("now", "iteration", "decodes", "context", "committed", "computed")
    }
    return LaneState(
        lane=np.arange(count),
        head=lanes.begin.copy(),
        next_arrival=lanes.arrival[lanes.begin],
        head_blocks=lanes.final_blocks[lanes.begin],
        next_key=np.full(count, NO_END, np.int64),
        held=np.zeros(count, bool),
        batch=np.zeros((4, count), np.int64),
        ends=np.full((FIRST_SEATS, count), NO_END, np.int64),
        jobs=np.zeros((FIRST_SEATS, count), np.int64),
        **columns,
        **lanes.parameters,
    )
