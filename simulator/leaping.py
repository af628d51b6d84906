"""The engine's loop again, for whole traces of plain jobs: the same times in a third of the work.

Plain: first come first served, nothing hashed, nobody cancels, no prefill threshold. Then what is
partly prefilled is one job, the last of the running, and nothing has to be asked of a cache, a
priority or a caller. Where KV runs short it stops at that boundary: stepping.py decides who goes.
Semantics: SCHEDULING in scheduler.py; source SIM-1.
"""

from heapq import heapify, heappop, heappush
from math import sqrt

from simulator.state import ENTRY_BITS, ENTRY_MASK, LOG_CHUNK, NEVER, ReplicaState
from simulator.timing import MAX_PS

NEARLY_2 = 2.0 * (1.0 - 1e-12)
"""Keeps a root that was estimated in floating point from exceeding the exact one."""


def suits_leaping(state: ReplicaState) -> bool:
    """Return whether a state whose jobs are all known is plain."""
    config = state.config
    plain = not config.priority_scheduling and not config.long_prefill_token_threshold
    return plain and not state.cancels and state.cache is None


def leap(state: ReplicaState, limit_ps: int) -> None:
    """Run `state` from a boundary until KV runs short, nothing is left, or `limit_ps` has passed.

    Unlike stepping, it commits an iteration or a stretch that begins before the limit, even if
    it ends after it: nobody may hand in anything between.
    """
    config, model = state.config, state.model
    block_tokens, raise_by = config.block_tokens, config.block_tokens - 1
    usable, watermark = config.usable_blocks, config.watermark_blocks
    admissible, seldom_short = usable - watermark, usable * 3 // 4
    max_seqs, max_tokens = config.max_num_seqs, config.max_num_batched_tokens
    chunked, whole_must_fit = config.chunked_prefill, config.full_sequence_must_fit
    table, per_decode, mixed_ps = state.batch_table, model.per_decode_ps, model.mixed_ps
    per_context, per_pair = model.per_context_token_ps, model.per_attention_pair_ps
    pending, completions, log = state.pending, state.completions, state.log
    arrival, length, remaining = state.arrival, state.length, state.remaining
    final_blocks, computed, blocks = state.final_blocks, state.computed, state.blocks
    scheduled, first_token, done = state.scheduled, state.first_token, state.done
    done_iteration, growth = state.done_iteration, state.growth
    decode_ps = [f + per_decode * count for count, f in enumerate(table[: max_seqs + 1])]

    # The waiting are the pending whose arrival has passed: one queue instead of two.
    pending.extendleft(reversed(state.queue))
    state.queue.clear()
    next_arrival = arrival[pending[0]] if pending else MAX_PS
    # The running in order of admission, with those that have ended since; completions name slots.
    admitted = list(state.running.values())
    partial = state.prefilling[0] if state.prefilling else NEVER
    completions[:] = [done_iteration[slot] << ENTRY_BITS | slot for slot in admitted if slot != partial]
    heapify(completions)
    next_end = completions[0] >> ENTRY_BITS if completions else MAX_PS
    now, iteration, decodes = state.now, state.iteration, state.decodes
    context = state.decode_offset_sum + decodes * iteration
    decode_blocks, fixed, committed = state.decode_blocks, state.fixed_blocks, state.committed
    counts_blocks = True
    entering: list[int] = []

    while now < limit_ps:
        known = committed > usable
        if known:
            if not counts_blocks:
                counts_blocks, decode_blocks = True, _count_blocks(state)
            whole, rest = divmod(iteration + 1, block_tokens)
            free = usable - fixed - decode_blocks - decodes * whole
            free -= sum(growth[block_tokens - rest :])
            if free < 0:
                break
        elif counts_blocks and committed < seldom_short:
            counts_blocks = False
        if next_arrival <= now or partial >= 0:
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
                    if more > free:
                        break
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
                next_arrival = arrival[pending[0]] if pending else MAX_PS
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
            exact = prefill > 0 or single > decodes
        else:
            exact = False

        if exact:
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
            log += (iteration - 1, begin, 1, a, 0, decodes)
            if len(log) > LOG_CHUNK:
                state.flush_log()
        elif decodes:
            # A stretch of pure decode steps, as long as nothing can change the batch.
            steps = next_end - iteration
            if committed > usable:
                grown = decodes * ((iteration + steps) // block_tokens + 1)
                if usable < fixed + decode_blocks + grown:
                    state.iteration, state.decodes = iteration, decodes
                    state.decode_blocks, state.fixed_blocks = decode_blocks, fixed
                    steps = state.last_fitting(steps)
            b = per_context * decodes
            a = decode_ps[decodes] + per_context * context
            end = now + steps * a + b * (steps * (steps - 1) // 2)
            # An arrival behind a blocked head, or with no seat left, can't change the batch.
            if now < next_arrival < end and decodes < max_seqs:
                # The first boundary at or after it: estimated just below, then exact.
                span = float(next_arrival - now)
                slope = a - 0.5 * b
                steps = int(NEARLY_2 * span / (slope + sqrt(slope * slope + 2.0 * b * span))) or 1
                end = now + steps * a + b * (steps * (steps - 1) // 2)
                while end < next_arrival:
                    end += a + b * steps
                    steps += 1
            log += (iteration, now, steps, a, b, decodes)
            iteration += steps
            context += steps * decodes
            now = end
        elif next_arrival < MAX_PS:
            now = next_arrival
            continue
        else:
            break

        while next_end <= iteration:
            slot = heappop(completions) & ENTRY_MASK
            next_end = completions[0] >> ENTRY_BITS if completions else MAX_PS
            done[slot] = now
            decodes -= 1
            committed -= final_blocks[slot]
            held = length[slot] + remaining[slot] - 1
            context -= held
            if counts_blocks:
                raised = held - iteration + raise_by
                growth[raised % block_tokens] -= 1
                decode_blocks -= raised // block_tokens

    if not counts_blocks:
        decode_blocks = _count_blocks(state)
    state.now, state.iteration, state.decodes = now, iteration, decodes
    state.decode_offset_sum = context - decodes * iteration
    state.decode_blocks, state.fixed_blocks, state.committed = decode_blocks, fixed, committed
    _name_running(state, [slot for slot in admitted if done[slot] < 0], partial)


def _count_blocks(state: ReplicaState) -> int:
    """Fill in how the decodes' blocks grow, and return their number before any growth."""
    block_tokens, decode_blocks = state.config.block_tokens, 0
    state.growth[:] = [0] * block_tokens
    for entry in state.completions:
        raised = state.offset(entry & ENTRY_MASK) + block_tokens - 1
        state.growth[raised % block_tokens] += 1
        decode_blocks += raised // block_tokens
    return decode_blocks


def _name_running(state: ReplicaState, running: list[int], partial: int) -> None:
    """Give those that run on their admission numbers, in their order."""
    state.prefilling[:] = [partial] if partial >= 0 else []
    state.waiting_tokens = state.stale = 0
    state.running.clear()
    state.completions.clear()
    for slot in running:
        number = state.admission[slot] = state.admissions
        state.admissions += 1
        state.running[number] = slot
        if slot != partial:
            state.completions.append(state.done_iteration[slot] << ENTRY_BITS | number)
    heapify(state.completions)
