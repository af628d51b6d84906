"""SCH-1 where it serves: the queue in front of the live replicas, in virtual time throughout."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from gateway.policy.values import Priority
from gateway.providers.outcomes import Cancelled, Completed, Outcome, Rejected
from gateway.providers.simulated_queue import AGEING_PS
from gateway.providers.simulator import SimulatorProvider
from gateway.submission import Delta
from simulator.timing import PS_PER_US
from tests import policy_factories as make
from tests.gateway.clock import VirtualClock
from tests.gateway.providers.calls import call
from tests.gateway.providers.upstream import events_of

START_US, SECOND_US = 1_000_000, 1_000_000
AGEING_US = AGEING_PS // PS_PER_US
POOL_TOKENS = 2_000 * 16


@dataclass
class Backend:
    """The provider that serves, with a clock that jumps to the next alarm when nobody has work."""

    queue_limit: int = 64
    replicas: int = 1
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(START_US))
    ended: list[tuple[str, int, Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._alarms: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._readers: list[asyncio.Task[None]] = []
        self.route = make.route(
            provider_kind="simulator", queue_limit=self.queue_limit,
            address=f"sim:llama-3.1-8b-rtx4090?kv_blocks=2001&replicas={self.replicas}",
        )  # fmt: skip
        self.provider = SimulatorProvider(
            [self.route], clock=self.clock, time_scale=1.0, first_revision=lambda _: 1,
            sleep=self.sleep,
        )  # fmt: skip

    async def sleep(self, duration_ps: int) -> None:
        alarm, due_us = asyncio.get_running_loop().create_future(), -(-duration_ps // PS_PER_US)
        self._count += 1
        heappush(self._alarms, (self.clock.now_us() + due_us, self._count, alarm))
        await alarm

    def ask(
        self, name: str, tenant: str = "a", priority: Priority = "interactive",
        *, input_tokens: int = 10_000, output_tokens: int = 40,
    ):  # fmt: skip
        """Start an attempt that takes a third of the KV pool; its end is told in `ended`."""
        attempt = self.provider.start(
            call(
                self.route, attempt_id=name, tenant_id=tenant, priority=priority,
                input_tokens=input_tokens, max_output_tokens=output_tokens, ignore_eos=True,
            )
        )  # fmt: skip

        async def read() -> None:
            async for event in events_of(attempt):
                if not isinstance(event, Delta):
                    self.ended.append((name, self.clock.now_us() - START_US, event))

        self._readers.append(asyncio.create_task(read()))
        return attempt

    async def run(self, seconds: float) -> None:
        """Let so much time pass."""
        until_us = self.clock.now_us() + round(seconds * SECOND_US)
        while True:
            for _ in range(12):
                await asyncio.sleep(0)
            while self._alarms and self._alarms[0][2].done():
                heappop(self._alarms)
            if not self._alarms or self._alarms[0][0] > until_us:
                self.clock.set_us(until_us)
                return
            due_us, _, alarm = heappop(self._alarms)
            self.clock.set_us(max(due_us, self.clock.now_us()))
            alarm.set_result(None)

    def completed(self) -> list[str]:
        return [name for name, _, outcome in self.ended if isinstance(outcome, Completed)]


def against(
    scenario: Callable[[Backend], Awaitable[None]], *, queue_limit: int = 64, replicas: int = 1
) -> Backend:
    async def main() -> Backend:
        backend = Backend(queue_limit=queue_limit, replicas=replicas)
        try:
            await scenario(backend)
        finally:
            await backend.provider.close()
        return backend

    return asyncio.run(main())


def test_sch_1_a_tenant_that_comes_late_is_served_between_the_many_of_another():
    async def scenario(backend: Backend) -> None:
        for number in range(24):
            backend.ask(f"flood-{number}", "flood")
        await backend.run(0.1)
        for number in range(3):
            backend.ask(f"late-{number}", "late")
        await backend.run(300)

    done = against(scenario).completed()
    assert len(done) == 27
    assert max(done.index(f"late-{number}") for number in range(3)) < 12


def test_sch_1_batch_is_served_although_interactive_work_never_ceases():
    async def scenario(backend: Backend) -> None:
        for number in range(8):
            backend.ask(f"first-{number}")
        backend.ask("batch", priority="batch")
        for number in range(60):  # more than the replica can do
            await backend.run(1)
            backend.ask(f"more-{number}-0")
            backend.ask(f"more-{number}-1")

    backend = against(scenario, queue_limit=500)
    done_us = next(at_us for name, at_us, _ in backend.ended if name == "batch")
    assert len(backend.completed()) < 128, "the load was no overload"
    waiting = 12 * SECOND_US  # those that came before it has aged, and itself
    assert done_us < 2 * AGEING_US + waiting
    first = backend.completed().index("batch")
    assert first > 8  # urgent work went before it for as long as it was young


def test_sch_1_a_request_that_waits_is_cancelled_at_once_and_never_runs():
    async def scenario(backend: Backend) -> None:
        for number in range(6):
            backend.ask(f"before-{number}")
        waiting = backend.ask("waiting")
        await backend.run(0.001)
        waiting.cancel("CLIENT_GONE")
        await backend.run(0)  # no time passes
        (ended,) = [end for end in backend.ended if end[0] == "waiting"]
        assert ended[1] == 1_000
        assert isinstance(ended[2], Cancelled)
        assert ended[2].reason == "CLIENT_GONE"
        assert ended[2].timings.cancel_ack_us == 0
        assert ended[2].usage.output_tokens == 0
        told = await backend.provider.ask(backend.route, "waiting")
        assert isinstance(told, Cancelled)
        await backend.run(120)

    assert len(against(scenario).completed()) == 6


def test_sch_1_the_queue_is_bounded_and_sheds_the_least_urgent_class_first():
    """ADM-8: what is shed never ran, so that another attempt may follow it."""

    longest: list[int] = []

    async def scenario(backend: Backend) -> None:
        queue = backend.provider.queue_of(backend.route.route_id)
        for number in range(12):
            backend.ask(f"batch-{number}", priority="batch")
            longest.append(queue.front().requests)
        for number in range(4):
            backend.ask(f"urgent-{number}")
            longest.append(queue.front().requests)
        await backend.run(300)

    backend = against(scenario, queue_limit=4)
    assert max(longest) == 4
    shed = [(name, end) for name, _, end in backend.ended if isinstance(end, Rejected)]
    assert {end.reason for _, end in shed} == {"PROVIDER_OVERLOADED"}
    assert all(name.startswith("batch") for name, _ in shed)
    assert {f"urgent-{number}" for number in range(4)} <= set(backend.completed())
    assert len(shed) + len(backend.completed()) == 16


def test_sch_2_a_snapshot_counts_what_waits_in_front_and_the_queue_phase_holds_it():
    async def scenario(backend: Backend) -> None:
        for number in range(10):
            backend.ask(f"r{number}")
        await backend.run(1)
        snapshot = backend.provider.snapshot(backend.route)
        front = backend.provider.queue_of(backend.route.route_id).front()
        ended = len(backend.ended)
        assert front.requests >= 5
        assert front.input_tokens == 10_000 * front.requests
        assert snapshot.waiting_requests + snapshot.running_requests == 10 - ended
        assert snapshot.waiting_requests >= front.requests
        assert snapshot.waiting_input_tokens >= front.input_tokens
        assert snapshot.oldest_wait_us == SECOND_US
        await backend.run(120)

    backend = against(scenario)
    last = backend.ended[-1][2]
    assert isinstance(last, Completed)
    phases = last.timings
    assert (phases.queue_us or 0) > SECOND_US
    total_us = (phases.queue_us or 0) + (phases.prefill_us or 0) + (phases.decode_us or 0)
    assert abs(total_us - backend.ended[-1][1]) <= 3  # rounded one by one, on whole microseconds


def test_sch_1_two_replicas_share_one_queue_and_a_request_too_large_for_any_is_refused():
    async def scenario(backend: Backend) -> None:
        for number in range(8):
            backend.ask(f"r{number}")
        backend.ask("too-large", input_tokens=POOL_TOKENS + 1)
        await backend.run(120)

    alone, both = against(scenario), against(scenario, replicas=2)
    for backend in (alone, both):
        (refused,) = [end for name, _, end in backend.ended if name == "too-large"]
        assert isinstance(refused, Rejected)
        assert refused.reason == "PROVIDER_REFUSED"
        assert len(backend.completed()) == 8
    assert both.ended[-1][1] < 0.6 * alone.ended[-1][1]
