"""The embedded backend: simulated replicas run by the clock, tokens when due (PRV-1)."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gateway.clock import Clock
from gateway.policy.values import CapacitySnapshot, Route
from gateway.providers.base import Call, Capabilities
from gateway.providers.capabilities import SIMULATOR
from gateway.providers.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Rejected,
    Timings,
    inter_token_latency,
)
from gateway.providers.said import FinishReason
from gateway.providers.simulated import PRIORITY_RANK, backend_of, capacity
from gateway.providers.simulated_answer import script_of
from gateway.providers.simulated_queue import FrontQueue, Place
from gateway.schemas import matches_schema
from gateway.submission import Delta
from ledger.rates import Usage
from simulator.engine import Replica
from simulator.live import LiveReplica, sleep_ps
from simulator.scheduler import Finished, Job
from simulator.timing import PS_PER_US

log = logging.getLogger(__name__)

RETAINED_JOBS = 1_024
"""How many ended jobs a replica still knows, for their token times."""
REMEMBERED_JOBS = 16_384
"""How many jobs the provider can still tell of when it is asked (PRV-3)."""
ID_PREFIX = "sim-"
GONE = "SIMULATOR_RESTARTED"
SCALED = (
    "simulated time runs %g times as fast as the clock; deadlines, receipts and predictions are in "
    "real time: publish predictions for this scale (docs/simulator.md, As a live backend)"
)
NO_GAPS = np.empty(0, np.int64)


class Remembered(msgspec.Struct, kw_only=True):
    """What is kept of a job to tell what became of it: no text, and nothing of its call."""

    place: Place | None  # None: it has ended, and what it held is free
    finish: FinishReason
    ended: Outcome | None = None

    def told(self, attempt_id: str) -> Outcome | None:
        """Return how it ended, without its times; None while it runs."""
        if self.place is not None:
            self.ended = ended_as(self.place, self.finish, attempt_id)
            if self.ended is not None:
                self.place = None
        return self.ended


class SimulatedRoute:
    """The replicas behind one route and the queue in front of them, each run by its own task."""

    def __init__(
        self,
        route: Route,
        clock: Clock,
        sleep: Callable[[int], Awaitable[None]],
        time_scale: float,
        first_revision: int,
    ) -> None:
        backend = backend_of(route)
        self.route_id = route.route_id
        self.address, self.queue_limit = route.address, route.queue_limit
        self._revision = first_revision
        self._clock, self._time_scale = clock, time_scale

        def now_ps() -> int:
            return clock.now_us() * PS_PER_US

        self.replicas = [
            LiveReplica(
                Replica(backend.config, backend.model, retain_finished=RETAINED_JOBS),
                now_ps,
                sleep,
                time_scale=time_scale,
            )
            for _ in range(backend.replicas)
        ]
        self.queue = FrontQueue(
            self.replicas, now_ps, sleep, time_scale=time_scale, limit=route.queue_limit
        )

    def snapshot(self) -> CapacitySnapshot:
        """Return the replicas' load and what waits in front of them, now (SCH-2)."""
        parts = [live.snapshot() for live in self.replicas]
        taken = capacity(
            self.route_id,
            self._revision,
            self._clock.now_us(),
            parts,
            self.queue.front(),
            self._time_scale,
        )
        self._revision += 1
        return taken


