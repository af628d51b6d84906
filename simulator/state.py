"""What a replica's engine keeps between two iterations: columns of jobs, sums over the decodes.

While a job decodes it advances one token an iteration, so nothing of it is touched: with `base`
= computed - iterations run so far, a constant, its context, its blocks and its end follow from
the iteration number. Sums over all decodes (count, bases, blocks) make an iteration's time and
KV growth O(1) or O(block size). Semantics: SCHEDULING in scheduler.py.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from heapq import heappush

from simulator.kv import PrefixCache
from simulator.scheduler import ReplicaConfig
from simulator.timing import TimeModel

PENDING, WAITING, PREFILLING, DECODING, ENDED, DROPPED = range(6)
"""A job's status; DROPPED was cancelled while waiting and still lies in the queue."""

COMPLETED, CANCELLED, REFUSED = range(3)
NEVER = -1
ENTRY_BITS = 40
ENTRY_MASK = (1 << ENTRY_BITS) - 1
LOG_WIDTH = 5
LOG_CHUNK = 8192 * LOG_WIDTH

WaitingQueue = deque[int] | list[tuple[int, int, int, int]]


class ReplicaState:
    """Columns indexed by slot, queues, and sums over the running; see the module's text.

    `completions` holds (iteration << ENTRY_BITS | admission number): an entry counts only while
    `running` has that admission and `done_iteration` agrees. `log` has LOG_WIDTH integers a
    segment: start ps, steps, a ps, b ps, tokens emitted a step. `fixed_blocks` are those held
    that no decode step changes: of prefilling jobs, and tracked by the prefix cache.
    """

    def __init__(self, config: ReplicaConfig, model: TimeModel) -> None:
        self.config, self.model = config, model
        self.batch_table = model.batch_table(config.max_num_batched_tokens)
        self.cache = PrefixCache(config.usable_blocks) if config.prefix_cache else None
        self.now = self.iteration = self.admissions = 0
        self.planned_end: int | None = None
        self.planned_a = self.planned_b = 0
        self.in_flight = False

        self.pending: deque[int] = deque()
        self.cancels: list[tuple[int, int, int]] = []
        self.queue: deque[int] = deque()
        self.urgent: list[tuple[int, int, int, int]] = []
        self.dropped = self.waiting_tokens = 0
        self.running: dict[int, int] = {}
        self.prefilling: list[int] = []
        self.completions: list[int] = []
        self.publications: list[tuple[int, int]] = []
        self.ended: list[int] = []
        self.runs: dict[int, list[tuple[int, int]]] = {}
        self.log: list[int] = []
        self.log_store = array("q")
        self.log_first_iteration = 1

        self.decodes = self.decode_base_sum = self.decode_blocks = self.fixed_blocks = 0
        self.growth = [0] * config.block_tokens

        self.arrival: list[int] = []
        self.input: list[int] = []
        self.output: list[int] = []
        self.priority: list[int] = []
        self.serial: Sequence[int] = []
        self.hashes: list[tuple[int, ...]] = []
        self.outcome = bytearray()
        self.status = bytearray()
        (
            self.scheduled, self.first_token, self.done, self.generated, self.cached,
            self.preemptions, self.computed, self.blocks, self.tracked, self.admission,
            self.base, self.done_iteration, self.run_start,
        ) = self.columns = tuple(array("q") for _ in range(13))  # fmt: skip

    def grow(self, slots: int) -> None:
        """Append empty result columns for `slots` more jobs."""
        self.outcome.extend(bytes(slots))
        self.status.extend(bytes(slots))
        zeros = array("q", bytes(8 * slots))
        for column in self.columns:
            column.extend(zeros)
        for column in (self.scheduled, self.first_token, self.done):
            for slot in range(len(column) - slots, len(column)):
                column[slot] = NEVER

    def reset(self, slot: int) -> None:
        """Empty the result columns of a slot that is used again."""
        self.outcome[slot] = self.status[slot] = 0
        for column in self.columns:
            column[slot] = 0
        self.scheduled[slot] = self.first_token[slot] = self.done[slot] = NEVER

    def flush_log(self) -> None:
        """Move the log to compact storage, which would be slow to append to one by one."""
        self.log_store.extend(self.log)
        self.log.clear()

    def decode_blocks_at(self, iteration: int) -> int:
        """Return the private blocks that all decodes hold once `iteration` iterations have run."""
        block_tokens = self.config.block_tokens
        whole, rest = divmod(iteration, block_tokens)
        return (
            self.decode_blocks + self.decodes * whole + sum(self.growth[block_tokens - rest :])
        )

    def free_blocks_at(self, iteration: int) -> int:
        """Return the free blocks once `iteration` iterations have run with today's running."""
        used = self.fixed_blocks + self.decode_blocks_at(iteration)
        return self.config.usable_blocks - used

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

    def enqueue(self, slot: int, *, at_head: bool = False) -> None:
        """Put a job among the waiting: at the head or tail, or by (priority, arrival, serial)."""
        self.status[slot] = WAITING
        self.waiting_tokens += self.input[slot] + self.generated[slot]
        if self.config.priority_scheduling:
            heappush(self.urgent, self.urgency(slot))
        elif at_head:
            self.queue.appendleft(slot)
        else:
            self.queue.append(slot)

    def urgency(self, slot: int) -> tuple[int, int, int, int]:
        """Return the order of the waiting under priority; the largest is preempted first."""
        return self.priority[slot], self.arrival[slot], self.serial[slot], slot

    def generated_by(self, slot: int, iteration: int) -> int:
        """Return the tokens that a job has emitted once `iteration` iterations have run."""
        if self.status[slot] == DECODING:
            return self.output[slot] - (self.done_iteration[slot] - iteration)
        return self.generated[slot]

    def leave_decoding(self, slot: int) -> None:
        """Take a decode out of the sums and put what it is at `iteration` into its columns."""
        block_tokens, iteration = self.config.block_tokens, self.iteration
        base = self.base[slot]
        self.generated[slot] = self.generated_by(slot, iteration)
        self.computed[slot] = base + iteration
        self.blocks[slot] = -(-(base + iteration) // block_tokens)
        self.decodes -= 1
        self.decode_base_sum -= base
        raised = base + block_tokens - 1
        private_blocks = self.blocks[slot] - self.tracked[slot]
        self.decode_blocks -= raised // block_tokens - self.tracked[slot]
        self.growth[raised % block_tokens] -= 1
        self.fixed_blocks += private_blocks
        self.done_iteration[slot] = NEVER
        self.status[slot] = PREFILLING

    def close_run(self, slot: int) -> None:
        """Note that the job's unbroken run of tokens, one an iteration, ends here."""
        run = (self.run_start[slot], self.iteration - self.run_start[slot] + 1)
        self.runs.setdefault(slot, []).append(run)
