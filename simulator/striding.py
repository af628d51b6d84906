"""The engine's loop while KV is plentiful: priorities, cancels and the prefix cache, at a stride.

As long as all that run and wait fit the pool with their last block, nobody is preempted, no block
is counted one by one, and no evicted block can have been one that somebody could hit. Where that
ends, where a decode will publish blocks, or with a prefill threshold, stepping.py takes over and
gives back. The clock may be ahead of the caller's limit by the one iteration that is under way.
Semantics: SCHEDULING in scheduler.py; source SIM-1.
"""

from collections.abc import Generator
from heapq import heapify, heappop, heappush
from math import sqrt

from simulator.leaping import ROOT_ERROR, ROW_WIDTH, ROWS_CHUNK, flush_rows
from simulator.preemption import cancel_due, push_publication
from simulator.state import CANCELLED, ENTRY_BITS, ENTRY_MASK, NEVER, NO_MORE, ReplicaState
from simulator.stepping import stepping
from simulator.timing import MAX_PS, steps_until

OBSERVE = -1
"""Sent in place of a limit: bring the state up to date for whoever looks at it, run nothing."""


CALM_ITERATIONS = 64
"""How often the exact loop looks whether it can give back."""


def pacing(state: ReplicaState) -> Generator[int, int, None]:
    """Run `state`: each `send(limit_ps)` handles what happens up to and including the limit.

    It answers with a time beyond the limit before which no job that it knows can end (MAX_PS where
    none is left). After `send(OBSERVE)`, which answers the same, the state can be observed.
    """
    limit = yield MAX_PS
    while True:
        if not state.config.long_prefill_token_threshold:
            limit = yield from _striding(state, limit)
        limit = yield from stepping(state, limit, calm_after=CALM_ITERATIONS)


