"""What a replica is configured with, is given and answers (SIM-1): plain values.

The scheduling that these values drive is written twice on purpose: obviously in oracle.py
and fast in engine.py. Section numbers in comments there are those of SCHEDULING below.

SCHEDULING, as current engines do it, with flags where versions differ:

1. No phases. A request has `computed` tokens and `num_tokens` (prompt + generated); an
   iteration tries to close the gap within max_num_batched_tokens.
2. The running come first, in order of admission, each with min(gap, long prefill threshold,
   budget) tokens. Decode-first is what follows.
3. Blocks that are not there are taken by preemption: first come first served takes the last of
   the running, priority takes the largest (priority, arrival). What the victim had been
   scheduled for in this iteration is rolled back. A victim that is the request itself ends the
   scheduling of the running.
4. The preempted loses all blocks and keeps its tokens; it goes to the head of the waiting, or
   back into the priority order, and recomputes prompt and generated tokens as prefill.
5. The waiting follow only where nothing was preempted, head of line first, while budget and
   max_num_seqs allow; a shortage of KV stops admission and preempts nobody.
6. A finished request has held prompt + output - 1 slots: the last token is never written.
7. Prefix cache: full blocks with chained hashes, published when scheduled, hits capped at
   num_tokens - 1, freed in reverse, evicted least recently freed first. The first copy of a
   hash is the published one. Blocks beyond the hashes that came with a job are known to that
   job alone: they can be hit after its preemption, and those not hit then are forgotten.
8. A token is emitted at the end of the iteration in which computed reaches num_tokens.
   Arrivals and cancels apply between iterations, arrivals first; a cancel of what has not
   arrived yet waits for its arrival.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from simulator.timing import MAX_PS, MAX_PS_TEXT, whole_numbers

Outcome = Literal["completed", "cancelled", "refused", "shed"]
OUTCOMES: tuple[Outcome, ...] = ("completed", "cancelled", "refused", "shed")
"""Refused: it could never be served. Shed: the bounded queue in front of the replicas was full."""

MAX_JOB_TOKENS = 2**24
"""A named limit on prompt + output of one job; longer is a ValueError, not a slow loop."""

MAX_BATCHED_TOKENS = 2**20
"""The most tokens of one iteration: a table of times has an entry for each number of them."""

MAX_SEQS = 2**16
MAX_BLOCK_TOKENS = 2**16
MAX_KV_BLOCKS = 2**27
"""Far beyond what engines are started with, and small enough for whole sums in int64."""


_LIMITS = (
    ("max_num_batched_tokens", MAX_BATCHED_TOKENS),
    ("max_num_seqs", MAX_SEQS),
    ("kv_blocks", MAX_KV_BLOCKS),
    ("block_tokens", MAX_BLOCK_TOKENS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """One replica's scheduler and KV pool; sizes in blocks, tokens and sequences.

    Raises ValueError where an engine would not start: fewer batched tokens than sequences, or,
    without chunked prefill, than the longest sequence; and for sizes above the limits. TypeError
    for a size that is no int.
    """

    kv_blocks: int
    block_tokens: int = 16
    reserved_blocks: int = 1
    watermark_blocks: int = 0
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    max_model_len: int = 131_072
    long_prefill_token_threshold: int = 0
    chunked_prefill: bool = True
    full_sequence_must_fit: bool = False
    prefix_cache: bool = False
    priority_scheduling: bool = False

    def __post_init__(self) -> None:
        whole_numbers(
            "a replica's configuration",
            *(self.kv_blocks, self.block_tokens, self.reserved_blocks, self.watermark_blocks),
            *(self.max_num_batched_tokens, self.max_num_seqs, self.max_model_len),
            self.long_prefill_token_threshold,
        )
        if self.block_tokens < 1 or self.reserved_blocks < 0 or self.watermark_blocks < 0:
            raise ValueError("block size must be positive, reserve and watermark not negative")
        if self.usable_blocks < 1:
            raise ValueError("no block is left beside the reserved ones")
        if self.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs")
        for name, most in _LIMITS:
            if getattr(self, name) > most:
                raise ValueError(f"{name} {getattr(self, name):,} is above the limit, {most:,}")
        if self.max_model_len < 2 or self.long_prefill_token_threshold < 0:
            raise ValueError("max_model_len must be at least 2, the threshold not negative")
        if not self.chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError("without chunked prefill the budget must hold max_model_len")

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests may hold."""
        return self.kv_blocks - self.reserved_blocks

    @property
    def chunk_limit(self) -> int:
        """The most prefill tokens that one request may get in one iteration."""
        return self.long_prefill_token_threshold or MAX_JOB_TOKENS

    @property
    def max_servable_tokens(self) -> int:
        """The most prompt + output tokens that can finish on an otherwise empty replica.

        A longer job is refused on arrival: admitted, it would preempt itself for ever. The last
        token takes no slot.
        """
        available = (self.usable_blocks - self.watermark_blocks) * self.block_tokens
        return min(self.max_model_len, available + 1 if available > 0 else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request for a replica: exact lengths, a smaller priority is more urgent.

    `block_hashes` (not negative) identify the leading full blocks, chained (equal hashes mean
    equal prefixes up to that block's end); they may reach into the output. `cancel_ps` asks
    for a cancel at the first iteration boundary at or after it.
    """

    job_id: int | str
    arrival_ps: int
    input_tokens: int
    output_tokens: int
    priority: int = 0
    block_hashes: tuple[int, ...] = ()
    cancel_ps: int | None = None

    def __post_init__(self) -> None:
        whole_numbers(
            "a job",
            *(self.arrival_ps, self.input_tokens, self.output_tokens, self.priority),
            0 if self.cancel_ps is None else self.cancel_ps,
        )
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a job has at least one input and one output token")
        if self.input_tokens + self.output_tokens > MAX_JOB_TOKENS:
            raise ValueError(f"a job has at most {MAX_JOB_TOKENS} tokens")
        if self.arrival_ps < 0:
            raise ValueError("arrival_ps may not be negative")
        if self.arrival_ps >= MAX_PS:
            raise ValueError(f"arrival_ps may not reach {MAX_PS_TEXT}")
        if self.cancel_ps is not None and not 0 <= self.cancel_ps < 2 * MAX_PS:
            raise ValueError("cancel_ps may not be negative, nor beyond int64")
        if not -2 * MAX_PS <= self.priority < 2 * MAX_PS:
            raise ValueError("priority may not be beyond int64")
        if self.block_hashes and min(self.block_hashes) < 0:
            raise ValueError("block hashes may not be negative")


class Finished(NamedTuple):
    """How a job ended; times in ps, None where that point was never reached.

    `scheduled_ps` is the start of the iteration that first ran it, `first_token_ps` the end of
    the one that emitted its first token, `done_ps` the boundary at which it left (for a refused
    job its arrival). `output_tokens` were really generated. `cached_tokens` were found in the
    prefix cache at first admission.
    """

    job_id: int | str
    outcome: Outcome
    arrival_ps: int
    scheduled_ps: int | None
    first_token_ps: int | None
    done_ps: int
    output_tokens: int
    cached_tokens: int
    preemptions: int


class Snapshot(NamedTuple):
    """A replica's load as observed at `observed_ps`; `revision` rises with every change (SCH-2)."""

    observed_ps: int
    revision: int
    waiting_requests: int
    running_requests: int
    waiting_input_tokens: int
    reserved_kv_tokens: int
    free_kv_tokens: int
    oldest_wait_ps: int
    recent_output_tokens_per_second: float
