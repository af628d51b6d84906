"""What a replica's engine keeps between two iterations: columns of jobs, sums over the decodes.

While a job decodes it advances one token an iteration, so nothing of it is touched: its context
is `offset` + the number of iterations run, its end a fixed iteration. Sums over all decodes
(count, offsets, blocks) make an iteration's time and KV growth O(1) or O(block size).
Semantics: SCHEDULING in scheduler.py.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappush, nsmallest
from itertools import islice
from struct import pack_into

import numpy as np
from numpy.typing import NDArray

from simulator.kv import PrefixCache
from simulator.scheduler import ReplicaConfig
from simulator.timing import TimeModel

COMPLETED, CANCELLED, REFUSED, SHED = range(4)
NEVER = -1
NO_MORE = 2**192
"""Beyond any time and any iteration: one that begins before MAX_PS may end this side of it, and
thousands of them may run before that is noticed."""
ENTRY_BITS = 32
ENTRY_MASK = (1 << ENTRY_BITS) - 1
LOG_WIDTH = 6
LOG_CHUNK = 8192 * LOG_WIDTH
FEW_INTEGERS = 256
"""Below this many, packing them at once costs more than it saves."""

NO_HASHES: tuple[int, ...] = ()


def ints_of(column: Sequence[int]) -> NDArray[np.int64]:
    """Return a list of whole numbers as an array, in less than half of numpy's own time."""
    packed = bytearray(8 * len(column))
    pack_into(f"{len(column)}q", packed, 0, *column)
    return np.frombuffer(packed, np.int64)