def _striding(state: ReplicaState, limit: int) -> Generator[int, int, int]:
    """Run until the state needs the exact loop; return the limit that was to be reached."""
    config, model, cache = state.config, state.model, state.cache
    block_tokens, usable = config.block_tokens, config.usable_blocks
    admissible, chunked = usable - config.watermark_blocks, config.chunked_prefill
    max_seqs, max_tokens = config.max_num_seqs, config.max_num_batched_tokens
    by_priority = config.priority_scheduling
    table, per_decode, mixed_ps = state.batch_table, model.per_decode_ps, model.mixed_ps
    per_context, per_pair = model.per_context_token_ps, model.per_attention_pair_ps
    pending, cancels, running = state.pending, state.cancels, state.running
    completions, ended, priority = state.completions, state.ended, state.priority
    arrival, length, remaining = state.arrival, state.length, state.remaining
    final_blocks, hashes_of, tracked = state.final_blocks, state.hashes, state.tracked
    computed, admission, serial = state.computed, state.admission, state.serial
    scheduled, first_token, done = state.scheduled, state.first_token, state.done
    done_iteration, cached = state.done_iteration, state.cached
    decode_ps = [f + per_decode * count for count, f in enumerate(table[: max_seqs + 1])]
    least_ps = table[1]
    fcfs, urgent = state.queue, state.urgent
    queue = urgent if by_priority else fcfs
    own = {} if cache is None else cache.own
    if cache is not None:
        take, release = cache.take, cache.release

    # `promised`: final blocks of the waiting. `spare`: blocks that may be allocated before one
    # that somebody could hit is evicted, less all that those admitted will still allocate.
    now, iteration, number = state.now, state.iteration, state.admissions
    decodes, context, committed, partial, shared = _read(state)
    promised = sum(final_blocks[slot] for slot in state.waiting())
    spare = NO_MORE if cache is None else 0
    next_end = completions[0] >> ENTRY_BITS if completions else NO_MORE
    next_arrival = arrival[pending[0]] if pending else NO_MORE
    next_cancel = cancels[0][0] if cancels else NO_MORE
    entering: list[int] = []
    reaching: list[int] = []
    rows: list[int] = []
    due, planned = now, False
    steps = a = b = took = 0

    while True:
        if due > limit:
            state.room = admissible - committed - promised
            reached, limit = limit, (yield due)
            if limit == OBSERVE:
                limit = reached
                under_way = rows[-ROW_WIDTH:] if now > limit else []
                if under_way:
                    del rows[-ROW_WIDTH:]
                flush_rows(state, rows, iteration - bool(under_way))
                rows += under_way
                _write(state, now, iteration, number, decodes, context, committed, partial, shared)
                state.waiting_tokens = sum(length[slot] for slot in state.waiting())
                state.planned_end = due if decodes else None
                state.planned_a = decode_ps[decodes] + per_context * context
                state.planned_b = per_context * decodes
                continue
            due = limit
            if pending:
                next_arrival = arrival[pending[0]]
                if next_arrival <= now:
                    planned = False
            if cancels:
                next_cancel = cancels[0][0]
                if next_cancel <= now:
                    planned = False

        if not planned:
            # What has happened by this boundary: ends first, then arrivals, then cancels.
            if next_end <= iteration:
                if now > limit:
                    due = now
                    continue
                while next_end <= iteration:
                    slot = running.pop(heappop(completions) & ENTRY_MASK)
                    next_end = completions[0] >> ENTRY_BITS if completions else NO_MORE
                    done[slot] = now
                    ended.append(slot)
                    decodes -= 1
                    held = final_blocks[slot]
                    committed -= held
                    context -= length[slot] + remaining[slot] - 1
                    if cache is not None:
                        known = tracked[slot]
                        shared += known - release(slot, held - known, 0, False)
            while next_arrival <= now:
                slot = pending.popleft()
                promised += final_blocks[slot]
                if by_priority:
                    heappush(urgent, (priority[slot], next_arrival, serial[slot], slot))
                else:
                    fcfs.append(slot)
                next_arrival = arrival[pending[0]] if pending else NO_MORE
            if next_cancel <= now:
                slot = cancels[0][2]
                if done[slot] >= 0:
                    heappop(cancels)
                    next_cancel = cancels[0][0] if cancels else NO_MORE
                    continue
                if now > limit:
                    due = now
                    continue
                if admission[slot] < 0:
                    heappop(cancels)
                    state.withdraw(slot)
                    promised -= final_blocks[slot]
                    done[slot], state.outcome[slot] = now, CANCELLED
                    ended.append(slot)
                    next_cancel = cancels[0][0] if cancels else NO_MORE
                    continue
                _write(state, now, iteration, number, decodes, context, committed, partial, shared)
                cancel_due(state)
                completions[:] = [entry for entry in completions if entry & ENTRY_MASK in running]
                heapify(completions)
                state.stale = 0
                if state.dropped:
                    state.sweep()
                    promised = sum(final_blocks[slot] for slot in state.waiting())
                decodes, context, committed, partial, shared = _read(state)
                next_end = completions[0] >> ENTRY_BITS if completions else NO_MORE
                next_cancel = cancels[0][0] if cancels else NO_MORE

            if queue or partial >= 0 or reaching:
                if now >= limit:
                    due = now + least_ps
                    if next_cancel < due:
                        due = next_cancel
                    continue
                if spare < promised or committed + promised > admissible or reaching:
                    # No more can be admitted now than there are seats.
                    seats = max_seqs - len(running)
                    coming = sum(final_blocks[slot] for slot in state.heads(seats))
                    calm = committed + coming <= admissible and not reaching
                    if not calm or spare < coming:
                        _write(
                            state,
                            now,
                            iteration,
                            number,
                            decodes,
                            context,
                            committed,
                            partial,
                            shared,
                        )
                    if calm and spare < coming and cache is not None:
                        free = state.free_blocks_at(iteration)
                        cache.settle(free)
                        spare = cache.never_hit_next() - (committed - (usable - shared - free))
                    if not calm or spare < coming:
                        flush_rows(state, rows, iteration)
                        for slot in reaching:
                            if done_iteration[slot] > iteration:
                                push_publication(state, slot)
                        state.waiting_tokens = sum(length[slot] for slot in state.waiting())
                        state.room = NEVER
                        return limit
                single, together, prefill, pairs = decodes, context, 0, 0
                left = max_tokens - decodes
                if partial >= 0:
                    slot = partial
                    start = computed[slot]
                    gap = tokens = length[slot] - start
                    if tokens > left:
                        tokens = left
                    if gap == 1:
                        single += 1
                        together += start
                    else:
                        prefill = tokens
                        pairs = tokens * start + tokens * (tokens - 1) // 2
                    left -= tokens
                    computed[slot] = start + tokens
                    if tracked[slot] < len(hashes_of[slot]) and cache is not None:
                        tracked[slot] += cache.publish(
                            slot, hashes_of[slot], (start + tokens) // block_tokens
                        )
                    if tokens == gap:
                        entering.append(slot)
                        partial = NEVER
                while queue and left > 0 and len(running) < max_seqs:
                    slot = urgent[0][3] if by_priority else fcfs[0]
                    gap, start, hashes = length[slot], 0, hashes_of[slot]
                    if cache is not None and (hashes or slot in own):
                        most = (gap - 1) // block_tokens
                        if not chunked:
                            hits, _ = cache.lookup(slot, hashes, most)
                            if gap - hits * block_tokens > left:
                                break
                        hits, unowned = take(slot, hashes, most)
                        shared += unowned - hits
                        start = hits * block_tokens
                        gap -= start
                        tokens = gap if gap < left else left
                        if hits < len(hashes):
                            tracked[slot] = hits + cache.publish(
                                slot, hashes, (start + tokens) // block_tokens
                            )
                            if len(hashes) * block_tokens > length[slot]:
                                reaching.append(slot)  # blocks will be published as it decodes
                        else:
                            tracked[slot] = len(hashes)
                    elif gap <= left:
                        tokens = gap
                    elif chunked:
                        tokens = left
                    else:
                        break
                    heappop(urgent) if by_priority else fcfs.popleft()
                    held = final_blocks[slot]
                    promised -= held
                    committed += held
                    spare -= held
                    running[number] = slot
                    admission[slot] = number
                    number += 1
                    left -= tokens
                    if scheduled[slot] < 0:
                        scheduled[slot] = now
                        cached[slot] = start
                    if gap == 1:
                        single += 1
                        together += start
                    else:
                        prefill += tokens
                        pairs += tokens * start + tokens * (tokens - 1) // 2
                    if tokens == gap:
                        entering.append(slot)
                    else:
                        partial = slot
                        computed[slot] = start + tokens
                if prefill or single > decodes:
                    a = table[prefill + single] + per_decode * single + per_context * together
                    if prefill:
                        a += per_pair * pairs + mixed_ps
                    begin, now = now, now + a
                    context += decodes
                    iteration += 1
                    for slot in entering:
                        if first_token[slot] < 0:
                            first_token[slot] = now
                        last = iteration + remaining[slot] - 1
                        done_iteration[slot] = last
                        heappush(completions, last << ENTRY_BITS | admission[slot])
                        if last < next_end:
                            next_end = last
                        context += length[slot]
                        decodes += 1
                    entering.clear()
                    rows += (begin, 1, a, decodes)
                    if len(rows) > ROWS_CHUNK and now <= limit:
                        flush_rows(state, rows, iteration)
                    if partial >= 0 or next_end <= iteration or next_arrival <= now:
                        continue
                    if next_cancel <= now or reaching or queue:
                        continue
            if not decodes:
                if next_arrival <= limit:
                    now = next_arrival
                else:
                    due = MAX_PS
                continue

            # A stretch of pure decode steps, as long as nothing can change the batch.
            steps = next_end - iteration
            b = per_context * decodes
            a = decode_ps[decodes] + per_context * context
            took = steps * a + b * (steps * (steps - 1) // 2)

        span = next_cancel - now
        # An arrival behind a blocked head, or with no seat left, can't change the batch.
        if (
            next_arrival < next_cancel
            and (by_priority or not queue)
            and decodes < max_tokens
            and len(running) < max_seqs
        ):
            span = next_arrival - now
        if span < took:
            # The first boundary at or after it: the root in floating point, rounded up, is exact
            # unless it lies as near to a whole number as its error may be.
            slope, wide = a - 0.5 * b, float(span)
            root = 2.0 * wide / (slope + sqrt(slope * slope + 2.0 * b * wide))
            steps = int(root) + 1
            if not ROOT_ERROR < steps - root < 1.0 - ROOT_ERROR:
                steps = steps_until(span, a, b)
            took = steps * a + b * (steps * (steps - 1) // 2)
        if now + took > limit:
            planned = True
            due = now + took
            if limit < next_cancel < due:
                due = next_cancel  # an arrival could still bring the boundary after it forward
            continue
        planned = False
        rows += (now, steps, a, decodes)
        iteration += steps
        context += steps * decodes
        now += took


def _read(state: ReplicaState) -> tuple[int, int, int, int, int]:
    """Return decodes, their contexts, committed, the partly prefilled, shared blocks.

    Shared are the blocks that the prefix cache knows, less each job's count of them.
    """
    state.sweep()
    context = state.decode_offset_sum + state.decodes * state.iteration
    partial = state.prefilling[0] if state.prefilling else NEVER
    shared = state.fixed_blocks - (state.blocks[partial] if partial >= 0 else 0)
    return state.decodes, context, state.committed, partial, shared


def _write(
    state: ReplicaState,
    now: int,
    iteration: int,
    number: int,
    decodes: int,
    context: int,
    committed: int,
    partial: int,
    shared: int,
) -> None:
    """Bring the state up to date, its block counts included, which are not kept meanwhile."""
    block_tokens = state.config.block_tokens
    state.now, state.iteration, state.admissions = now, iteration, number
    state.decodes, state.decode_offset_sum = decodes, context - decodes * iteration
    state.committed, state.fixed_blocks = committed, shared
    state.prefilling[:] = [partial] if partial >= 0 else []
    if partial >= 0:
        state.blocks[partial] = -(-state.computed[partial] // block_tokens)
        state.fixed_blocks += state.blocks[partial]
    growth, decode_blocks = [0] * block_tokens, 0
    for entry in state.completions:
        raised = state.offset(state.running[entry & ENTRY_MASK]) + block_tokens - 1
        growth[raised % block_tokens] += 1
        decode_blocks += raised // block_tokens
    state.growth[:], state.decode_blocks = growth, decode_blocks
