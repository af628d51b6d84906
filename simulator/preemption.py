"""The exact, job-by-job part of scheduling: shortage of KV or budget, preemption, cancels.

The engine comes here only where an iteration's running can't all get what they want, or where
the order among them decides what the prefix cache publishes. Costs O(running) an iteration.
Semantics: SCHEDULING 2-4 and 7 in scheduler.py.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from simulator.kv import PrefixCache
from simulator.state import CANCELLED, NEVER, ReplicaState


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
    iteration, done_iteration = state.iteration, state.done_iteration
    length, remaining, cache = state.length, state.remaining, state.cache
    hashes, tracked = state.hashes, state.tracked
    order = list(state.running.values())
    scheduled: dict[int, tuple[int, int]] = {}
    budget, preempted, index = config.max_num_batched_tokens, 0, 0
    free = state.free_blocks_at(iteration)
    while index < len(order) and budget > 0:
        slot = order[index]
        last = done_iteration[slot]
        if last >= 0:
            computed, tokens = length[slot] + remaining[slot] - 1 - last + iteration, 1
            needed = 0 if computed % block_tokens else 1
        else:
            computed = state.computed[slot]
            tokens = min(length[slot] - computed, config.chunk_limit, budget)
            needed = -(-(computed + tokens) // block_tokens) - state.blocks[slot]
        victim = NEVER
        while needed > free and victim != slot:
            victim = order[-1]
            if config.priority_scheduling:
                victim = max(order, key=state.urgency)
            extra_blocks = 0
            if victim in scheduled:
                returned, extra_blocks = scheduled.pop(victim)
                budget += returned
                index -= 1
            order.remove(victim)
            free = _preempt(state, victim, extra_blocks, free)
            preempted += 1
        if victim == slot:
            break
        free -= needed
        scheduled[slot] = (tokens, needed)
        if cache is not None and tracked[slot] < len(hashes[slot]):
            _publish(state, cache, slot, computed + tokens, free)
        budget -= tokens
        index += 1
    if scheduled:  # else this iteration is still to come, and what it will publish with it
        while state.publications and state.publications[0][0] <= iteration + 1:
            heappop(state.publications)
        _demote_unscheduled(state, order, scheduled)
    chunks = []
    for slot, (tokens, needed) in scheduled.items():
        if state.done_iteration[slot] < 0:
            state.blocks[slot] += needed
            state.fixed_blocks += needed
            chunks.append((slot, tokens))
    return RunningSchedule(chunks=chunks, budget=budget, preempted=preempted, empty=not scheduled)


def _demote_unscheduled(
    state: ReplicaState, order: list[int], scheduled: dict[int, tuple[int, int]]
) -> None:
    demoted = [slot for slot in order if slot not in scheduled and state.done_iteration[slot] >= 0]
    for slot in demoted:
        state.leave_decoding(slot)
    if demoted:
        state.prefilling[:] = [slot for slot in order if state.done_iteration[slot] < 0]


def _publish(state: ReplicaState, cache: PrefixCache, slot: int, computed: int, free: int) -> None:
    cache.settle(free)
    full_blocks = computed // state.config.block_tokens
    became_tracked = cache.publish(slot, state.hashes[slot], full_blocks)
    state.tracked[slot] += became_tracked
    if became_tracked and state.done_iteration[slot] >= 0:
        push_publication(state, slot)


def push_publication(state: ReplicaState, slot: int) -> None:
    """Note when a decode will next fill a block whose hash came with the job."""
    tracked = state.tracked[slot]
    if tracked < len(state.hashes[slot]):
        iteration = (tracked + 1) * state.config.block_tokens - state.offset(slot)
        if iteration <= state.done_iteration[slot]:
            heappush(state.publications, (iteration, slot))


def _preempt(state: ReplicaState, slot: int, extra_blocks: int, free: int) -> int:
    """Send a running job back to the waiting; return the free blocks then."""
    free = _leave_running(state, slot, extra_blocks, free, keep_own=True)
    state.computed[slot] = 0
    state.preemptions[slot] += 1
    state.enqueue_again(slot)
    return free


def _leave_running(
    state: ReplicaState, slot: int, extra_blocks: int, free: int, *, keep_own: bool
) -> int:
    """Free a running job's blocks and `extra_blocks` of this iteration; return the free then."""
    if state.done_iteration[slot] >= 0:
        state.leave_decoding(slot)
    else:
        state.prefilling.remove(slot)
    del state.running[state.admission[slot]]
    state.admission[slot] = NEVER
    state.committed -= state.final_blocks[slot]
    state.fixed_blocks -= state.blocks[slot]
    freed = state.blocks[slot] + extra_blocks
    if state.cache is not None:
        full_blocks = state.computed[slot] // state.config.block_tokens
        state.cache.settle(free)
        tracked = state.tracked[slot]
        kept_tracked = tracked - state.cache.retract(slot, full_blocks)
        own_published = max(0, full_blocks - len(state.hashes[slot]))
        freed_tracked = state.cache.release(slot, freed - kept_tracked, own_published, keep_own)
        state.fixed_blocks += kept_tracked - freed_tracked
        freed += freed_tracked - kept_tracked
    state.blocks[slot] = state.tracked[slot] = 0
    return free + freed


def cancel_due(state: ReplicaState) -> None:
    """End, as cancelled, what asked for it by the present boundary and has not ended."""
    while state.cancels and state.cancels[0][0] <= state.now:
        _, serial, slot = heappop(state.cancels)
        if state.serial[slot] != serial or state.done[slot] >= 0:
            continue
        if state.admission[slot] < 0:
            state.drop(slot)
        else:
            free = state.free_blocks_at(state.iteration)
            _leave_running(state, slot, 0, free, keep_own=False)
        state.done[slot] = state.now
        state.outcome[slot] = CANCELLED
        state.ended.append(slot)
