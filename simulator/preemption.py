"""The exact, job-by-job part of scheduling: shortage of KV or budget, preemption, cancels.

The engine comes here only where an iteration's running can't all get what they want, or where
the order among them decides what the prefix cache publishes. Costs O(running) an iteration.
Semantics: SCHEDULING 2-4 and 7 in scheduler.py.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from simulator.state import (
    CANCELLED,
    DECODING,
    DROPPED,
    ENDED,
    PREFILLING,
    WAITING,
    ReplicaState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSchedule:
    """What the running got: (slot, tokens) of those that are not plain decodes, and the rest."""

    chunks: list[tuple[int, int]]
    budget: int
    preempted: int
    empty: bool


def schedule_running(state: ReplicaState) -> RunningSchedule:
    """Return what the running get in the next iteration, preempting where KV runs short.

    Decodes that get nothing turn into prefills of one token, so that all that are left in the
    state's sums really run. With an empty schedule no iteration takes place.
    """
    config, block_tokens = state.config, state.config.block_tokens
    iteration = state.iteration
    order = list(state.running.values())
    scheduled: dict[int, tuple[int, int]] = {}
    budget, preempted, index = config.max_num_batched_tokens, 0, 0
    free = state.free_blocks_at(iteration)
    stopped = False
    while index < len(order) and budget > 0 and not stopped:
        slot = order[index]
        if state.status[slot] == DECODING:
            computed, tokens = state.base[slot] + iteration, 1
            held = -(-computed // block_tokens)
        else:
            computed, held = state.computed[slot], state.blocks[slot]
            gap = state.input[slot] + state.generated[slot] - computed
            tokens = min(gap, config.chunk_limit, budget)
        needed = -(-(computed + tokens) // block_tokens) - held
        while needed > free:
            victim = order[-1]
            if config.priority_scheduling:
                victim = max(order, key=state.urgency)
            extra = 0
            if victim in scheduled:
                returned, extra = scheduled.pop(victim)
                budget += returned
                index -= 1
            order.remove(victim)
            free = _preempt(state, victim, extra, free)
            preempted += 1
            if victim == slot:
                stopped = True
                break
        if stopped:
            break
        free -= needed
        scheduled[slot] = (tokens, needed)
        _publish(state, slot, computed + tokens, free)
        budget -= tokens
        index += 1
    while state.publications and state.publications[0][0] <= iteration + 1:
        heappop(state.publications)
    if scheduled:
        _demote_unscheduled(state, order, scheduled)
    chunks = []
    for slot, (tokens, needed) in scheduled.items():
        if state.status[slot] != DECODING:
            state.blocks[slot] += needed
            state.fixed_blocks += needed
            chunks.append((slot, tokens))
    return RunningSchedule(
        chunks=chunks, budget=budget, preempted=preempted, empty=not scheduled
    )


def _demote_unscheduled(
    state: ReplicaState, order: list[int], scheduled: dict[int, tuple[int, int]]
) -> None:
    demoted = False
    for slot in order:
        if slot not in scheduled and state.status[slot] == DECODING:
            state.close_run(slot)
            state.leave_decoding(slot)
            demoted = True
    if demoted:
        state.prefilling[:] = [slot for slot in order if state.status[slot] == PREFILLING]


def _publish(state: ReplicaState, slot: int, computed: int, free: int) -> None:
    hashes, cache = state.hashes[slot], state.cache
    if cache is None or state.tracked[slot] >= len(hashes):
        return
    cache.settle(free)
    became_tracked = cache.publish(slot, hashes, computed // state.config.block_tokens)
    if not became_tracked:
        return
    state.tracked[slot] += became_tracked
    if state.status[slot] == DECODING:
        state.decode_blocks -= became_tracked
        state.fixed_blocks += became_tracked
        push_publication(state, slot)


def push_publication(state: ReplicaState, slot: int) -> None:
    """Note when a decode will next fill a block whose hash came with the job."""
    tracked = state.tracked[slot]
    if tracked < len(state.hashes[slot]):
        iteration = (tracked + 1) * state.config.block_tokens - state.base[slot]
        if iteration <= state.done_iteration[slot]:
            heappush(state.publications, (iteration, slot))


def _preempt(state: ReplicaState, slot: int, extra_blocks: int, free: int) -> int:
    """Send a running job back to the waiting; return the free blocks then."""
    if state.status[slot] == DECODING:
        state.close_run(slot)
    free = _leave_running(state, slot, extra_blocks, free, keep_own=True)
    state.computed[slot] = 0
    state.preemptions[slot] += 1
    state.enqueue(slot, at_head=True)
    return free


def _leave_running(
    state: ReplicaState, slot: int, extra_blocks: int, free: int, *, keep_own: bool
) -> int:
    """Free a running job's blocks and `extra_blocks` of this iteration; return the free then."""
    if state.status[slot] == DECODING:
        state.leave_decoding(slot)
    else:
        state.prefilling.remove(slot)
    del state.running[state.admission[slot]]
    cache, full_blocks = state.cache, state.computed[slot] // state.config.block_tokens
    freed_tracked = 0
    if cache is not None:
        cache.settle(free)
        state.tracked[slot] -= cache.retract(slot, full_blocks)
    private_blocks = state.blocks[slot] - state.tracked[slot]
    if cache is not None:
        own_published = max(0, full_blocks - len(state.hashes[slot]))
        freed_tracked = cache.release(
            slot, private_blocks + extra_blocks, own_published, keep_own
        )
    state.fixed_blocks -= private_blocks + freed_tracked
    state.blocks[slot] = state.tracked[slot] = 0
    return free + private_blocks + extra_blocks + freed_tracked


def cancel_due(state: ReplicaState) -> None:
    """End, as cancelled, what asked for it by the present boundary and has not ended."""
    while state.cancels and state.cancels[0][0] <= state.now:
        _, serial, slot = heappop(state.cancels)
        status = state.status[slot]
        if state.serial[slot] != serial or status not in (WAITING, PREFILLING, DECODING):
            continue
        if status == WAITING:
            state.waiting_tokens -= state.input[slot] + state.generated[slot]
            state.dropped += 1
            state.status[slot] = DROPPED
            if state.cache is not None:
                state.cache.forget(slot)
        else:
            free = state.free_blocks_at(state.iteration)
            _leave_running(state, slot, 0, free, keep_own=False)
            state.status[slot] = ENDED
        state.done[slot] = state.now
        state.outcome[slot] = CANCELLED
        state.ended.append(slot)