class ReplicaState:
    """Columns indexed by slot, queues, and sums over the running; see the module's text.

    A job is in one of these states: ended (`done` >= 0), decoding (`done_iteration` >= 0),
    prefilling (`admission` >= 0), else waiting or not arrived. `length` is what it has to
    compute before its next token (prompt + generated), `remaining` what it has then to emit, so
    their sum never changes. `final_blocks` are those it holds at its end.

    `completions` holds (done iteration << ENTRY_BITS | admission number), `stale` of which are
    of decodes that left early. `fixed_blocks` are the blocks held that no decode step changes:
    those of the prefilling, plus those the prefix cache tracks for somebody, less each job's
    tracked ones (which its own count includes). `committed` is the sum of `final_blocks` over
    the running: while it fits, KV can't run short.

    A job cancelled while waiting stays in its queue as one of `dropped` where `drops_lazily`,
    which suits long queues; without it the slot can be used again at once.

    `room` is how many final blocks may be handed in before somebody might have to give way.

    `log` has LOG_WIDTH integers a segment: iterations run before it, start ps, steps, a ps,
    b ps, tokens emitted a step.
    """

    def __init__(self, config: ReplicaConfig, model: TimeModel) -> None:
        self.config, self.model = config, model
        self.batch_table = model.batch_table(config.max_num_batched_tokens)
        self.cache = PrefixCache(config.usable_blocks) if config.prefix_cache else None
        self.now = self.iteration = self.admissions = 0
        self.planned_end: int | None = None
        self.planned_a = self.planned_b = 0
        self.in_flight = False
        self.room = -1

        self.pending: deque[int] = deque()
        self.cancels: list[tuple[int, int, int]] = []
        self.queue: deque[int] = deque()
        self.urgent: list[tuple[int, int, int, int]] = []
        self.dropped = self.waiting_tokens = 0
        self.drops_lazily = True
        self.running: dict[int, int] = {}
        self.prefilling: list[int] = []
        self.completions: list[int] = []
        self.stale = 0
        self.publications: list[tuple[int, int]] = []
        self.ended: list[int] = []
        self.runs: dict[int, list[tuple[int, int]]] = {}
        self.log: list[int] = []
        self.log_store = array("q")

        self.decodes = self.decode_offset_sum = self.decode_blocks = 0
        self.fixed_blocks = self.committed = 0
        self.growth = [0] * config.block_tokens

        # Lists, not arrays: the interpreter reads and writes them several times faster.
        self.arrival: list[int] = []
        self.length: list[int] = []
        self.remaining: list[int] = []
        self.final_blocks: list[int] = []
        self.priority: list[int] = []
        self.serial: Sequence[int] = []
        self.hashes: list[tuple[int, ...]] = []
        self.scheduled: list[int] = []
        self.first_token: list[int] = []
        self.done: list[int] = []
        self.admission: list[int] = []
        self.done_iteration: list[int] = []
        self.computed: list[int] = []
        self.blocks: list[int] = []
        self.tracked: list[int] = []
        self.cached: list[int] = []
        self.preemptions: list[int] = []
        self.outcome = bytearray()

    def grow(self, slots: int) -> None:
        """Append empty result columns for `slots` more jobs."""
        self.outcome.extend(bytes(slots))
        for unset in (self.scheduled, self.first_token, self.done, self.admission):
            unset.extend([NEVER] * slots)
        self.done_iteration.extend([NEVER] * slots)
        for zero in (self.computed, self.blocks, self.tracked, self.cached, self.preemptions):
            zero.extend([0] * slots)

    def reset(self, slot: int) -> None:
        """Empty the result columns of a slot that is used again."""
        self.outcome[slot] = 0
        self.scheduled[slot] = self.first_token[slot] = self.done[slot] = NEVER
        self.admission[slot] = self.done_iteration[slot] = NEVER
        self.computed[slot] = self.blocks[slot] = self.tracked[slot] = 0
        self.cached[slot] = self.preemptions[slot] = 0

    def flush_log(self) -> None:
        """Move the log to compact storage, which would be slow to append to one by one."""
        if len(self.log) < FEW_INTEGERS:
            self.log_store.extend(self.log)
        else:
            self.log_store.frombytes(ints_of(self.log).tobytes())
        self.log.clear()

    def offset(self, slot: int) -> int:
        """Return a decode's context less the number of iterations run: a constant."""
        return self.length[slot] + self.remaining[slot] - 1 - self.done_iteration[slot]

    def free_blocks_at(self, iteration: int) -> int:
        """Return the free blocks once `iteration` iterations have run with today's decodes."""
        block_tokens = self.config.block_tokens
        whole, rest = divmod(iteration, block_tokens)
        grown = self.decodes * whole + sum(self.growth[block_tokens - rest :])
        return self.config.usable_blocks - self.fixed_blocks - self.decode_blocks - grown

    def last_fitting(self, steps: int) -> int:
        """Return the most decode steps, from 1 to `steps`, whose growth fits the free blocks."""
        low, high = 1, steps
        while low < high:
            middle = (low + high + 1) // 2
            if self.free_blocks_at(self.iteration + middle) >= 0:
                low = middle
            else:
                high = middle - 1
        return low

    def enqueue_again(self, slot: int) -> None:
        """Put a preempted job at the head of the waiting, or where its urgency belongs."""
        self.waiting_tokens += self.length[slot]
        if self.config.priority_scheduling:
            heappush(self.urgent, self.urgency(slot))
        else:
            self.queue.appendleft(slot)

    def drop(self, slot: int) -> None:
        """Take a cancelled job out of the waiting, or leave it there to be skipped."""
        self.waiting_tokens -= self.length[slot]
        if not self.drops_lazily:
            self.withdraw(slot)
            return
        self.dropped += 1
        if self.cache is not None:
            self.cache.forget(slot)

    def withdraw(self, slot: int) -> None:
        """Take a job out of the queues at once."""
        if self.config.priority_scheduling:
            self.urgent.remove(self.urgency(slot))
            heapify(self.urgent)
        else:
            self.queue.remove(slot)
        if self.cache is not None:
            self.cache.forget(slot)

    def sweep(self) -> None:
        """Take those out of the queues that were left there to be skipped."""
        if self.dropped:
            kept = [slot for slot in self.queue if self.done[slot] < 0]
            self.queue.clear()
            self.queue.extend(kept)
            self.urgent[:] = [entry for entry in self.urgent if self.done[entry[3]] < 0]
            heapify(self.urgent)
            self.dropped = 0

    def waiting(self) -> list[int]:
        """Return who waits in the queues, after a sweep, in no order that matters."""
        return [*self.queue, *(entry[3] for entry in self.urgent)]

    def heads(self, count: int) -> list[int]:
        """Return the first `count` of those who wait, after a sweep."""
        if self.config.priority_scheduling:
            first = self.urgent[:1] if count == 1 else nsmallest(count, self.urgent)
            return [entry[3] for entry in first]
        return list(islice(self.queue, count))

    def urgency(self, slot: int) -> tuple[int, int, int, int]:
        """Return the order of the waiting under priority; the largest is preempted first."""
        return self.priority[slot], self.arrival[slot], self.serial[slot], slot

    def emitted_in_run(self, slot: int, iteration: int) -> int:
        """Return what a decode has emitted since it last began to decode, after `iteration`."""
        return iteration - (self.done_iteration[slot] - self.remaining[slot])

    def leave_decoding(self, slot: int) -> None:
        """Turn a decode into a prefill of one token and close its run of tokens."""
        iteration, block_tokens = self.iteration, self.config.block_tokens
        offset = self.offset(slot)
        emitted = self.emitted_in_run(slot, iteration)
        self.runs.setdefault(slot, []).append((iteration - emitted + 1, emitted))
        self.length[slot] += emitted
        self.remaining[slot] -= emitted
        self.computed[slot] = offset + iteration
        self.done_iteration[slot] = NEVER
        self.stale += 1
        self.decodes -= 1
        self.decode_offset_sum -= offset
        raised = offset + block_tokens - 1
        self.decode_blocks -= raised // block_tokens
        self.growth[raised % block_tokens] -= 1
        self.blocks[slot] = -(-self.computed[slot] // block_tokens)
        self.fixed_blocks += self.blocks[slot]
