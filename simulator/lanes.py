"""Many independent replicas at once: a lane a row, one segment a step, all in numpy (SIM-1).

For sweeps, Monte Carlo and backtests: each lane is one replica under one scenario, and its times
equal the scalar engine's bit for bit, whatever the number of lanes. A lane that comes to what is
not worth a vector (preemption, shared prefixes, priority, cancels, a prefill threshold) is handed
over to the scalar engine. Worth it from about 128 lanes. Keeps no iterations, so no single token
times. Semantics: SCHEDULING in scheduler.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.batch import JobArrays, simulate
from simulator.iterations import Int64Array
from simulator.lane_state import Lanes, LaneState, lane_state, ranges
from simulator.scheduler import ReplicaConfig
from simulator.state import NEVER, REFUSED
from simulator.stepping import NEARLY_2
from simulator.timing import TimeModel

MIN_LANES = 32
"""Fewer lanes than this run one after the other: vectors would be too short to pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One replica under one scenario."""

    jobs: JobArrays
    config: ReplicaConfig
    model: TimeModel


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResult:
    """One row a job in submission order, as in batch.SimulationResult, without iterations."""

    outcome: NDArray[np.int8]
    arrival_ps: Int64Array
    scheduled_ps: Int64Array
    first_token_ps: Int64Array
    done_ps: Int64Array
    output_tokens: Int64Array
    preemptions: Int64Array


def simulate_lanes(lanes: Sequence[Lane], *, min_lanes: int = MIN_LANES) -> list[LaneResult]:
    """Return how every job of every lane ends, in the order of the lanes."""
    results: list[LaneResult | None] = [None] * len(lanes)
    vectors = [index for index, lane in enumerate(lanes) if _suits_vectors(lane)]
    if len(vectors) >= min_lanes:
        chosen = [lanes[index] for index in vectors]
        for index, result in zip(vectors, _simulate_vectors(chosen), strict=True):
            results[index] = result
    return [
        _scalar(lane) if result is None else result
        for lane, result in zip(lanes, results, strict=True)
    ]


def _suits_vectors(lane: Lane) -> bool:
    config = lane.config
    plain = not config.priority_scheduling and not config.long_prefill_token_threshold
    hashed = config.prefix_cache and lane.jobs.block_hashes is not None
    return plain and not hashed and not (lane.jobs.cancel_ps >= 0).any()


def _scalar(lane: Lane) -> LaneResult:
    result = simulate(lane.jobs, lane.config, lane.model)
    return LaneResult(
        outcome=result.outcome,
        arrival_ps=result.arrival_ps,
        scheduled_ps=result.scheduled_ps,
        first_token_ps=result.first_token_ps,
        done_ps=result.done_ps,
        output_tokens=result.output_tokens,
        preemptions=result.preemptions,
    )


def _simulate_vectors(lanes: Sequence[Lane]) -> list[LaneResult | None]:
    """Return each lane's result, None for those that have to be handed over."""
    rows = Lanes([(lane.jobs, lane.config, lane.model) for lane in lanes])
    state = lane_state(rows)
    handed_over = np.zeros(len(lanes), bool)
    while len(state.lane):
        short = _step(state, rows)
        if short.any():
            handed_over[state.lane[short]] = True
        over = short | state.over(rows)
        if over.any():
            # Finished lanes cost as much as live ones: drop them once they are many.
            state.stopped |= over
            if 4 * int(state.stopped.sum()) >= len(state.lane):
                state.keep(~state.stopped)
    results: list[LaneResult | None] = []
    for index, lane in enumerate(lanes):
        if handed_over[index]:
            results.append(None)
            continue
        count, at = len(lane.jobs), slice(rows.begin[index], rows.begin[index + 1] - 1)
        outcome = np.full(count, REFUSED, np.int8)
        scheduled, first, outputs = (np.full(count, NEVER, np.int64) for _ in range(3))
        done = lane.jobs.arrival_ps.copy()
        served = rows.order[index]
        outcome[served] = 0
        scheduled[served], first[served] = rows.scheduled[at], rows.first_token[at]
        done[served] = rows.done[at]
        outputs = np.zeros(count, np.int64)
        outputs[served] = rows.output[at]
        results.append(
            LaneResult(
                outcome=outcome,
                arrival_ps=lane.jobs.arrival_ps,
                scheduled_ps=scheduled,
                first_token_ps=first,
                done_ps=done,
                output_tokens=outputs,
                preemptions=np.zeros(count, np.int64),
            )
        )
    return results


