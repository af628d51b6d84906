"""Many independent replicas at once: a lane a row, one segment a step, all in numpy (SIM-1).

For sweeps, Monte Carlo and backtests: each lane is one replica under one scenario, and its times
equal the scalar engine's bit for bit, whatever the number of lanes. A lane that comes to what is
not worth a vector (preemption, shared prefixes, priority, cancels, a prefill threshold) is handed
over to the scalar engine. Keeps no iterations, so no single token times. Semantics: SCHEDULING in
scheduler.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simulator import batch
from simulator.batch import JobArrays, simulate
from simulator.iterations import Int64Array
from simulator.lane_state import BoolArray, Lanes, lane_state, told_with_the_next
from simulator.lane_steps import step
from simulator.scheduler import MAX_BATCHED_TOKENS, ReplicaConfig
from simulator.state import COMPLETED, NEVER, REFUSED
from simulator.timing import MAX_PS, TimeModel

MIN_LANES = 64 if batch.__file__.endswith(".py") else 160
"""Fewer lanes than this run one after the other: the engine, compiled or not, is faster then."""

STEPS_BETWEEN = 8
"""Steps after which finished lanes are looked for."""


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
    """Return whether the lane needs nothing that vectors lack, and no time that int64 lacks."""
    config = lane.config
    plain = not config.priority_scheduling and not config.long_prefill_token_threshold
    hashed = config.prefix_cache and lane.jobs.block_hashes is not None
    suits = plain and not hashed and not (lane.jobs.cancel_ps >= 0).any()
    return suits and _longest_ps(lane) < MAX_PS


def _longest_ps(lane: Lane) -> int:
    """Return a time that no lane without preemption can reach, in whole numbers of Python's.

    Each iteration ends a prefill, fills the batch or emits a token. Numpy doesn't tell where a sum
    leaves int64; the scalar engine, to which such a lane goes, does.
    """
    jobs, config, model = lane.jobs, lane.config, lane.model
    inputs, outputs = int(jobs.input_tokens.sum()), int(jobs.output_tokens.sum())
    longest = min(inputs + outputs, config.max_servable_tokens)
    room = max(1, config.max_num_batched_tokens - config.max_num_seqs)
    iterations = outputs + len(jobs) + inputs // room
    points = model.breakpoints
    slope = max((-(-(y1 - y0) // (x1 - x0)) for (x0, y0), (x1, y1) in pairwise(points)), default=0)
    # Of every size that there is a table for, too.
    largest_ps = points[0][1] + (slope + model.per_decode_ps) * MAX_BATCHED_TOKENS
    return max(
        largest_ps,
        int(jobs.arrival_ps.max(initial=0))
        + iterations * (points[0][1] + model.mixed_ps)
        + (inputs + outputs) * (slope + model.per_decode_ps)
        + (outputs + len(jobs)) * longest * model.per_context_token_ps
        + inputs * longest * model.per_attention_pair_ps,
    )


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


def _simulate_vectors(chosen: Sequence[Lane]) -> list[LaneResult | None]:
    """Return each lane's result, None for those that have to be handed over."""
    lanes = Lanes([(lane.jobs, lane.config, lane.model) for lane in chosen])
    state = lane_state(lanes)
    handed_over = np.zeros(len(chosen), bool)
    while True:
        over = (state.next_arrival == MAX_PS) & (state.decodes == 0)
        # Finished lanes cost as much as live ones: drop them once they are many.
        many = int(np.count_nonzero(over))
        if many == len(over):
            break
        if 4 * many >= len(over):
            state.keep(~over)
        for _ in range(STEPS_BETWEEN):
            short = step(state, lanes)
            if short:
                rows = np.concatenate(short)
                handed_over[state.lane[rows]] = True
                runs = np.ones(len(state.lane), bool)
                runs[rows] = False
                state.keep(runs)
    return _results(chosen, lanes, handed_over)


def _results(
    chosen: Sequence[Lane], lanes: Lanes, handed_over: BoolArray
) -> list[LaneResult | None]:
    lanes.first_token = told_with_the_next(lanes.first_token)
    return [
        None if refused else _result(lane, lanes, number)
        for number, (lane, refused) in enumerate(zip(chosen, handed_over.tolist(), strict=True))
    ]


def _result(lane: Lane, lanes: Lanes, number: int) -> LaneResult:
    jobs, rows, at = lane.jobs, lanes.served[number], lanes.at[number]
    scheduled, first, done = lanes.scheduled[at], lanes.first_token[at], lanes.done[at]
    outcome, outputs = np.full(len(jobs), COMPLETED, np.int8), jobs.output_tokens
    if rows is not None:
        refused = np.ones(len(jobs), bool)
        refused[rows] = False
        outcome[refused] = REFUSED
        outputs = np.where(refused, 0, outputs)
        scheduled, first = (
            _of_all(times, rows, np.full(len(jobs), NEVER, np.int64))
            for times in (scheduled, first)
        )
        done = _of_all(done, rows, jobs.arrival_ps.copy())
    return LaneResult(
        outcome=outcome,
        arrival_ps=jobs.arrival_ps,
        scheduled_ps=scheduled,
        first_token_ps=first,
        done_ps=done,
        output_tokens=outputs,
        preemptions=np.zeros(len(jobs), np.int64),
    )


def _of_all(times: Int64Array, rows: Int64Array, others: Int64Array) -> Int64Array:
    others[rows] = times
    return others
