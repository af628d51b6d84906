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
from simulator.state import (
    DECODING,
    DROPPED,
    ENDED,
    ENTRY_BITS,
    ENTRY_MASK,
    LOG_CHUNK,
    NEVER,
    PREFILLING,
    WAITING,
    ReplicaState,
)
from simulator.timing import MAX_PS


def stepping(state: ReplicaState) -> Generator[None, int, None]:
    """Run `state`: each `send(limit_ps)` handles what happens up to and including the limit.

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
    arrival, inputs, outputs = state.arrival, state.input, state.output
    status, computed, blocks = state.status, state.computed, state.blocks
    generated, tracked, admission = state.generated, state.tracked, state.admission
    base, done_iteration, run_start = state.base, state.done_iteration, state.run_start
    scheduled, first_token, done = state.scheduled, state.first_token, state.done
    log = state.log
    fcfs, urgent = state.queue, state.urgent
    queue = urgent if by_priority else fcfs

    now = iteration = decodes = base_sum = decode_blocks = fixed = waiting_tokens = dropped = 0

    limit = yield
    next_arrival = arrival[pending[0]] if pending else MAX_PS
    next_cancel = cancels[0][0] if cancels else MAX_PS
    while True:
        # What has happened by this boundary: arrivals first, then cancels.
        while next_arrival <= now:
            slot = pending.popleft()
            status[slot] = WAITING
            waiting_tokens += inputs[slot]
            if by_priority:
                heappush(urgent, state.urgency(slot))
            else:
                fcfs.append(slot)
            next_arrival = arrival[pending[0]] if pending else MAX_PS
        if next_cancel <= now:
            state.now, state.iteration, state.decodes = now, iteration, decodes
            state.decode_base_sum, state.decode_blocks = base_sum, decode_blocks
            state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
            state.dropped = dropped
            cancel_due(state)
            decodes, base_sum, decode_blocks = (
                state.decodes, state.decode_base_sum, state.decode_blocks
            )  # fmt: skip
            fixed, waiting_tokens, dropped = (
                state.fixed_blocks, state.waiting_tokens, state.dropped
            )  # fmt: skip
            next_cancel = cancels[0][0] if cancels else MAX_PS
        while dropped and queue:
            slot = urgent[0][3] if by_priority else fcfs[0]
            if status[slot] != DROPPED:
                break
            heappop(urgent) if by_priority else fcfs.popleft()
            status[slot] = ENDED
            dropped -= 1

        idle = not running and not queue
        if idle and next_arrival <= limit:
            now = next_arrival
            continue
        if idle or now >= limit:
            state.now, state.iteration, state.decodes = now, iteration, decodes
            state.decode_base_sum, state.decode_blocks = base_sum, decode_blocks
            state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
            state.dropped, state.planned_end = dropped, None
            limit = yield
            next_arrival = arrival[pending[0]] if pending else MAX_PS
            next_cancel = cancels[0][0] if cancels else MAX_PS
            continue

        # The running: all get what they want, or the exact schedule decides who does.
        step = iteration + 1
        tokens_left = max_tokens - decodes
        whole, rest = divmod(step, block_tokens)
        free = usable - fixed - decode_blocks - decodes * (whole + 1)  # at least; exact below
        exact = False
        chunks: list[tuple[int, int]] = []
        preempted = 0
        by_job = bool(publications) and publications[0][0] <= step
        if prefilling:
            slot = prefilling[0]
            tokens = min(inputs[slot] + generated[slot] - computed[slot], chunk_limit)
            last = next(reversed(running)) == admission[slot]
            if tokens > tokens_left:
                tokens = tokens_left
            needed = -(-(computed[slot] + tokens) // block_tokens) - blocks[slot]
            by_job = by_job or not last or len(prefilling) > 1
        else:
            tokens = needed = 0
        if needed > free or cache is not None:
            free = usable - fixed - decode_blocks - decodes * whole
            free -= sum(growth[block_tokens - rest :])
            exact = True
            by_job = by_job or needed > free
        if by_job:
            state.now, state.iteration, state.decodes = now, iteration, decodes
            state.decode_base_sum, state.decode_blocks = base_sum, decode_blocks
            state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
            outcome = schedule_running(state)
            decodes, base_sum, decode_blocks = (
                state.decodes, state.decode_base_sum, state.decode_blocks
            )  # fmt: skip
            fixed, waiting_tokens = state.fixed_blocks, state.waiting_tokens
            if outcome.empty:
                continue  # whoever came first gave way to itself; the others start over
            chunks, tokens_left, preempted = outcome.chunks, outcome.budget, outcome.preempted
            free = usable - fixed - decode_blocks - decodes * whole
            free -= sum(growth[block_tokens - rest :])
            exact = True
        elif tokens:
            tokens_left -= tokens
            free -= needed
            fixed += needed
            blocks[slot] += needed
            chunks.append((slot, tokens))
            if cache is not None and tracked[slot] < len(state.hashes[slot]):
                cache.settle(free)
                tracked[slot] += cache.publish(
                    slot, state.hashes[slot], (computed[slot] + tokens) // block_tokens
                )

        # The waiting, head of line first, unless KV was so short that somebody had to go.
        while queue and tokens_left > 0 and not preempted and len(running) < max_seqs:
            slot = urgent[0][3] if by_priority else fcfs[0]
            if dropped and status[slot] == DROPPED:
                heappop(urgent) if by_priority else fcfs.popleft()
                status[slot] = ENDED
                dropped -= 1
                continue
            length = inputs[slot] + generated[slot]
            hits = unowned = 0
            if cache is not None:
                hashes = state.hashes[slot]
                if hashes or slot in cache.own:
                    cache.settle(free)
                    hits, unowned = cache.lookup(slot, hashes, (length - 1) // block_tokens)
            found = hits * block_tokens
            gap = tokens = length - found
            if tokens > chunk_limit:
                tokens = chunk_limit
            if tokens > tokens_left:
                if not chunked:
                    break
                tokens = tokens_left
            held = -(-(found + tokens) // block_tokens)
            reach = -(-length // block_tokens) if whole_must_fit else held
            needed = reach - hits + unowned + watermark
            if needed > free:
                if exact:
                    break
                free += decodes - sum(growth[block_tokens - rest :])
                exact = True
                if needed > free:
                    break
            heappop(urgent) if by_priority else fcfs.popleft()
            waiting_tokens -= length
            number = state.admissions
            state.admissions = number + 1
            running[number] = slot
            admission[slot] = number
            status[slot] = PREFILLING
            if scheduled[slot] < 0:
                scheduled[slot] = now
                state.cached[slot] = found
            computed[slot] = found
            if cache is not None:
                if hashes or hits:
                    cache.claim(slot, hashes, hits)
                    tracked[slot] = min(hits, len(hashes))
                elif slot in cache.own:
                    cache.forget(slot)
            taken = held - hits + unowned
            free -= taken
            fixed += taken
            blocks[slot] = held
            tokens_left -= tokens
            if cache is not None and hashes:
                cache.settle(free)
                tracked[slot] += cache.publish(slot, hashes, (found + tokens) // block_tokens)
            if tokens < gap:
                prefilling.append(slot)
            chunks.append((slot, tokens))

        if chunks or preempted:
            # One exact iteration: somebody prefills, or somebody left.
            prefill = pairs = 0
            single, context = decodes, base_sum + decodes * iteration
            for slot, tokens in chunks:
                prefix = computed[slot]
                if inputs[slot] + generated[slot] - prefix == 1:
                    single += 1
                    context += prefix
                else:
                    prefill += tokens
                    pairs += tokens * prefix + tokens * (tokens - 1) // 2
            a = table[prefill + single] + per_decode * single + per_context * context
            if prefill:
                a += per_pair * pairs + mixed_ps
            steps, b, emitted, end = 1, 0, decodes, now + a
            if end > limit:
                state.now, state.iteration, state.decodes = now, iteration, decodes
                state.decode_base_sum, state.decode_blocks = base_sum, decode_blocks
                state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
                state.dropped, state.in_flight = dropped, True
                state.planned_end, state.planned_a, state.planned_b = end, a, 0
                while end > limit:
                    limit = yield
                state.in_flight = False
                next_arrival = arrival[pending[0]] if pending else MAX_PS
                next_cancel = cancels[0][0] if cancels else MAX_PS
            iteration = step
            for slot, tokens in chunks:
                reached = computed[slot] + tokens
                computed[slot] = reached
                so_far = generated[slot]
                if reached < inputs[slot] + so_far:
                    continue
                # It emits a token and decodes from here on, be it for no further step.
                emitted += 1
                if first_token[slot] < 0:
                    first_token[slot] = end
                if prefilling and slot in prefilling:
                    prefilling.remove(slot)
                run_start[slot] = iteration
                status[slot] = DECODING
                last_iteration = iteration + outputs[slot] - so_far - 1
                done_iteration[slot] = last_iteration
                heappush(completions, last_iteration << ENTRY_BITS | admission[slot])
                offset = base[slot] = reached - iteration
                decodes += 1
                base_sum += offset
                offset += raise_by
                growth[offset % block_tokens] += 1
                decode_blocks += offset // block_tokens - tracked[slot]
                fixed -= blocks[slot] - tracked[slot]
                if cache is not None and tracked[slot] < len(state.hashes[slot]):
                    push_publication(state, slot)
        else:
            # A stretch of pure decode steps, as long as nothing can change the batch.
            while True:
                entry = completions[0]
                slot = running.get(entry & ENTRY_MASK, NEVER)
                if slot >= 0 and done_iteration[slot] == entry >> ENTRY_BITS:
                    break
                heappop(completions)
            steps = (entry >> ENTRY_BITS) - iteration
            if publications and publications[0][0] - step < steps:
                steps = publications[0][0] - step
            grown = decodes * ((iteration + steps) // block_tokens + 1)
            if usable < fixed + decode_blocks + grown:
                state.iteration, state.decodes = iteration, decodes
                state.decode_blocks, state.fixed_blocks = decode_blocks, fixed
                steps = state.last_fitting(steps)
            a = table[decodes] + per_decode * decodes
            a += per_context * (base_sum + decodes * iteration)
            b = per_context * decodes
            emitted = decodes
            end = now + steps * a + b * (steps * (steps - 1) // 2)
            # An arrival behind a blocked head, or with no seat left, can't change the batch.
            open_to_arrivals = (
                tokens_left > 0 and len(running) < max_seqs and (by_priority or not queue)
            )
            bound = next_cancel
            if open_to_arrivals and next_arrival < bound:
                bound = next_arrival
            if bound < end:
                # The first boundary at or after the bound: estimated, then corrected exactly.
                span = bound - now
                slope = a - b / 2
                steps = int(2 * span / (slope + sqrt(slope * slope + 2.0 * b * span))) or 1
                end = now + steps * a + b * (steps * (steps - 1) // 2)
                while end < bound:
                    end += a + b * steps
                    steps += 1
                while steps > 1 and end - a - b * (steps - 1) >= bound:
                    steps -= 1
                    end -= a + b * steps
            if end > limit:
                state.now, state.iteration, state.decodes = now, iteration, decodes
                state.decode_base_sum, state.decode_blocks = base_sum, decode_blocks
                state.fixed_blocks, state.waiting_tokens = fixed, waiting_tokens
                state.dropped = dropped
                state.planned_end, state.planned_a, state.planned_b = end, a, b
                bound, cut = min(bound, end), False
                while end > limit and not cut:
                    limit = yield
                    next_arrival = arrival[pending[0]] if pending else MAX_PS
                    next_cancel = cancels[0][0] if cancels else MAX_PS
                    cut = next_cancel < bound or (open_to_arrivals and next_arrival < bound)
                if cut:
                    continue
            iteration += steps

        log += (now, steps, a, b, emitted)
        if len(log) > LOG_CHUNK:
            state.flush_log()
        now = end

        # Who is done frees its blocks before the next schedule.
        while completions and completions[0] >> ENTRY_BITS <= iteration:
            number = heappop(completions) & ENTRY_MASK
            slot = running.get(number, NEVER)
            if slot < 0 or done_iteration[slot] != iteration:
                continue
            if cache is not None:
                free = usable - fixed - decode_blocks - decodes * (iteration // block_tokens)
                rest = iteration % block_tokens
                cache.settle(free - sum(growth[block_tokens - rest :]))
                private = -(-(base[slot] + iteration) // block_tokens) - tracked[slot]
                fixed -= cache.release(slot, private, 0, False)
            del running[number]
            status[slot] = ENDED
            generated[slot] = outputs[slot]
            done[slot] = end
            ended.append(slot)
            offset = base[slot]
            decodes -= 1
            base_sum -= offset
            offset += raise_by
            growth[offset % block_tokens] -= 1
            decode_blocks -= offset // block_tokens - tracked[slot]
