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
from simulator.lane_state import Lanes, LaneState, lane_state
from simulator.scheduler import ReplicaConfig
from simulator.state import NEVER, REFUSED
from simulator.timing import MAX_PS, TimeModel

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
    """Run one segment in every lane; return which lanes lack KV for it and must be handed over."""
    head_arrival = rows.arrival[state.head]
    idle = (state.decodes == 0) & ~state.partial
    state.now = np.where(idle, np.maximum(state.now, head_arrival), state.now)
    state.now[state.stopped] = 0
    waiting = head_arrival <= state.now
    short = _admit(state, rows, waiting)
    exact = (state.prefill > 0) | (state.singles > 0)
    open_to_arrivals = (
        ~waiting
        & (state.decodes + state.partial < rows.max_seqs[state.lane])
        & (state.decodes < rows.max_tokens[state.lane])
        & ~state.partial
    )
    bound = np.where(open_to_arrivals, head_arrival, MAX_PS)
    steps, end = _time(state, rows, exact, bound)
    tight = state.committed > rows.usable[state.lane]
    if tight.any():
        at = np.flatnonzero(tight)
        used = state.used_blocks(rows, at, state.iteration[at] + steps[at])
        short[at] |= used > rows.usable[state.lane[at]]
    short &= ~state.stopped
    state.iteration += steps
    state.now = end
    entered = np.flatnonzero(exact & ~state.stopped)
    if len(entered):
        state.enter(rows, entered)
    state.complete(rows)
    return short


def _time(
    state: LaneState, rows: Lanes, exact: NDArray[np.bool_], bound: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return how many steps this segment has, and when it ends.

    One where somebody prefills; else up to the next end of a decode, but no further than the
    first boundary at or after `bound`, estimated in floating point and corrected exactly.
    """
    lane, now = state.lane, state.now
    single = state.decodes + state.singles
    context = state.offset_sum + state.decodes * state.iteration + state.context
    a = rows.tables[rows.table_of[lane], state.prefill + single]
    a += rows.per_decode[lane] * single + rows.per_context[lane] * context
    a += rows.per_pair[lane] * state.pairs + rows.mixed[lane] * (state.prefill > 0)
    b = rows.per_context[lane] * state.decodes
    steps = np.where(exact, 1, state.next_end - state.iteration)
    steps[state.stopped] = 0
    end: Int64Array = now + steps * a + b * (steps * (steps - 1) // 2)
    at = np.flatnonzero((bound < end) & ~exact & ~state.stopped)
    if len(at):
        a, b, span = a[at], b[at], bound[at] - now[at]
        slope = a - b / 2
        few = (2 * span / (slope + np.sqrt(slope * slope + 2.0 * b * span))).astype(np.int64)
        few = np.maximum(few, 1)
        while (low := few * a + b * (few * (few - 1) // 2) < span).any():
            few += low
        while (
            high := (few > 1) & ((few - 1) * a + b * ((few - 1) * (few - 2) // 2) >= span)
        ).any():
            few -= high
        steps[at] = few
        end[at] = now[at] + few * a + b * (few * (few - 1) // 2)
    return steps, end


def _admit(state: LaneState, rows: Lanes, waiting: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Give prefill to the partly prefilled, then to the waiting; return who lacks KV for it."""
    lane = state.lane
    short = np.zeros(len(lane), bool)
    left = rows.max_tokens[lane] - state.decodes
    state.prefill[:] = 0
    state.pairs[:] = 0
    state.singles[:] = 0
    state.context[:] = 0
    state.entering_from[:] = state.head
    state.entering_to[:] = state.head
    at = np.flatnonzero(state.partial & ~state.stopped)
    if len(at):
        job = state.head[at] - 1
        gap = rows.input[job] - state.computed[at]
        tokens = np.minimum(gap, left[at])
        state.charge(at, gap, tokens, state.computed[at])
        state.computed[at] += tokens
        left[at] -= tokens
        block_tokens = rows.block_tokens[lane[at]]
        held = -(-state.computed[at] // block_tokens)
        tight = state.committed[at] > rows.usable[lane[at]]
        if tight.any():
            some = at[tight]
            extra = (held - state.blocks[at])[tight]
            used = state.used_blocks(rows, some, state.iteration[some] + 1) + extra
            short[some] = used > rows.usable[lane[some]]
        finished = tokens == gap
        state.fixed[at] += np.where(finished, -state.blocks[at], held - state.blocks[at])
        state.blocks[at] = held
        state.partial[at] = ~finished
        state.entering_from[at] = np.where(finished, job, state.head[at])
    at = np.flatnonzero(waiting & (left > 0) & ~short & ~state.stopped)
    while len(at):
        lanes = lane[at]
        running = state.decodes[at] + (state.head[at] - state.entering_from[at])
        running += state.partial[at]
        at = at[running < rows.max_seqs[lanes]]
        if not len(at):
            break
        lanes, job = lane[at], state.head[at]
        length = rows.input[job]
        tokens = np.minimum(length, left[at])
        fits = rows.chunked[lanes] | (tokens == length)
        final = rows.final_blocks[job]
        usable = rows.usable[lanes] - rows.watermark[lanes]
        tight = state.committed[at] + final > usable
        if tight.any():
            some = at[tight]
            block_tokens = rows.block_tokens[lane[some]]
            reach = np.where(rows.whole_must_fit[lane[some]], length[tight], tokens[tight])
            needed = -(-reach // block_tokens)
            used = state.used_blocks(rows, some, state.iteration[some] + 1)
            used += state.entering_blocks(rows, some)
            fits[tight] &= used + needed <= usable[tight]
        at, job, length, tokens, final = (x[fits] for x in (at, job, length, tokens, final))
        if not len(at):
            break
        rows.scheduled[job] = state.now[at]
        state.charge(at, length, tokens, np.zeros(len(at), np.int64))
        left[at] -= tokens
        state.committed[at] += final
        state.head[at] += 1
        whole = tokens == length
        state.entering_to[at] = np.where(whole, state.head[at], state.entering_to[at])
        part = at[~whole]
        if len(part):
            held = -(-tokens[~whole] // rows.block_tokens[lane[part]])
            state.partial[part] = True
            state.computed[part] = tokens[~whole]
            state.blocks[part] = held
            state.fixed[part] += held
        at = at[(left[at] > 0) & (rows.arrival[state.head[at]] <= state.now[at])]
    return short
