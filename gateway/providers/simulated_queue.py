"""The queue in front of a route's live replicas: fair, ageing, bounded, cancelled at once (SCH-1).

A replica is handed no more than it can begin in its next iterations; all else waits in front, where
its turn still depends on who else comes. Tenants take turns by tokens, and a class gains one rank
per ageing interval, so nobody is starved (simulator.fair_queue).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from simulator.fair_queue import FairQueue, QueuePolicy, Waiting
from simulator.fleet import fewest_outstanding
from simulator.live import LiveClock, LiveReplica, TokenStream
from simulator.scheduler import Finished, Job, Outcome
from simulator.timing import PS_PER_MS, PS_PER_S

AGEING_PS = 10 * PS_PER_S
"""A batch request of a simulated 20 s is as urgent as an interactive one, and came before it."""
STUCK_PS = 250 * PS_PER_MS
"""A replica at which one has waited so long has no room: handing in more could only overtake it."""
RECHECK_PS = 50 * PS_PER_MS
"""While somebody waits, room is looked for at least so often: not every step emits a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What waits in front of the replicas at one moment."""

    requests: int
    input_tokens: int
    oldest_wait_ps: int


class Place:
    """One job's way: it waits in front, then runs on a replica; `finished` is how it ended."""

    __slots__ = ("_moved", "_waited_ps", "ended", "enqueued_ps", "job", "live", "stream", "tenant")

    def __init__(self, job: Job, tenant: str, enqueued_ps: int) -> None:
        self.job, self.tenant, self.enqueued_ps = job, tenant, enqueued_ps
        self.live: LiveReplica | None = None
        self.stream: TokenStream | None = None
        self.ended: Finished | None = None  # of one that never reached a replica
        self._waited_ps = 0
        self._moved = asyncio.get_running_loop().create_future()

    @property
    def finished(self) -> Finished | None:
        """How it ended, its arrival that in front; None while it waits or runs."""
        if self.stream is None or self.stream.finished is None:
            return self.ended
        finished = self.stream.finished
        return finished._replace(arrival_ps=finished.arrival_ps - self._waited_ps)

    async def begun(self) -> TokenStream | None:
        """Return its tokens once it is on a replica; None where it ended before."""
        if self.stream is None and self.ended is None:
            await asyncio.shield(self._moved)
        return self.stream

    def go(self, live: LiveReplica, rank: int, now_ps: int) -> None:
        """Hand it to a replica with the rank that it has by now."""
        self._waited_ps = now_ps - self.enqueued_ps
        job = self.job if rank == self.job.priority else replace(self.job, priority=rank)
        self.live, self.stream = live, live.submit(job)
        self._move()

    def end(self, outcome: Outcome, now_ps: int) -> None:
        """End it where it waits."""
        self.ended = Finished(
            job_id=self.job.job_id, outcome=outcome, arrival_ps=self.enqueued_ps,
            scheduled_ps=None, first_token_ps=None, done_ps=now_ps, output_tokens=0,
            cached_tokens=0, preemptions=0,
        )  # fmt: skip
        self._move()

    def _move(self) -> None:
        if not self._moved.done():
            self._moved.set_result(None)


class FrontQueue:
    """The queue of one route; its owner runs `run` and supervises it. Owned by one event loop."""

    def __init__(
        self,
        replicas: Sequence[LiveReplica],
        clock: Callable[[], int],
        sleep: Callable[[int], Awaitable[None]],
        *,
        time_scale: float,
        limit: int,
    ) -> None:
        """`limit`: how many may wait here; the least urgent class is shed for more (ADM-8)."""
        self._replicas, self._sleep = replicas, sleep
        self._clock = LiveClock(clock, time_scale)
        largest = max(live.replica.config.max_servable_tokens for live in replicas)
        self._queue = FairQueue(
            QueuePolicy(max_items=limit, max_tokens=limit * largest, ageing_ps=AGEING_PS)
        )
        self._largest = largest
        self._places: dict[int | str, Place] = {}
        self._input_tokens = 0
        self._waiting = asyncio.Event()

    def submit(self, job: Job, tenant: str) -> Place:
        """Take a job that comes now; it begins at once where a replica has room."""
        now_ps, tokens = self._clock.now_ps(), job.input_tokens + job.output_tokens
        place = Place(job, tenant, now_ps)
        if tokens > self._largest:
            place.end("refused", now_ps)
            return place
        shed = self._queue.offer(
            Waiting(
                item=job.job_id, tenant=tenant, rank=job.priority, tokens=tokens,
                enqueued_ps=now_ps,
            )
        )  # fmt: skip
        self._places[job.job_id] = place
        self._input_tokens += job.input_tokens
        for each in shed:
            self._left(each.item).end("shed", now_ps)
        self.dispatch()
        if self._queue:
            self._waiting.set()
        return place

    async def cancel(self, place: Place) -> Finished | None:
        """Return how it ended once its cancel is acknowledged: at once, where it waits here."""
        if self._queue.remove(place.job.job_id):
            self._left(place.job.job_id).end("cancelled", self._clock.now_ps())
        if place.live is not None:
            await place.live.cancel(place.job.job_id)
        return place.finished

    def front(self) -> Front:
        oldest_ps, now_ps = self._queue.oldest_ps(), self._clock.now_ps()
        return Front(
            requests=len(self._queue),
            input_tokens=self._input_tokens,
            oldest_wait_ps=0 if oldest_ps is None else now_ps - oldest_ps,
        )

    def dispatch(self) -> None:
        """Hand the replicas what they have room for, each to the one with least to do."""
        while self._queue:
            live = self._least_loaded()
            if live is None:
                return
            now_ps = self._clock.now_ps()
            turn = self._queue.take(now_ps)
            if turn is None:
                return
            self._left(turn.item).go(live, turn.rank_at(now_ps, AGEING_PS), now_ps)

    def _least_loaded(self) -> LiveReplica | None:
        """Return the replica with least to do that has room; None where none has."""
        left = list(self._replicas)
        for live in left:
            if live.replica.outstanding or live.worn:  # else nothing of it can have changed
                live.catch_up()
        while left:
            place = fewest_outstanding([live.replica.outstanding for live in left])
            live = left.pop(place)
            if _has_room(live):
                return live
        return None

    async def run(self) -> None:
        """Dispatch whenever a replica may have got room, until cancelled."""
        while True:
            await self._waiting.wait()
            self.dispatch()
            if self._queue:
                await self._sleep(self._clock.real_ps(self._until_room_ps()))
            else:
                self._waiting.clear()

    def _until_room_ps(self) -> int:
        """Return how long nothing ends on any replica, at most RECHECK_PS; simulated."""
        replicas = [live.replica for live in self._replicas]
        due = [(each.next_token_ps(), each.now_ps) for each in replicas]
        waits_ps = [at_ps - now_ps for at_ps, now_ps in due if at_ps is not None]
        return max(1, min([*waits_ps, RECHECK_PS]))

    def _left(self, item: int | str) -> Place:
        place = self._places.pop(item)
        self._input_tokens -= place.job.input_tokens
        return place


def _has_room(live: LiveReplica) -> bool:
    """Whether a replica can begin one more soon: less than an iteration's work waits there."""
    if live.worn:
        return False
    if not live.replica.outstanding:
        return True
    config, load = live.replica.config, live.snapshot()
    return (
        live.replica.outstanding < config.max_num_seqs
        and load.waiting_input_tokens < config.max_num_batched_tokens
        and load.oldest_wait_ps < STUCK_PS
    )
