"""The live backend: one replica driven by a clock that its owner passes in (SIM-1, PRV-1).

Tokens leave when they are due; a cancel is acknowledged at the next iteration boundary. All
waiting goes through the injected clock and sleep, so tests run it in virtual time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from fractions import Fraction

from simulator.engine import Replica
from simulator.iterations import Int64Array
from simulator.scheduler import Finished, Job, Snapshot
from simulator.timing import MAX_PS, PS_PER_S

MAX_STREAMS = 100_000
"""A named limit on jobs in flight; beyond it `submit` raises OverflowError."""

WORN_PS = MAX_PS // 2
"""From then on (26 days) a replica takes no more; what it has ends, and another begins at 0."""


async def sleep_ps(duration_ps: int) -> None:
    """Sleep on the event loop's own timers, at least for `duration_ps` of real time."""
    await asyncio.sleep(duration_ps / PS_PER_S)


class LiveClock:
    """Maps the injected clock's picoseconds to simulated ones, exactly, from `start_ps` on.

    `time_scale` is how many simulated seconds pass in a real one; it must be positive.
    """

    def __init__(self, clock: Callable[[], int], time_scale: float) -> None:
        if not time_scale > 0:
            raise ValueError("time_scale must be positive")
        self._clock, self._start_ps = clock, clock()
        scale = Fraction(time_scale).limit_denominator(1_000_000) or Fraction(time_scale)
        self._simulated, self._real = scale.as_integer_ratio()

    def restart(self) -> None:
        """Let the simulated time be 0 now."""
        self._start_ps = self._clock()

    def now_ps(self) -> int:
        """Return the simulated time, rounded down."""
        return (self._clock() - self._start_ps) * self._simulated // self._real

    def real_ps(self, simulated_ps: int) -> int:
        """Return the real duration of a simulated one, rounded up, so that no wake is early."""
        return -(-simulated_ps * self._real // self._simulated)


class TokenStream:
    """The tokens of one job: iterate over their indices as they come due, then read `finished`.

    One reader iterates; any number may wait for the end.
    """

    __slots__ = ("_available", "_ended", "_loop", "_reader", "_taken", "finished", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.finished: Finished | None = None
        self._available = self._taken = 0
        self._loop = asyncio.get_running_loop()
        self._reader: asyncio.Future[None] | None = None
        self._ended: list[asyncio.Future[None]] = []

    def __aiter__(self) -> "TokenStream":
        return self

    async def __anext__(self) -> int:
        taken = self._taken
        while taken >= self._available:
            if self.finished is not None:
                raise StopAsyncIteration
            self._reader = reader = self._loop.create_future()
            await reader
        self._taken = taken + 1
        return taken

    async def ended(self) -> Finished:
        """Return how the job ended, once it has."""
        while self.finished is None:
            ended = self._loop.create_future()
            self._ended.append(ended)
            await ended
        return self.finished

    def deliver(self, tokens: int, finished: Finished | None = None) -> None:
        """Make the first `tokens` tokens available, and the end known."""
        if finished is not None:
            self.finished = finished
            for ended in self._ended:
                if not ended.done():
                    ended.set_result(None)
        elif tokens <= self._available:
            return
        self._available = tokens
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)


class LiveReplica:
    """A replica that runs with the clock while `run` does; its owner starts and supervises that.

    The replica should retain a bounded number of ended jobs. Job ids must be new, arrivals are
    set to the moment of submission. Where the simulated time comes near the end of its range, no
    more should be handed in (`worn`); once all have ended, the next replica stands in its place,
    with an empty cache.
    """

    def __init__(
        self,
        replica: Replica,
        clock: Callable[[], int],
        sleep: Callable[[int], Awaitable[None]] = sleep_ps,
        time_scale: float = 1.0,
    ) -> None:
        self.replica = replica
        self._former = replica
        self._clock, self._sleep = LiveClock(clock, time_scale), sleep
        self._streams: dict[int | str, TokenStream] = {}
        self._waker: asyncio.Future[None] | None = None
        self._woken = False

    def submit(self, job: Job) -> TokenStream:
        """Hand in a job that arrives now and return its tokens as they come due.

        Raises ValueError for an id still known, OverflowError beyond MAX_STREAMS.
        """
        if len(self._streams) >= MAX_STREAMS:
            raise OverflowError(f"{MAX_STREAMS} simulated streams are in flight")
        stream = TokenStream(replace(job, arrival_ps=self._renewed_now_ps()))
        self.replica.submit(stream.job)
        self._streams[job.job_id] = stream
        self._wake()
        return stream

    async def cancel(self, job_id: int | str) -> Finished | None:
        """Return how the job ended once its cancel is acknowledged; None where it isn't known.

        A job that completes before the next boundary stays completed.
        """
        stream = self._streams.get(job_id)
        if stream is None:
            return None
        self.replica.cancel(job_id, self._now_ps())
        self._wake()
        return await stream.ended()

    @property
    def worn(self) -> bool:
        """Whether the simulated time has come so far that nothing more should be handed in."""
        return self._clock.now_ps() >= WORN_PS

    def catch_up(self) -> None:
        """Run the replica up to now, so that what it says of itself is of now."""
        now_ps = self._renewed_now_ps()  # first: it may put another replica in place
        self.replica.run_to(now_ps)

    def _renewed_now_ps(self) -> int:
        """Return the replica's time, that of the next one where this one is worn and has ended."""
        now_ps = self._clock.now_ps()
        if now_ps >= WORN_PS and not self._streams:
            self._former, self.replica = self.replica, self.replica.renewed()
            self._clock.restart()
            self._wake()
            now_ps = self._clock.now_ps()
        return max(now_ps, self.replica.now_ps)

    def inter_token_ps(self, job_id: int | str) -> Int64Array:
        """Return the gaps between an ended job's tokens, in ps; see `Replica.inter_token_ps`."""
        try:
            return self.replica.inter_token_ps(job_id)
        except KeyError:
            return self._former.inter_token_ps(job_id)  # it ended as the next one began

    def snapshot(self) -> Snapshot:
        """Return the replica's load now (SCH-2)."""
        now_ps = self._renewed_now_ps()  # first: it may put another replica in place
        return self.replica.snapshot(now_ps)

    async def run(self) -> None:
        """Deliver tokens as they come due, until cancelled."""
        while True:
            self._woken = False
            self._deliver(self._now_ps())
            due_ps = self.replica.next_token_ps()
            await self._wait(due_ps)

    def _now_ps(self) -> int:
        return max(self._clock.now_ps(), self.replica.now_ps)

    def _deliver(self, now_ps: int) -> None:
        finished = self.replica.advance_to(now_ps)
        for job_id, tokens in self.replica.running_progress():
            stream = self._streams.get(job_id)
            if stream is not None:
                stream.deliver(tokens)
        for end in finished:
            stream = self._streams.pop(end.job_id, None)
            if stream is not None:
                stream.deliver(end.output_tokens, end)

    def _wake(self) -> None:
        self._woken = True
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _wait(self, due_ps: int | None) -> None:
        """Return when `due_ps` has come, or when something was handed in meanwhile."""
        self._waker = waker = asyncio.get_running_loop().create_future()
        if self._woken:
            return
        sleeper: asyncio.Future[None] | None = None
        if due_ps is not None:
            real_ps = self._clock.real_ps(max(0, due_ps - self._clock.now_ps()))
            sleeper = asyncio.ensure_future(_sleep_then(self._sleep, real_ps, waker))
        try:
            await waker
        finally:
            if sleeper is not None:
                sleeper.cancel()


async def _sleep_then(
    sleep: Callable[[int], Awaitable[None]], duration_ps: int, waker: "asyncio.Future[None]"
) -> None:
    await sleep(duration_ps)
    if not waker.done():
        waker.set_result(None)
