"""The engine's loop again, for whole traces of plain jobs: the same times in half of the work.

Plain: first come first served, nothing hashed, nobody cancels, no prefill threshold. Then what is
partly prefilled is one job, the last of the running; who gives way is always the last; and
nothing has to be asked of a cache, a priority or a caller. Semantics: SCHEDULING in scheduler.py;
source SIM-1.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import sqrt

import numpy as np

from simulator.state import (
    ENTRY_BITS,
    ENTRY_MASK,
    NEVER,
    NO_MORE,
    ReplicaState,
    ints_of,
)
from simulator.timing import MAX_PS, beyond_time, steps_until, stretch_ps

ROOT_ERROR = 1e-5
"""More than a root in floating point can be wrong by: it is below 2**24 steps, good to 2**-50."""
ROW_WIDTH = 4
"""A row is (start ps, steps, a ps, tokens emitted a step); the rest of the log follows from it."""
ROWS_CHUNK = 8192 * ROW_WIDTH


def is_plain(state: ReplicaState) -> bool:
    """Return whether a state whose jobs are all pending can leap."""
    config = state.config
    ordered = not config.priority_scheduling and not config.long_prefill_token_threshold
    return ordered and not state.cancels and state.cache is None


def leap(state: ReplicaState, progress: Callable[[float], None] | None = None) -> None:
    """Run a plain state, all of whose jobs are pending, until all have ended.

    `progress` hears now and then the share that was admitted. Raises OverflowError where times
    leave the range of MAX_PS.
    """
    config, model = state.config, state.model
    block_tokens, raise_by = config.block_tokens, config.block_tokens - 1
    usable, watermark = config.usable_blocks, config.watermark_blocks
    admissible, seldom_short = usable - watermark, usable * 3 // 4
    max_seqs, max_tokens = config.max_num_seqs, config.max_num_batched_tokens
    chunked, whole_must_fit = config.chunked_prefill, config.full_sequence_must_fit
    table, per_decode, mixed_ps = state.batch_table, model.per_decode_ps, model.mixed_ps
    per_context, per_pair = model.per_context_token_ps, model.per_attention_pair_ps
    pending, completions = state.pending, state.completions
    arrival, length, remaining = state.arrival, state.length, state.remaining
    final_blocks, computed, blocks = state.final_blocks, state.computed, state.blocks
    scheduled, first_token, done = state.scheduled, state.first_token, state.done
    done_iteration, growth = state.done_iteration, state.growth
    decode_ps = [f + per_decode * count for count, f in enumerate(table[: max_seqs + 1])]

    # Waiting are the pending whose arrival has passed. `admitted` are the running in their order,
    # with some that have ended since. The blocks of decodes are only counted where KV is scarce.
    admitted: list[int] = []
    partial, counts_blocks = NEVER, False
    jobs = len(pending)
    next_arrival = arrival[pending[0]] if pending else NO_MORE
    next_end = NO_MORE
    now = iteration = decodes = context = decode_blocks = fixed = committed = 0
    entering: list[int] = []
    rows: list[int] = []

    while True:
        while next_end <= iteration:
            slot = heappop(completions) & ENTRY_MASK
            next_end = completions[0] >> ENTRY_BITS if completions else NO_MORE
            done[slot] = now
            decodes -= 1
            committed -= final_blocks[slot]
            held = length[slot] + remaining[slot] - 1
            context -= held
            if counts_blocks:
                raised = held - iteration + raise_by
                growth[raised % block_tokens] -= 1
                decode_blocks -= raised // block_tokens
        # `known`: whether `free`, what the running will leave, has been counted.
        gave_way = known = False
        if counts_blocks:
            if committed > usable:
                whole, rest = divmod(iteration + 1, block_tokens)
                free = usable - fixed - decode_blocks - decodes * whole
                free -= sum(growth[block_tokens - rest :])
                known = True
                needed = 0
                if partial >= 0:
                    reach = min(length[partial], computed[partial] + max_tokens - decodes)
                    needed = -(-reach // block_tokens) - blocks[partial]
                if needed > free:
                    # The last gives way, and the next to last, until what the others take is there.
                    gave_way = True
                    if partial >= 0:
                        free += blocks[partial]
                        fixed -= blocks[partial]
                        committed -= final_blocks[partial]
                        _send_back(state, admitted.pop())
                        partial = NEVER
                    while free < 0:
                        slot = admitted.pop()
                        if done[slot] >= 0:
                            continue
                        last = done_iteration[slot]
                        emitted = iteration - last + remaining[slot]
                        state.runs.setdefault(slot, []).append((iteration - emitted + 1, emitted))
                        length[slot] += emitted
                        remaining[slot] -= emitted
                        held = length[slot] - 1
                        free += held // block_tokens + 1
                        raised = held - iteration + raise_by
                        growth[raised % block_tokens] -= 1
                        decode_blocks -= raised // block_tokens
                        decodes -= 1
                        context -= held
                        committed -= final_blocks[slot]
                        completions.remove(last << ENTRY_BITS | slot)
                        _send_back(state, slot)
                    heapify(completions)
                    next_end = completions[0] >> ENTRY_BITS if completions else NO_MORE
                    next_arrival = arrival[pending[0]]
                    if not decodes:
                        continue
            elif committed < seldom_short:
                counts_blocks = False
        if (next_arrival <= now or partial >= 0) and not gave_way:
            prefill = pairs = 0
            single, together = decodes, context
            left, seats = max_tokens - decodes, max_seqs - decodes
            if partial >= 0:
                start = computed[partial]
                gap = tokens = length[partial] - start
                if tokens > left:
                    tokens = left
                more = -(-(start + tokens) // block_tokens) - blocks[partial]
                if known:
                    free -= more
                if gap == 1:
                    single += 1
                    together += start
                else:
                    prefill = tokens
                    pairs = tokens * start + tokens * (tokens - 1) // 2
                left -= tokens
                seats -= 1
                if tokens == gap:
                    fixed -= blocks[partial]
                    entering.append(partial)
                    partial = NEVER
                else:
                    computed[partial] = start + tokens
                    blocks[partial] += more
                    fixed += more
            while next_arrival <= now and left > 0 and seats > 0:
                slot = pending[0]
                gap = tokens = length[slot]
                if tokens > left:
                    if not chunked:
                        break
                    tokens = left
                promised = committed + final_blocks[slot]
                if known or promised > admissible:
                    if not known:
                        if not counts_blocks:
                            counts_blocks, decode_blocks = True, _count_blocks(state)
                        whole, rest = divmod(iteration + 1, block_tokens)
                        free = usable - fixed - decode_blocks - decodes * whole
                        free -= sum(growth[block_tokens - rest :])
                        for other in entering:
                            free -= -(-length[other] // block_tokens)
                        known = True
                    held = -(-tokens // block_tokens)
                    needed = -(-gap // block_tokens) if whole_must_fit else held
                    if needed + watermark > free:
                        break
                    free -= held
                pending.popleft()
                next_arrival = arrival[pending[0]] if pending else NO_MORE
                committed = promised
                admitted.append(slot)
                if scheduled[slot] < 0:
                    scheduled[slot] = now
                left -= tokens
                seats -= 1
                if gap == 1:
                    single += 1
                else:
                    prefill += tokens
                    pairs += tokens * (tokens - 1) // 2
                if tokens == gap:
                    entering.append(slot)
                else:
                    partial = slot
                    computed[slot] = tokens
                    blocks[slot] = held = -(-tokens // block_tokens)
                    fixed += held
            if prefill or single > decodes:
                a = table[prefill + single] + per_decode * single + per_context * together
                if prefill:
                    a += per_pair * pairs + mixed_ps
                context += decodes
                begin, now = now, now + a
                iteration += 1
                for slot in entering:
                    if first_token[slot] < 0:
                        first_token[slot] = now
                    last = iteration + remaining[slot] - 1
                    done_iteration[slot] = last
                    heappush(completions, last << ENTRY_BITS | slot)
                    if last < next_end:
                        next_end = last
                    decodes += 1
                    context += length[slot]
                    if counts_blocks:
                        raised = length[slot] - iteration + raise_by
                        growth[raised % block_tokens] += 1
                        decode_blocks += raised // block_tokens
                entering.clear()
                rows += (begin, 1, a, decodes)
                if len(rows) > ROWS_CHUNK:
                    flush_rows(state, rows, iteration)
                    if progress is not None:
                        progress(1.0 - len(pending) / jobs)
                if next_end <= iteration or next_arrival <= now or partial >= 0 or counts_blocks:
                    continue
        if decodes:
            # A stretch of pure decode steps, as long as nothing can change the batch.
            steps = next_end - iteration
            if gave_way:
                steps = 1
            elif known:
                grown = decodes * ((iteration + steps) // block_tokens + 1)
                if usable < fixed + decode_blocks + grown:
                    state.iteration, state.decodes = iteration, decodes
                    state.decode_blocks, state.fixed_blocks = decode_blocks, fixed
                    steps = state.last_fitting(steps)
            b = per_context * decodes
            a = decode_ps[decodes] + per_context * context
            took = steps * a + b * (steps * (steps - 1) // 2)
            span = next_arrival - now
            # An arrival behind a blocked head, or with no seat left, can't change the batch.
            if 0 < span < took and decodes < max_seqs:
                # The first boundary at or after it: the root in floating point, rounded up, is
                # exact unless it lies as near to a whole number as its error may be.
                slope, wide = a - 0.5 * b, float(span)
                root = 2.0 * wide / (slope + sqrt(slope * slope + 2.0 * b * wide))
                steps = int(root) + 1
                if not ROOT_ERROR < steps - root < 1.0 - ROOT_ERROR:
                    steps = steps_until(span, a, b)
                took = steps * a + b * (steps * (steps - 1) // 2)
            rows += (now, steps, a, decodes)
            iteration += steps
            context += steps * decodes
            now += took
        elif next_arrival < NO_MORE:
            now = next_arrival
        else:
            break

    flush_rows(state, rows, iteration)


def _send_back(state: ReplicaState, slot: int) -> None:
    """Put a job that gave way, and holds nothing any more, at the head of the waiting."""
    state.computed[slot] = state.blocks[slot] = 0
    state.preemptions[slot] += 1
    state.pending.appendleft(slot)


def flush_rows(state: ReplicaState, rows: list[int], iteration: int) -> None:
    """Move rows, of which the last ended with `iteration`, to the state's log.

    Raises OverflowError where times left the range of MAX_PS.
    """
    if not rows:
        return
    begin, steps_last, a_last, emitted_last = rows[-ROW_WIDTH:]
    b_last = state.model.per_context_token_ps * emitted_last
    if begin + stretch_ps(steps_last, a_last, b_last) >= MAX_PS:
        raise beyond_time()
    state.flush_log()
    start, steps, a, emitted = ints_of(rows).reshape(-1, ROW_WIDTH).T
    before = np.cumsum(steps) - steps
    before += iteration - int(steps.sum())
    b = state.model.per_context_token_ps * emitted
    columns = np.stack([before, start, steps, a, b, emitted], axis=1)
    state.log_store.frombytes(columns.tobytes())
    rows.clear()


def _count_blocks(state: ReplicaState) -> int:
    """Fill in how the decodes' blocks grow, and return their number before any growth."""
    block_tokens, decode_blocks = state.config.block_tokens, 0
    state.growth[:] = [0] * block_tokens
    for entry in state.completions:
        raised = state.offset(entry & ENTRY_MASK) + block_tokens - 1
        state.growth[raised % block_tokens] += 1
        decode_blocks += raised // block_tokens
    return decode_blocks
