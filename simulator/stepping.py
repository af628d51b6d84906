"""The engine's loop: from one iteration boundary to the next, skipping what can't change.

While no prefill is possible the batch is constant, so the decode steps up to the next
completion, arrival, cancel, shortage of KV or publication are one stretch with a closed form.
Everything else is one exact iteration. A generator, because its locals outlive a pause: driving
a replica event by event costs little more than running it through. Semantics: SCHEDULING in
scheduler.py; source SIM-1.
"""

from collections.abc import Generator
from heapq import heappop, heappush
from math import sqrt

from simulator.preemption import cancel_due, push_publication, schedule_running
from simulator.state import ENTRY_BITS, ENTRY_MASK, LOG_CHUNK, NEVER, NO_MORE, ReplicaState
from simulator.timing import MAX_PS, NEARLY_2


def stepping(
    state: ReplicaState, limit: int = -1, *, calm_after: int = 0
) -> Generator[int, int, int]:
    """Run `state`: each `send(limit_ps)` handles what happens up to and including the limit.

    It answers as striding.py does. With `calm_after` it looks every so many iterations whether
    that one can go on, and returns the present limit then.

    An iteration that would start at the limit waits for the next call, so that arrivals and
    cancels of that very moment still count. A stretch that ends beyond the limit stays
    uncommitted: it is only noted in `planned_end`, `planned_a` and `planned_b`.
    """
    config, model, cache = state.config, state.model, state.cache
    block_tokens, raise_by = config.block_tokens, config.block_tokens - 1
    usable, watermark = config.usable_blocks, config.watermark_blocks
    max_seqs, max_tokens = config.max_num_seqs, config.max_num_batched_tokens
    chunk_limit, chunked = config.chunk_limit, config.chunked_prefill
    whole_must_fit, by_priority = config.full_sequence_must_fit, config.priority_scheduling
    table, per_decode, mixed_ps = state.batch_table, model.per_decode_ps, model.mixed_ps
    per_context, per_pair = model.per_context_token_ps, model.per_attention_pair_ps
    pending, cancels, running = state.pending, state.cancels, state.running
    prefilling, completions = state.prefilling, state.completions
    publications, ended, growth = state.publications, state.ended, state.growth
    arrival, length, remaining = state.arrival, state.length, state.remaining
    final_blocks, hashes_of, tracked = state.final_blocks, state.hashes, state.tracked
    computed, blocks, admission = state.computed, state.blocks, state.admission
    scheduled, first_token, done = state.scheduled, state.first_token, state.done
    done_iteration, log = state.done_iteration, state.log
    priority, serial = state.priority, state.serial
    fcfs, urgent = state.queue, state.urgent
    queue = urgent if by_priority else fcfs

    now, iteration, number = state.now, state.iteration, state.admissions
    dropped, stale, waiting_tokens = state.dropped, state.stale, state.waiting_tokens
    decodes, offset_sum = state.decodes, state.decode_offset_sum
    decode_blocks, fixed, committed = state.decode_blocks, state.fixed_blocks, state.committed
    look_again = iteration + calm_after if calm_after else NO_MORE
    entering: list[int] = []

    next_arrival = arrival[pending[0]] if pending else NO_MORE
    next_cancel = cancels[0][0] if cancels else NO_MORE
    while True:
        # What has happened by this boundary: arrivals first, then cancels.
        while next_arrival <= now:
            slot = pending.popleft()
            waiting_tokens += length[slot]
            if by_priority:
                heappush(urgent, (priority[slot], next_arrival, serial[slot], slot))
            else:
                fcfs.append(slot)
            next_arrival = arrival[pending[0]] if pending else NO_MORE
        if next_cancel <= now:
            state.now, state.iteration, state.decodes = now, iteration, decodes
            state.decode_offset_sum, state.decode_blocks = offset_sum, decode_blocks
            state.fixed_blocks, state.committed, state.stale = fixed, committed, stale
            state.waiting_tokens, state.dropped = waiting_tokens, dropped
            cancel_due(state)
            decodes, offset_sum = state.decodes, state.decode_offset_sum
            decode_blocks, fixed = state.decode_blocks, state.fixed_blocks
            committed, stale = state.committed, state.stale
            waiting_tokens, dropped = state.waiting_tokens, state.dropped
            next_cancel = cancels[0][0] if cancels else NO_MORE
        if dropped or publications:
            while dropped and queue and done[urgent[0][3] if by_priority else fcfs[0]] >= 0:
                heappop(urgent) if by_priority else fcfs.popleft()
                dropped -= 1
            if not running:
                publications.clear()  # of jobs that left before they got there

        if iteration >= look_again and now <= limit:
            look_again = iteration + calm_after
            at_rest = not (queue or prefilling or publications or stale or dropped)
            if at_rest and 4 * committed < 3 * usable:
                state.now, state.iteration, state.admissions = now, iteration, number
                state.decodes, state.decode_offset_sum = decodes, offset_sum
                state.decode_blocks, state.fixed_blocks = decode_blocks, fixed
                state.committed, state.stale, state.dropped = committed, stale, dropped
                state.waiting_tokens = waiting_tokens
                state.flush_log()
                return limit

        exact_iteration = hits_may_go = False
        if queue or prefilling or publications or committed > usable:
            if now >= limit:
                state.now, state.iteration, state.decodes = now, iteration, decodes
                state.decode_offset_sum, state.decode_blocks = offset_sum, decode_blocks
                state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
                state.dropped, state.planned_end = dropped, None
                limit = yield limit + 1
                next_arrival = arrival[pending[0]] if pending else NO_MORE
                next_cancel = cancels[0][0] if cancels else NO_MORE
                continue
            step, tokens_left = iteration + 1, max_tokens - decodes
            prefill = pairs = free = 0
            single, context = decodes, offset_sum + decodes * iteration
            # `free` are the blocks left after what the running take, once that is `known`.
            known, can_admit = False, True

            # The running: all get what they want, or the exact schedule decides who does.
            if prefilling or publications or committed > usable:
                by_job = bool(publications) and publications[0][0] <= step
                tokens = needed = 0
                if prefilling:
                    slot = prefilling[0]
                    start = computed[slot]
                    gap = tokens = length[slot] - start
                    if tokens > chunk_limit:
                        tokens = chunk_limit
                    if tokens > tokens_left:
                        tokens = tokens_left
                    needed = -(-(start + tokens) // block_tokens) - blocks[slot]
                    if len(prefilling) > 1 or next(reversed(running)) != admission[slot]:
                        by_job = True
                publishes = bool(tokens) and tracked[slot] < len(hashes_of[slot])
                if committed > usable or publishes:
                    whole, rest = divmod(step, block_tokens)
                    free = usable - fixed - decode_blocks - decodes * whole
                    free -= sum(growth[block_tokens - rest :])
                    known = True
                    if needed > free:
                        by_job = True
                if by_job:
                    state.now, state.iteration, state.decodes = now, iteration, decodes
                    state.decode_offset_sum, state.decode_blocks = offset_sum, decode_blocks
                    state.fixed_blocks, state.committed, state.stale = fixed, committed, stale
                    state.waiting_tokens = waiting_tokens
                    running_schedule = schedule_running(state)
                    decodes, offset_sum = state.decodes, state.decode_offset_sum
                    decode_blocks, fixed = state.decode_blocks, state.fixed_blocks
                    committed, stale = state.committed, state.stale
                    waiting_tokens = state.waiting_tokens
                    if running_schedule.empty:
                        continue  # whoever came first gave way to itself; the others start over
                    tokens_left = running_schedule.budget
                    can_admit = not running_schedule.preempted
                    exact_iteration = bool(running_schedule.chunks) or not can_admit
                    single, context = decodes, offset_sum + decodes * iteration
                    free, known = state.free_blocks_at(step), True
                    for slot, tokens in running_schedule.chunks:
                        start = computed[slot]
                        gap = length[slot] - start
                        if gap == 1:
                            single += 1
                            context += start
                        else:
                            prefill += tokens
                            pairs += tokens * start + tokens * (tokens - 1) // 2
                        computed[slot] = start + tokens
                        if tokens == gap:
                            prefilling.remove(slot)
                            fixed -= blocks[slot]
                            entering.append(slot)
                elif tokens:
                    exact_iteration = True
                    tokens_left -= tokens
                    free -= needed
                    if gap == 1:
                        single += 1
                        context += start
                    else:
                        prefill += tokens
                        pairs += tokens * start + tokens * (tokens - 1) // 2
                    computed[slot] = start + tokens
                    if cache is not None and publishes:
                        cache.settle(free)
                        full = (start + tokens) // block_tokens
                        tracked[slot] += cache.publish(slot, hashes_of[slot], full)
                    if tokens == gap:
                        prefilling.clear()
                        fixed -= blocks[slot]
                        entering.append(slot)
                    else:
                        fixed += needed
                        blocks[slot] += needed

            # The waiting, head of line first, unless KV was so short that somebody had to go.
            while queue and tokens_left > 0 and can_admit and len(running) < max_seqs:
                slot = urgent[0][3] if by_priority else fcfs[0]
                if dropped and done[slot] >= 0:
                    heappop(urgent) if by_priority else fcfs.popleft()
                    dropped -= 1
                    continue
                to_compute = gap = tokens = length[slot]
                hits = start = 0
                careful = known or committed + final_blocks[slot] + watermark > usable
                if careful or cache is not None:
                    unowned = 0
                    hashes = hashes_of[slot]
                    looks_up = cache is not None and (hashes or slot in cache.own)
                    if not known and (careful or looks_up):
                        whole, rest = divmod(step, block_tokens)
                        free = usable - fixed - decode_blocks - decodes * whole
                        free -= sum(growth[block_tokens - rest :])
                        for other in entering:
                            free -= -(-length[other] // block_tokens)
                        careful = known = True
                    if cache is not None and looks_up:
                        cache.settle(free)
                        hits, unowned = cache.lookup(slot, hashes, (to_compute - 1) // block_tokens)
                        start = hits * block_tokens
                        gap = tokens = to_compute - start
                if tokens > chunk_limit:
                    tokens = chunk_limit
                if tokens > tokens_left:
                    if not chunked:
                        break
                    tokens = tokens_left
                if careful:
                    held = -(-(start + tokens) // block_tokens)
                    needed = -(-to_compute // block_tokens) if whole_must_fit else held
                    if needed - hits + unowned + watermark > free:
                        # With them the first chunk of a blocked head may fit.
                        hits_may_go = unowned > 0 and not whole_must_fit
                        break
                    free -= held - hits + unowned
                heappop(urgent) if by_priority else fcfs.popleft()
                waiting_tokens -= to_compute
                running[number] = slot
                admission[slot] = number
                number += 1
                committed += final_blocks[slot]
                exact_iteration = True
                tokens_left -= tokens
                if scheduled[slot] < 0:
                    scheduled[slot] = now
                    if hits:
                        state.cached[slot] = start
                if gap == 1:
                    single += 1
                    context += start
                else:
                    prefill += tokens
                    pairs += tokens * start + tokens * (tokens - 1) // 2
                if cache is not None and looks_up:
                    cache.claim(slot, hashes, hits)
                    tracked[slot] = min(hits, len(hashes))
                    if hits < len(hashes):
                        cache.settle(free)
                        full = (start + tokens) // block_tokens
                        tracked[slot] += cache.publish(slot, hashes, full)
                    fixed += unowned - hits
                if tokens == gap:
                    entering.append(slot)
                else:
                    prefilling.append(slot)
                    computed[slot] = start + tokens
                    held = -(-(start + tokens) // block_tokens)
                    blocks[slot] = held
                    fixed += held
        elif not decodes:  # idle
            if next_arrival <= limit:
                now = next_arrival
            else:
                state.now, state.iteration, state.decodes = now, iteration, 0
                state.decode_offset_sum, state.decode_blocks = offset_sum, decode_blocks
                state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
                state.dropped, state.planned_end = dropped, None
                limit = yield min(next_arrival, MAX_PS)
                next_arrival = arrival[pending[0]] if pending else NO_MORE
                next_cancel = cancels[0][0] if cancels else NO_MORE
            continue

        if exact_iteration:
            # Somebody prefills, or somebody left.
            a = table[prefill + single] + per_decode * single + per_context * context
            if prefill:
                a += per_pair * pairs + mixed_ps
            end = now + a
            if end > limit:
                state.now, state.iteration, state.decodes = now, iteration, decodes
                state.decode_offset_sum, state.decode_blocks = offset_sum, decode_blocks
                state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
                for slot in entering:
                    state.fixed_blocks -= -length[slot] // block_tokens
                state.dropped, state.in_flight = dropped, True
                state.planned_end, state.planned_a, state.planned_b = end, a, 0
                while end > limit:
                    limit = yield end
                state.in_flight = False
                next_arrival = arrival[pending[0]] if pending else NO_MORE
                next_cancel = cancels[0][0] if cancels else NO_MORE
            iteration = step
            # Who has computed all emits a token and decodes from here on, be it for no step.
            for slot in entering:
                if first_token[slot] < 0:
                    first_token[slot] = end
                last = iteration + remaining[slot] - 1
                done_iteration[slot] = last
                heappush(completions, last << ENTRY_BITS | admission[slot])
                offset = length[slot] - iteration
                offset_sum += offset
                offset += raise_by
                growth[offset % block_tokens] += 1
                decode_blocks += offset // block_tokens
                if cache is not None and tracked[slot] < len(hashes_of[slot]):
                    push_publication(state, slot)
            decodes += len(entering)
            entering.clear()
            log += (iteration - 1, now, 1, a, 0, decodes)
            if len(log) > LOG_CHUNK:
                state.flush_log()
        else:
            # A stretch of pure decode steps, as long as nothing can change the batch.
            while stale:
                slot = running.get(completions[0] & ENTRY_MASK, NEVER)
                if slot >= 0 and done_iteration[slot] == completions[0] >> ENTRY_BITS:
                    break
                heappop(completions)
                stale -= 1
            steps = 1 if hits_may_go else (completions[0] >> ENTRY_BITS) - iteration
            if publications and publications[0][0] - iteration <= steps:
                steps = publications[0][0] - iteration - 1
            if committed > usable:
                grown = decodes * ((iteration + steps) // block_tokens + 1)
                if usable < fixed + decode_blocks + grown:
                    state.iteration, state.decodes = iteration, decodes
                    state.decode_blocks, state.fixed_blocks = decode_blocks, fixed
                    steps = state.last_fitting(steps)
            b = per_context * decodes
            a = table[decodes] + per_decode * decodes + per_context * offset_sum + b * iteration
            end = now + steps * a + b * (steps * (steps - 1) // 2)
            bound = next_cancel
            if (
                next_arrival < end
                and next_arrival < bound
                # An arrival behind a blocked head, or with no seat left, can't change the batch.
                and (by_priority or not queue)
                and decodes < max_tokens
                and len(running) < max_seqs
            ):
                bound = next_arrival
            if bound < end:
                # The first boundary at or after the bound: estimated just below, then exact.
                span = bound - now
                slope = a - 0.5 * b
                steps = int(NEARLY_2 * span / (slope + sqrt(slope * slope + 2.0 * b * span))) or 1
                end = now + steps * a + b * (steps * (steps - 1) // 2)
                while end < bound:
                    end += a + b * steps
                    steps += 1
            if end > limit:
                state.now, state.iteration, state.decodes = now, iteration, decodes
                state.decode_offset_sum, state.decode_blocks = offset_sum, decode_blocks
                state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
                state.dropped = dropped
                state.planned_end, state.planned_a, state.planned_b = end, a, b
                open_to_arrivals = (
                    decodes < max_tokens and len(running) < max_seqs and (by_priority or not queue)
                )
                bound, cut = min(bound, end), False
                while end > limit and not cut:
                    limit = yield next_cancel if limit < next_cancel < end else end
                    next_arrival = arrival[pending[0]] if pending else NO_MORE
                    next_cancel = cancels[0][0] if cancels else NO_MORE
                    cut = next_cancel < bound or (open_to_arrivals and next_arrival < bound)
                if cut:
                    continue
            log += (iteration, now, steps, a, b, decodes)
            iteration += steps
        now = end

        # Who is done frees its blocks before the next schedule.
        while completions and completions[0] >> ENTRY_BITS <= iteration:
            entry = heappop(completions)
            slot = running.get(entry & ENTRY_MASK, NEVER)
            if slot < 0 or done_iteration[slot] != entry >> ENTRY_BITS:
                stale -= 1
                continue
            if cache is not None:
                held = -(-(length[slot] + remaining[slot] - 1) // block_tokens)
                freed = cache.release(slot, held - tracked[slot], 0, False)
                fixed += tracked[slot] - freed
            del running[entry & ENTRY_MASK]
            done[slot] = end
            ended.append(slot)
            decodes -= 1
            committed -= final_blocks[slot]
            offset = length[slot] + remaining[slot] - 1 - iteration
            offset_sum -= offset
            offset += raise_by
            growth[offset % block_tokens] -= 1
            decode_blocks -= offset // block_tokens
