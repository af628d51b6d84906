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
from simulator.lane_state import BoolArray, Lanes, lane_state, told_with_the_next
from simulator.lane_steps import step
from simulator.scheduler import ReplicaConfig
from simulator.state import COMPLETED, NEVER, REFUSED
from simulator.timing import MAX_PS, TimeModel

MIN_LANES = 32
"""Fewer lanes than this run one after the other: vectors would be too short to pay."""

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
    count = len(lanes.arrivals)
    outcome = np.full(count, REFUSED, np.int8)
    outcome[lanes.position] = COMPLETED
    scheduled, first, done, outputs = (np.full(count, NEVER, np.int64) for _ in range(4))
    scheduled[lanes.position] = lanes.scheduled[lanes.place]
    first[lanes.position] = told_with_the_next(lanes.first_token)[lanes.place]
    done[:] = lanes.arrivals
    done[lanes.position] = lanes.done[lanes.place]
    outputs[:] = 0
    outputs[lanes.position] = lanes.output[lanes.place]
    preemptions = np.zeros(count, np.int64)
    results: list[LaneResult | None] = []
    begin = 0
    for lane, refused in zip(chosen, handed_over.tolist(), strict=True):
        at = slice(begin, begin := begin + len(lane.jobs))
        results.append(
            None
            if refused
            else LaneResult(
                outcome=outcome[at],
                arrival_ps=lane.jobs.arrival_ps,
                scheduled_ps=scheduled[at],
                first_token_ps=first[at],
                done_ps=done[at],
                output_tokens=outputs[at],
                preemptions=preemptions[at],
            )
        )
    return results