def _step(state: LaneState, rows: Lanes) -> NDArray[np.bool_]:
    """Run in every lane an iteration with prefill where there is any, then a stretch of decodes.

    Returns which lanes lack KV for that and must be handed over.
    """
    head_arrival = rows.arrival[state.head]
    idle = (state.decodes == 0) & ~state.partial & ~state.stopped
    np.maximum(state.now, head_arrival, out=state.now, where=idle)
    short = np.zeros(len(state.lane), bool)
    blocked = np.zeros(len(state.lane), bool)
    at = np.flatnonzero(((head_arrival <= state.now) | state.partial) & ~state.stopped)
    if len(at):
        work = _admit(state, rows, at)
        short[at] = work.short
        blocked[at] = ~work.exact & ~work.short
        _prefill(state, rows, work)
    waits = (rows.arrival[state.head] <= state.now) | state.partial
    free_to_run = (state.decodes > 0) & ~state.stopped & ~short & (blocked | ~waits)
    at = np.flatnonzero(free_to_run)
    if len(at):
        short[at] |= _decode(state, rows, at, blocked[at])
    return short


@dataclass(slots=True, kw_only=True)
class Work:
    """One iteration's prefill in the rows `at`, and which jobs finish theirs in it."""

    at: Int64Array
    short: NDArray[np.bool_]
    prefill: Int64Array
    pairs: Int64Array
    singles: Int64Array
    context: Int64Array
    entering_from: Int64Array
    entering_to: Int64Array

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Where there is any prefill at all (a last single token counts)."""
        result: NDArray[np.bool_] = ((self.prefill > 0) | (self.singles > 0)) & ~self.short
        return result

    def charge(
        self, of: Int64Array, gap: Int64Array, tokens: Int64Array, prefix: Int64Array
    ) -> None:
        """Add chunks of `tokens` behind `prefix`, of `gap` that are missing, at positions `of`."""
        single = (gap == 1) & (tokens == 1)
        chunk = tokens - single
        self.singles[of] += single
        self.context[of] += single * prefix
        self.prefill[of] += chunk
        self.pairs[of] += chunk * prefix + chunk * (chunk - 1) // 2


def _admit(state: LaneState, rows: Lanes, at: Int64Array) -> Work:
    """Give prefill to the partly prefilled, then to the waiting, head of line first."""
    lane, head = state.lane[at], state.head[at]
    zeros = [np.zeros(len(at), np.int64) for _ in range(4)]
    work = Work(
        at=at, short=np.zeros(len(at), bool), prefill=zeros[0], pairs=zeros[1],
        singles=zeros[2], context=zeros[3], entering_from=head, entering_to=head.copy(),
    )  # fmt: skip
    left = rows.max_tokens[lane] - state.decodes[at]
    of = np.flatnonzero(state.partial[at])
    if len(of):
        _continue_partial(state, rows, work, of, left)
    now, seats = state.now[at], rows.max_seqs[lane] - state.decodes[at]
    seats -= head - work.entering_from
    of = np.flatnonzero((left > 0) & (seats > 0) & ~work.short)
    of = of[rows.arrival[head[of]] <= now[of]]
    head = head.copy()
    while len(of):
        job = head[of]
        length = rows.input[job]
        tokens = np.minimum(length, left[of])
        whole = tokens == length
        fits = whole | (rows.chunked[lane[of]] != 0)
        final = rows.final_blocks[job]
        tight = state.committed[at[of]] + final > rows.admissible[lane[of]]
        if tight.any():
            some = of[tight]
            whole_must_fit = rows.whole_must_fit[lane[some]] != 0
            reach = np.where(whole_must_fit, length[tight], tokens[tight])
            needed = -(-reach // rows.block_tokens[lane[some]])
            used = state.used_blocks(rows, at[some], state.iteration[at[some]] + 1)
            used += _entering_blocks(rows, work, some, lane[some])
            fits[tight] &= used + needed <= rows.admissible[lane[some]]
        if not fits.all():
            of, job, length, tokens, whole, final = (
                column[fits] for column in (of, job, length, tokens, whole, final)
            )
        rows.scheduled[job] = now[of]
        work.charge(of, length, tokens, np.zeros(len(of), np.int64))
        left[of] -= tokens
        seats[of] -= 1
        head[of] += 1
        state.committed[at[of]] += final
        work.entering_to[of] += whole
        if not whole.all():
            part = of[~whole]
            held = -(-tokens[~whole] // rows.block_tokens[lane[part]])
            row = at[part]
            state.partial[row], state.computed[row] = True, tokens[~whole]
            state.blocks[row] = held
            state.fixed[row] += held
        of = of[(left[of] > 0) & (seats[of] > 0)]
        of = of[rows.arrival[head[of]] <= now[of]]
    state.head[at] = head
    return work


def _continue_partial(
    state: LaneState, rows: Lanes, work: Work, of: Int64Array, left: Int64Array
) -> None:
    """Go on with the one partly prefilled job of each lane, which is the last of its running."""
    at = work.at[of]
    job, start = state.head[at] - 1, state.computed[at]
    gap = rows.input[job] - start
    tokens = np.minimum(gap, left[of])
    held = -(-(start + tokens) // rows.block_tokens[state.lane[at]])
    tight = state.committed[at] > rows.usable[state.lane[at]]
    if tight.any():
        some = at[tight]
        used = state.used_blocks(rows, some, state.iteration[some] + 1)
        used += (held - state.blocks[at])[tight]
        work.short[of[tight]] = used > rows.usable[state.lane[some]]
    work.charge(of, gap, tokens, start)
    left[of] -= tokens
    finished = tokens == gap
    state.computed[at] = start + tokens
    state.fixed[at] += np.where(finished, 0, held) - state.blocks[at]
    state.blocks[at] = held
    state.partial[at] = ~finished
    work.entering_from = work.entering_from.copy()
    work.entering_from[of] -= finished


def _entering_blocks(rows: Lanes, work: Work, of: Int64Array, lane: Int64Array) -> Int64Array:
    """Return the blocks of the jobs that finish their prefill in this iteration."""
    count = work.entering_to[of] - work.entering_from[of]
    owner = np.repeat(np.arange(len(of)), count)
    job = ranges(work.entering_from[of], count)
    blocks = np.zeros(len(of), np.int64)
    np.add.at(blocks, owner, -(-rows.input[job] // rows.block_tokens[lane[owner]]))
    return blocks


def _prefill(state: LaneState, rows: Lanes, work: Work) -> None:
    """Run the iteration that `work` describes where it has any."""
    run = np.flatnonzero(work.exact)
    if not len(run):
        return
    at, prefill = work.at[run], work.prefill[run]
    lane = state.lane[at]
    single = state.decodes[at] + work.singles[run]
    context = state.offset_sum[at] + state.decodes[at] * state.iteration[at] + work.context[run]
    took = rows.tables[rows.table_of[lane], prefill + single]
    took += rows.per_decode[lane] * single + rows.per_context[lane] * context
    took += rows.per_pair[lane] * work.pairs[run] + rows.mixed[lane] * (prefill > 0)
    state.now[at] += took
    state.iteration[at] += 1
    first, last = work.entering_from[run], work.entering_to[run]
    state.enter(rows, at, first, last - first)
    state.complete(rows, at)


def _decode(
    state: LaneState, rows: Lanes, at: Int64Array, blocked: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Run decode steps up to the next end, but only to the first boundary after an arrival.

    That boundary is estimated in floating point and corrected exactly. Returns who lacks KV.
    """
    lane, now, decodes = state.lane[at], state.now[at], state.decodes[at]
    iteration = state.iteration[at]
    b = rows.per_context[lane] * decodes
    a = rows.tables[rows.table_of[lane], decodes] + rows.per_decode[lane] * decodes
    a += rows.per_context[lane] * state.offset_sum[at] + b * iteration
    steps = state.next_end[at] - iteration
    end = now + steps * a + b * (steps * (steps - 1) // 2)
    # An arrival behind a blocked head, or with no seat left, can't change the batch.
    no_seat = (decodes >= rows.max_seqs[lane]) | (decodes >= rows.max_tokens[lane])
    bound = rows.arrival[state.head[at]]
    of = np.flatnonzero((bound < end) & ~blocked & ~no_seat)
    if len(of):
        some_a, some_b, span = a[of], b[of], bound[of] - now[of]
        slope = some_a - 0.5 * some_b
        root = np.sqrt(slope * slope + 2.0 * some_b * span)
        few = np.maximum((NEARLY_2 * span / (slope + root)).astype(np.int64), 1)
        while (low := few * some_a + some_b * (few * (few - 1) // 2) < span).any():
            few += low
        steps[of] = few
        end[of] = now[of] + few * some_a + some_b * (few * (few - 1) // 2)
    short = state.committed[at] > rows.usable[lane]
    if short.any():
        tight = at[short]
        used = state.used_blocks(rows, tight, (iteration + steps)[short])
        short[short] = used > rows.usable[lane[short]]
    state.iteration[at] = iteration + steps
    state.now[at] = end
    state.complete(rows, at)
    return short
