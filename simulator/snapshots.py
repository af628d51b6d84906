"""A replica's load as values, at the moment up to which its state has been run (SCH-2)."""

from simulator.scheduler import Snapshot
from simulator.state import LOG_WIDTH, ReplicaState
from simulator.timing import PS_PER_S, steps_within, stretch_ps

RATE_WINDOW_PS = PS_PER_S
"""How far back `recent_output_tokens_per_second` looks."""


def steps_elapsed(state: ReplicaState, now_ps: int) -> int:
    """Return how many steps of the uncommitted stretch are over by `now_ps`."""
    if state.planned_end is None or state.in_flight:
        return 0
    return steps_within(now_ps - state.now, state.planned_a, state.planned_b)


def observe(state: ReplicaState, now_ps: int, changes: int) -> Snapshot:
    """Return the load at `now_ps`; `changes` counts what was handed in and what has ended.

    Waiting tokens are those to be computed before a first or next token. Held and free KV add
    up to the usable pool, whole blocks each.
    """
    arrived = []
    for slot in state.pending:
        if state.arrival[slot] > now_ps:
            break
        arrived.append(slot)
    waits = [state.arrival[slot] for slot in arrived[:1]]
    if state.config.priority_scheduling:
        waits += [entry[1] for entry in state.urgent if state.done[entry[3]] < 0]
    else:
        first = next((slot for slot in state.queue if state.done[slot] < 0), None)
        waits += [] if first is None else [state.arrival[first]]
    ran = state.iteration + (1 if state.in_flight else steps_elapsed(state, now_ps))
    free = state.free_blocks_at(ran)
    block_tokens = state.config.block_tokens
    queued = len(state.queue) + len(state.urgent) - state.dropped
    return Snapshot(
        observed_ps=now_ps,
        revision=changes + ran,
        waiting_requests=queued + len(arrived),
        running_requests=len(state.running),
        waiting_input_tokens=state.waiting_tokens + sum(state.length[slot] for slot in arrived),
        reserved_kv_tokens=(state.config.usable_blocks - free) * block_tokens,
        free_kv_tokens=free * block_tokens,
        oldest_wait_ps=now_ps - min(waits, default=now_ps),
        recent_output_tokens_per_second=_recent_tokens(state, now_ps) * PS_PER_S / RATE_WINDOW_PS,
    )


def _recent_tokens(state: ReplicaState, now_ps: int) -> int:
    """Return the tokens emitted in the last RATE_WINDOW_PS up to `now_ps`."""
    since_ps, tokens = now_ps - RATE_WINDOW_PS, 0
    if state.planned_end is not None and not state.in_flight:
        begun = steps_within(since_ps - state.now, state.planned_a, state.planned_b)
        tokens = (steps_elapsed(state, now_ps) - begun) * state.decodes
    for rows in (state.log, state.log_store):
        for row in range(len(rows) - LOG_WIDTH, -1, -LOG_WIDTH):
            _, start_ps, steps, a, b, emitted = rows[row : row + LOG_WIDTH]
            if start_ps + stretch_ps(steps, a, b) <= since_ps:
                return tokens
            tokens += (steps - steps_within(since_ps - start_ps, a, b)) * emitted
    return tokens
