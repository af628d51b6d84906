"""The live backend hands tokens over when they are due; time is virtual in all these tests."""

import asyncio
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush

import pytest

from simulator.engine import Replica
from simulator.live import WORN_PS, LiveReplica, TokenStream
from simulator.scheduler import Job, ReplicaConfig
from simulator.timing import MAX_PS, PS_PER_MS, TimeModel

FLAT = TimeModel(name="flat", breakpoints=((0, 10 * PS_PER_MS),))


class VirtualTime:
    """A clock that stands still while anybody has work and then jumps to the next alarm."""

    def __init__(self) -> None:
        self.now_ps = 7_000
        self._alarms: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def clock(self) -> int:
        return self.now_ps

    async def sleep(self, duration_ps: int) -> None:
        alarm = asyncio.get_running_loop().create_future()
        self._count += 1
        heappush(self._alarms, (self.now_ps + duration_ps, self._count, alarm))
        await alarm

    async def run(self, until_ps: int) -> None:
        while True:
            for _ in range(8):
                await asyncio.sleep(0)
            while self._alarms and self._alarms[0][2].done():
                heappop(self._alarms)
            if not self._alarms or self._alarms[0][0] > until_ps:
                self.now_ps = until_ps
                return
            self.now_ps, _, alarm = heappop(self._alarms)
            alarm.set_result(None)


def in_virtual_time(
    scenario: Callable[[LiveReplica, VirtualTime], Awaitable[None]], time_scale: float = 1.0
) -> None:
    async def main() -> None:
        time = VirtualTime()
        replica = Replica(ReplicaConfig(kv_blocks=2000), FLAT, retain_finished=1000)
        live = LiveReplica(replica, time.clock, time.sleep, time_scale)
        pump = asyncio.create_task(live.run())
        try:
            await scenario(live, time)
        finally:
            pump.cancel()

    asyncio.run(main())


async def collect(stream: TokenStream, time: VirtualTime, start_ps: int) -> list[tuple[int, int]]:
    return [(index, time.now_ps - start_ps) async for index in stream]


def job(job_id: str, output_tokens: int) -> Job:
    return Job(job_id=job_id, arrival_ps=0, input_tokens=5, output_tokens=output_tokens)


def test_each_token_leaves_at_the_very_moment_it_is_due():
    async def scenario(live: LiveReplica, time: VirtualTime) -> None:
        start = time.now_ps
        reader = asyncio.create_task(collect(live.submit(job("a", 3)), time, start))
        await time.run(start + 100 * PS_PER_MS)
        assert await reader == [(n, 10 * PS_PER_MS * (n + 1)) for n in range(3)]

    in_virtual_time(scenario)


def test_time_scale_makes_the_simulated_time_pass_faster():
    async def scenario(live: LiveReplica, time: VirtualTime) -> None:
        start = time.now_ps
        reader = asyncio.create_task(collect(live.submit(job("a", 3)), time, start))
        await time.run(start + 100 * PS_PER_MS)
        assert await reader == [(n, 2 * PS_PER_MS * (n + 1)) for n in range(3)]

    in_virtual_time(scenario, time_scale=5.0)


def test_two_hundred_streams_get_their_tokens_in_the_same_moment():
    async def scenario(live: LiveReplica, time: VirtualTime) -> None:
        start = time.now_ps
        streams = [live.submit(job(f"job {n}", 20)) for n in range(200)]
        readers = [asyncio.create_task(collect(stream, time, start)) for stream in streams]
        await time.run(start + 1000 * PS_PER_MS)
        for reader in readers:
            assert await reader == [(n, 10 * PS_PER_MS * (n + 1)) for n in range(20)]

    in_virtual_time(scenario)


def test_a_job_handed_in_later_wakes_the_replica_up():
    async def scenario(live: LiveReplica, time: VirtualTime) -> None:
        start = time.now_ps
        first = asyncio.create_task(collect(live.submit(job("a", 4)), time, start))
        await time.run(start + 15 * PS_PER_MS)
        second = asyncio.create_task(collect(live.submit(job("b", 1)), time, start))
        await time.run(start + 100 * PS_PER_MS)
        assert await first == [(n, 10 * PS_PER_MS * (n + 1)) for n in range(4)]
        assert await second == [(0, 30 * PS_PER_MS)]

    in_virtual_time(scenario)


def test_a_cancel_is_acknowledged_at_the_next_iteration_boundary():
    async def scenario(live: LiveReplica, time: VirtualTime) -> None:
        start = time.now_ps
        stream = live.submit(job("a", 50))
        reader = asyncio.create_task(collect(stream, time, start))
        await time.run(start + 25 * PS_PER_MS)
        acknowledged = asyncio.create_task(live.cancel("a"))
        await time.run(start + 29 * PS_PER_MS)
        assert not acknowledged.done()
        await time.run(start + 31 * PS_PER_MS)
        end = await acknowledged
        assert end is not None
        assert (end.outcome, end.output_tokens) == ("cancelled", 3)
        assert end.done_ps == 30 * PS_PER_MS
        assert len(await reader) == 3
        assert live.snapshot().running_requests == 0
        assert await live.cancel("a") is None

    in_virtual_time(scenario)


def test_a_job_that_never_fits_ends_refused_without_a_token():
    async def scenario(live: LiveReplica, time: VirtualTime) -> None:
        stream = live.submit(job("too long", 100_000))
        await time.run(time.now_ps + PS_PER_MS)
        assert [index async for index in stream] == []
        assert (await stream.ended()).outcome == "refused"

    in_virtual_time(scenario)


def test_a_replica_at_the_half_of_its_clock_ends_what_it_has_and_begins_anew():
    """Another stands in its place as soon as it is asked and nothing runs: at any later time."""

    async def scenario(live: LiveReplica, time: VirtualTime) -> None:
        start = time.now_ps
        await time.run(start + WORN_PS - 15 * PS_PER_MS)
        first = asyncio.create_task(collect(live.submit(job("a", 4)), time, time.now_ps))
        await time.run(start + WORN_PS)
        assert live.worn
        assert live.snapshot().running_requests == 1
        revision = live.snapshot().revision
        await time.run(start + WORN_PS + 50 * PS_PER_MS)
        assert await first == [(n, 10 * PS_PER_MS * (n + 1)) for n in range(4)]
        assert live.snapshot().revision > revision
        assert not live.worn
        assert live.inter_token_ps("a").tolist() == [10 * PS_PER_MS] * 3
        for _ in range(3):
            await time.run(time.now_ps + MAX_PS + PS_PER_MS)
            again = asyncio.create_task(collect(live.submit(job("b", 2)), time, time.now_ps))
            await time.run(time.now_ps + 50 * PS_PER_MS)
            assert await again == [(0, 10 * PS_PER_MS), (1, 20 * PS_PER_MS)]

    in_virtual_time(scenario)


def test_a_time_scale_of_nothing_is_refused():
    with pytest.raises(ValueError, match="time_scale"):
        LiveReplica(Replica(ReplicaConfig(kv_blocks=2), FLAT), lambda: 0, time_scale=0.0)