class SimulatorProvider:
    """Runs attempts on the simulated replicas of their routes."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        clock: Clock,
        time_scale: float,
        first_revision: Callable[[str], int],
        sleep: Callable[[int], Awaitable[None]] = sleep_ps,
    ) -> None:
        """`sleep` waits for so many picoseconds of `clock`: tests give those of virtual time."""
        self._clock, self._sleep = clock, sleep
        self._time_scale = time_scale
        if time_scale != 1.0:
            log.warning(SCALED, time_scale)
        self._first_revision = first_revision
        self._routes: dict[str, SimulatedRoute] = {}
        self._jobs: OrderedDict[str, Remembered] = OrderedDict()
        self._forgot = False
        self.tasks: list[asyncio.Task[None]] = []
        self.reconfigure(routes)

    def reconfigure(self, routes: Iterable[Route]) -> Sequence[asyncio.Task[None]]:
        """Serve these routes from now on; return the tasks of those that are new or moved.

        A route with another address or queue limit gets new replicas; what is on the old ones
        ends there.
        """
        opened = [
            self._opened(route)
            for route in routes
            if route.provider_kind == "simulator" and not self._serves(route)
        ]
        self._routes |= {simulated.route_id: simulated for simulated in opened}
        started = [
            asyncio.create_task(live.run(), name=f"simulator {simulated.route_id}.{index}")
            for simulated in opened
            for index, live in enumerate(simulated.replicas)
        ]
        started += [
            asyncio.create_task(simulated.queue.run(), name=f"simulator {simulated.route_id}.queue")
            for simulated in opened
        ]
        self.tasks += started
        return started

    def _opened(self, route: Route) -> SimulatedRoute:
        first_revision = self._first_revision(route.route_id)
        return SimulatedRoute(route, self._clock, self._sleep, self._time_scale, first_revision)

    def _serves(self, route: Route) -> bool:
        known = self._routes.get(route.route_id)
        return known is not None and (known.address, known.queue_limit) == (
            route.address,
            route.queue_limit,
        )

    def start(self, call: Call) -> "SimulatedAttempt":
        queue = self._routes[call.route.route_id].queue
        attempt = SimulatedAttempt(call, queue, self._clock, self._time_scale)
        self._jobs[call.attempt_id] = attempt.remembered
        if len(self._jobs) > REMEMBERED_JOBS:
            self._jobs.popitem(last=False)
            self._forgot = True
        return attempt

    async def refresh(self, route: Route) -> CapacitySnapshot | None:
        return self.snapshot(route)

    def queue_of(self, route_id: str) -> FrontQueue:
        """Return the queue in front of a route's replicas."""
        return self._routes[route_id].queue

    def capabilities(self, route: Route) -> Capabilities:
        return SIMULATOR

    async def ask(self, route: Route, provider_request_id: str) -> Outcome | None:
        """Return how a job ended, by its own id or its attempt's; None while it runs (PRV-3).

        A job that this process never had died with an earlier one, and is known to have failed.
        """
        attempt_id = provider_request_id.removeprefix(ID_PREFIX)
        job = self._jobs.get(attempt_id)
        if job is not None:
            return job.told(attempt_id)
        if self._forgot:
            return None  # it may be one of those that are not remembered any more
        return Failed(
            usage=Usage(input_tokens=0, output_tokens=0),
            usage_source="counted",
            provider_request_id=ID_PREFIX + attempt_id,
            reason=GONE,
        )

    def snapshot(self, route: Route) -> CapacitySnapshot | None:
        return self._routes[route.route_id].snapshot()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class SimulatedAttempt:
    """One job, waiting in front or on one replica, its tokens as text."""

    def __init__(self, call: Call, queue: FrontQueue, clock: Clock, time_scale: float) -> None:
        self._call, self._queue, self._clock, self._time_scale = call, queue, clock, time_scale
        self._seed = call.attempt_id if call.seed is None else str(call.seed)
        self._script = script_of(call, self._seed)
        self._cancel_reason: str | None = None
        self._cancel_sent_us = 0
        self._cancelling: asyncio.Task[Finished | None] | None = None
        self._place = queue.submit(
            Job(
                job_id=call.attempt_id,
                arrival_ps=0,  # the live replica sets it to when it begins there
                input_tokens=call.input_tokens,
                output_tokens=len(self._script.texts),
                priority=PRIORITY_RANK[call.priority],
            ),
            call.tenant_id,
        )
        self.remembered = Remembered(place=self._place, finish=self._script.finish)

    async def carry(self, piece: Callable[[Delta], None]) -> Outcome:
        """Hand on each token as its text; return how the job ended."""
        stream = await self._place.begun()
        if stream is not None:
            async for index in stream:
                piece(self._script.piece(index))
            await stream.ended()
        finished = self._place.finished
        if finished is None:
            raise RuntimeError(f"{self._call.attempt_id} left the simulator without an end")
        self.remembered.told(self._call.attempt_id)
        return self._outcome(finished)

    def cancel(self, reason: str) -> None:
        if self._cancelling is None:
            self._cancel_reason, self._cancel_sent_us = reason, self._clock.now_us()
            self._cancelling = asyncio.ensure_future(self._queue.cancel(self._place))

    def hold(self) -> None:
        """Nothing is to be read: the answer is made here, and no longer than its cap."""

    def go_on(self) -> None:
        """See `hold`."""

    def _outcome(self, finished: Finished) -> Outcome:
        usage = usage_of(self._call.input_tokens, finished)
        timings = self._timings(finished)
        if finished.outcome == "completed":
            return Completed(
                usage=usage,
                timings=timings,
                provider_request_id=ID_PREFIX + self._call.attempt_id,
                finish_reason=self._script.finish,
                schema_valid=self._schema_valid(),
            )
        if finished.outcome == "cancelled":
            return Cancelled(
                usage=usage,
                timings=replace(timings, cancel_ack_us=self._clock.now_us() - self._cancel_sent_us),
                provider_request_id=ID_PREFIX + self._call.attempt_id,
                reason=self._cancel_reason or "backend",
            )
        return _refused(usage, finished)

    def _timings(self, finished: Finished) -> Timings:
        live = self._place.live
        gaps_ps = inter_token_ps(live, finished) if live is not None else NO_GAPS
        return timings_of(finished, gaps_ps, self._time_scale)

    def _schema_valid(self) -> bool | None:
        if self._call.schema is None or self._script.function is not None:
            return None
        return matches_schema("".join(self._script.texts), self._call.schema)


