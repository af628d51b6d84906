"""The reference scheduler, step by step and obvious; the fast engine is held to it bit for bit.

Every token, block and iteration is handled one by one, and KV conservation is asserted at each
iteration. Slow on purpose: nothing here is an optimisation. Semantics: SCHEDULING in
scheduler.py; source SIM-1.
"""

from bisect import insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from simulator.scheduler import Finished, Job, Outcome, ReplicaConfig
from simulator.timing import TimeModel, attention_pairs


@dataclass(slots=True, kw_only=True, eq=False)
class OracleRequest:
    """A job's state between two iterations."""

    job: Job
    order: int
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    token_ps: list[int] = field(default_factory=list)
    scheduled_ps: int | None = None
    cached_tokens: int = 0
    preemptions: int = 0

    @property
    def num_tokens(self) -> int:
        return self.job.input_tokens + len(self.token_ps)

    @property
    def urgency(self) -> tuple[int, int, int]:
        return self.job.priority, self.job.arrival_ps, self.order

    def block_key(self, index: int) -> Hashable:
        hashes = self.job.block_hashes
        return ("shared", hashes[index]) if index < len(hashes) else ("own", self.order, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleStep:
    """One iteration as it was run, for tests of invariants."""

    start_ps: int
    end_ps: int
    prefill_tokens: int
    decodes: int
    running: int
    waiting: int
    preempted: int
    free_blocks: int


class Oracle:
    """Runs `jobs` (in submission order); `finished`, `tokens_ps` and `steps` tell how."""

    def __init__(self, jobs: Sequence[Job], config: ReplicaConfig, model: TimeModel) -> None:
        self.config, self.model = config, model
        requests = [OracleRequest(job=job, order=i) for i, job in enumerate(jobs)]
        self.pending = sorted(requests, key=lambda r: (r.job.arrival_ps, r.order))
        self.cancels = sorted(
            (r for r in requests if r.job.cancel_ps is not None),
            key=lambda r: (self.cancel_ps(r), r.order),
        )
        self.waiting: list[OracleRequest] = []
        self.running: list[OracleRequest] = []
        self.free = list(range(config.usable_blocks))  # the next to be given away first
        self.owners = [0] * config.usable_blocks
        self.published: dict[Hashable, int] = {}
        self.finished: list[Finished] = []
        self.tokens_ps: dict[int | str, tuple[int, ...]] = {}
        self.steps: list[OracleStep] = []

    def run(self) -> "Oracle":
        now = 0
        while self.pending or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, self.pending[0].job.arrival_ps)
            self.apply_events(now)
            if self.waiting or self.running:
                now = self.iterate(now)
        self.check_conservation()
        assert not any(self.owners)
        return self

    def apply_events(self, now: int) -> None:
        arrived = bool(self.pending) and self.pending[0].job.arrival_ps <= now
        while self.pending and self.pending[0].job.arrival_ps <= now:
            request = self.pending.pop(0)
            total = request.job.input_tokens + request.job.output_tokens
            if total <= self.config.max_servable_tokens:
                self.waiting.append(request)
            else:
                self.end(request, "refused", request.job.arrival_ps)
        if arrived and self.config.priority_scheduling:
            self.waiting.sort(key=lambda r: r.urgency)
        while self.cancels and self.cancel_ps(self.cancels[0]) <= now:
            request = self.cancels.pop(0)
            if request in self.waiting:
                self.waiting.remove(request)
                self.end(request, "cancelled", now)
            elif request in self.running:
                self.running.remove(request)
                self.release(request)
                self.end(request, "cancelled", now)

    @staticmethod
    def cancel_ps(request: OracleRequest) -> int:
        return max(request.job.cancel_ps or 0, request.job.arrival_ps)

    def iterate(self, start: int) -> int:
        scheduled: dict[OracleRequest, int] = {}
        budget, preempted = self.schedule_running(scheduled)
        if not preempted:
            self.schedule_waiting(scheduled, budget, start)
        if not scheduled:  # the first of the running gave way to itself: start over
            assert preempted
            return start
        assert sum(scheduled.values()) <= self.config.max_num_batched_tokens
        assert len(self.running) <= self.config.max_num_seqs
        decodes = [r for r in scheduled if r.num_tokens - r.computed == 1]
        prefills = [r for r in scheduled if r.num_tokens - r.computed > 1]
        end = start + self.model.iteration_ps(
            sum(scheduled[r] for r in prefills),
            len(decodes),
            sum(r.computed for r in decodes),
            sum(attention_pairs(scheduled[r], r.computed) for r in prefills),
        )
        self.check_conservation()
        self.steps.append(
            OracleStep(
                start_ps=start,
                end_ps=end,
                prefill_tokens=sum(scheduled[r] for r in prefills),
                decodes=len(decodes),
                running=len(self.running),
                waiting=len(self.waiting),
                preempted=preempted,
                free_blocks=len(self.free),
            )
        )
        for request, tokens in scheduled.items():
            request.computed += tokens
            if request.computed == request.num_tokens:
                request.token_ps.append(end)
        for request in list(self.running):
            if len(request.token_ps) == request.job.output_tokens:
                self.running.remove(request)
                self.release(request)
                self.end(request, "completed", end)
        return end

    def schedule_running(self, scheduled: dict[OracleRequest, int]) -> tuple[int, int]:
        budget, preempted, index = self.config.max_num_batched_tokens, 0, 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            gap = request.num_tokens - request.computed
            tokens = min(gap, self.config.chunk_limit, budget)
            while not self.fits(request, tokens):
                if self.config.priority_scheduling:
                    victim = max(self.running, key=lambda r: r.urgency)
                else:
                    victim = self.running[-1]
                if victim in scheduled:
                    self.unpublish(victim, scheduled[victim])
                    budget += scheduled.pop(victim)
                    index -= 1
                self.preempt(victim)
                preempted += 1
                if victim is request:
                    return budget, preempted
            self.allocate(request, tokens)
            scheduled[request] = tokens
            budget -= tokens
            index += 1
        return budget, preempted

    def schedule_waiting(
        self, scheduled: dict[OracleRequest, int], budget: int, start: int
    ) -> None:
        config = self.config
        while self.waiting and budget > 0 and len(self.running) < config.max_num_seqs:
            request = self.waiting[0]
            hits = self.lookup(request)
            cached = len(hits) * config.block_tokens
            tokens = min(request.num_tokens - cached, config.chunk_limit)
            if not config.chunked_prefill and tokens > budget:
                return
            tokens = min(tokens, budget)
            reach = request.num_tokens if config.full_sequence_must_fit else cached + tokens
            unowned_hits = sum(self.owners[block] == 0 for block in hits)
            needed = self.blocks_for(reach) - len(hits) + unowned_hits
            if needed + config.watermark_blocks > len(self.free):
                return
            self.waiting.pop(0)
            self.running.append(request)
            for block in hits:
                if self.owners[block] == 0:
                    self.free.remove(block)
                self.owners[block] += 1
            self.forget_own(request, len(hits))
            request.blocks = hits
            request.computed = cached
            if request.scheduled_ps is None:
                request.scheduled_ps, request.cached_tokens = start, cached
            self.allocate(request, tokens)
            scheduled[request] = tokens
            budget -= tokens

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.config.block_tokens)

    def fits(self, request: OracleRequest, tokens: int) -> bool:
        needed = self.blocks_for(request.computed + tokens) - len(request.blocks)
        return needed <= len(self.free)

    def allocate(self, request: OracleRequest, tokens: int) -> None:
        while len(request.blocks) < self.blocks_for(request.computed + tokens):
            block = self.free.pop(0)
            if block in self.published.values():
                self.published = {k: b for k, b in self.published.items() if b != block}
            self.owners[block] = 1
            request.blocks.append(block)
        if self.config.prefix_cache:
            first = request.computed // self.config.block_tokens
            for index in range(first, (request.computed + tokens) // self.config.block_tokens):
                self.published.setdefault(request.block_key(index), request.blocks[index])

    def lookup(self, request: OracleRequest) -> list[int]:
        hits: list[int] = []
        if self.config.prefix_cache:
            for index in range((request.num_tokens - 1) // self.config.block_tokens):
                block = self.published.get(request.block_key(index))
                if block is None:
                    break
                hits.append(block)
        return hits

    def unpublish(self, request: OracleRequest, tokens: int) -> None:
        first = request.computed // self.config.block_tokens
        for index in range(first, (request.computed + tokens) // self.config.block_tokens):
            if self.published.get(request.block_key(index)) == request.blocks[index]:
                del self.published[request.block_key(index)]

    def forget_own(self, request: OracleRequest, hits: int) -> None:
        for index in range(hits, self.blocks_for(request.num_tokens)):
            self.published.pop(("own", request.order, index), None)

    def preempt(self, victim: OracleRequest) -> None:
        self.running.remove(victim)
        self.release(victim)
        victim.computed = 0
        victim.preemptions += 1
        if self.config.priority_scheduling:
            insort(self.waiting, victim, key=lambda r: r.urgency)
        else:
            self.waiting.insert(0, victim)

    def release(self, request: OracleRequest) -> None:
        for block in reversed(request.blocks):
            self.owners[block] -= 1
            if self.owners[block] == 0:
                self.free.append(block)
        request.blocks = []

    def end(self, request: OracleRequest, outcome: Outcome, done_ps: int) -> None:
        self.tokens_ps[request.job.job_id] = tuple(request.token_ps)
        self.finished.append(
            Finished(
                job_id=request.job.job_id,
                outcome=outcome,
                arrival_ps=request.job.arrival_ps,
                scheduled_ps=request.scheduled_ps,
                first_token_ps=request.token_ps[0] if request.token_ps else None,
                done_ps=done_ps,
                output_tokens=len(request.token_ps),
                cached_tokens=request.cached_tokens,
                preemptions=request.preemptions,
            )
        )

    def check_conservation(self) -> None:
        held = set().union(*(request.blocks for request in self.running))
        assert len(held) + len(self.free) == self.config.usable_blocks
        assert len(held.union(self.free)) == self.config.usable_blocks  # none twice, none in both
        assert sum(self.owners) == sum(len(request.blocks) for request in self.running)