def usage_of(input_tokens: int, finished: Finished) -> Usage:
    return Usage(
        input_tokens=input_tokens,
        output_tokens=finished.output_tokens,
        cached_input_tokens=finished.cached_tokens,
    )


def ended_as(place: Place, finish: FinishReason, attempt_id: str) -> Outcome | None:
    """Return how a job ended, without its times; None while it runs."""
    finished = place.finished
    if finished is None:
        return None
    usage, named = usage_of(place.job.input_tokens, finished), ID_PREFIX + attempt_id
    if finished.outcome == "completed":
        return Completed(usage=usage, provider_request_id=named, finish_reason=finish)
    if finished.outcome == "cancelled":
        return Cancelled(usage=usage, provider_request_id=named, reason="CANCELLED")
    return _refused(usage, finished)


def _refused(usage: Usage, finished: Finished) -> Rejected:
    """Return the end of a job that never ran: shed by a full queue, or larger than any replica."""
    shed = finished.outcome == "shed"
    return Rejected(usage=usage, reason="PROVIDER_OVERLOADED" if shed else "PROVIDER_REFUSED")


def inter_token_ps(replica: Replica | LiveReplica, finished: Finished) -> NDArray[np.int64]:
    """Return the gaps between the tokens of an ended job, in ps; none where it got no token."""
    if finished.first_token_ps is None:
        return NO_GAPS
    return replica.inter_token_ps(finished.job_id)


def timings_of(
    finished: Finished,
    gaps_ps: NDArray[np.int64],
    time_scale: float = 1.0,
    network_us: int | None = None,
) -> Timings:
    """Return a simulated job's phases in real µs; each simulated duration is divided by the scale.

    `network_us`: from the first token to its first byte; None: the caller will measure it. Every
    duration is rounded half to even by itself. The engine emits the first token at the end of the
    iteration that completes the prefill, so there is no separate first decode: it is 0.
    """
    a_us = PS_PER_US * time_scale
    if finished.scheduled_ps is None:
        return Timings()
    queue_us = round((finished.scheduled_ps - finished.arrival_ps) / a_us)
    if finished.first_token_ps is None:
        return Timings(queue_us=queue_us)
    prefill_us = round((finished.first_token_ps - finished.scheduled_ps) / a_us)
    return Timings(
        queue_us=queue_us,
        prefill_us=prefill_us,
        first_decode_us=0,
        first_byte_network_us=network_us,
        first_token_us=None if network_us is None else queue_us + prefill_us + network_us,
        decode_us=round((finished.done_ps - finished.first_token_ps) / a_us),
        itl=inter_token_latency(gaps_ps, a_us),
    )
