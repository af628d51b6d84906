"""Traffic through the whole path in virtual time: the same desk, book and settling that serve.

Only the clock and the waiting differ from the live journey: arrivals, snapshots and ends are
handled in the order of their virtual times, and rows are filed without waiting for each commit.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from msgspec.structs import replace

from gateway.demo.traffic import Arrival
from gateway.desk import Desk, Weighed
from gateway.ids import RANDOM_BYTES
from gateway.ids import request_id as make_request_id
from gateway.policy.values import Budget, InferenceRequest, Route, TokenCount
from gateway.providers.outcomes import Cancelled, Completed, Outcome, Rejected
from gateway.providers.simulated import PRIORITY_RANK, SimulatedBackend, backend_of, capacity
from gateway.providers.simulator import inter_token_ps, timings_of
from gateway.settling import closing_records, refusal_receipt
from ledger.rates import Usage
from ledger.records import Receipt, Record
from ledger.statements import Appended
from ledger.store import Store
from simulator.engine import Replica
from simulator.fleet import fewest_outstanding
from simulator.scheduler import Finished, Job
from simulator.timing import MAX_PS, PS_PER_US

SNAPSHOT_EVERY_US = 1_000_000
ROWS_PER_APPEND = 1_024
"""Rows are handed to the ledger's writer in such numbers: a commit costs much the same for few."""
APPENDS_AHEAD = 8
"""How many of them may be on their way to the disk before the replay waits for the oldest."""
RETAINED_JOBS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An accepted request on its replica."""

    weighed: Weighed
    arrival: Arrival


class VirtualReplica:
    """A replica in virtual time that is run only where something may end; `due_ps` says when."""

    __slots__ = ("due_ps", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.due_ps = MAX_PS  # no job ends before

    def submit(self, job: Job) -> None:
        self.replica.submit(job)
        self.due_ps = job.arrival_ps

    def advance_to(self, to_ps: int) -> list[Finished]:
        """Return what ended up to `to_ps`, where something was due."""
        if self.due_ps > to_ps:
            return []
        finished = self.replica.advance_to(to_ps)
        due_ps = self.replica.next_event_ps()
        self.due_ps = MAX_PS if due_ps is None else due_ps
        return finished


class VirtualRoute:
    """A route's replicas in virtual time; the least loaded takes the next job."""

    def __init__(self, route_id: str, backend: SimulatedBackend) -> None:
        self.route_id = route_id
        self.replicas = [
            VirtualReplica(Replica(backend.config, backend.model, retain_finished=RETAINED_JOBS))
            for _ in range(backend.replicas)
        ]

    def least_loaded(self) -> VirtualReplica:
        outstanding = [each.replica.outstanding for each in self.replicas]
        return self.replicas[fewest_outstanding(outstanding)]


class Replay:
    """Replays arrivals from `start_us` on; `receipts` sees each receipt as it is made."""

    def __init__(
        self,
        *,
        desk: Desk,
        store: Store,
        start_us: int,
        seed: int,
        first_revision: int,
        receipts: Callable[[Receipt], None],
        backends: Callable[[Route], SimulatedBackend] = backend_of,
        outcomes: "Callable[[Replica, Finished, Running], Outcome] | None" = None,
    ) -> None:
        """`backends` and `outcomes`: other ones than the fleet's own, for a fault scenario."""
        self._outcome_of = outcomes or outcome_of
        self._desk, self._store, self._start_us = desk, store, start_us
        self._random = random.Random(seed)  # noqa: S311 - ids of a replay, not secrets
        self._revision = first_revision
        self._receipts = receipts
        self._running: dict[int | str, Running] = {}
        self._rows: list[Record] = []
        self._appends: deque[Future[tuple[Appended, ...]]] = deque()
        self._routes = {
            route_id: VirtualRoute(route_id, backends(route))
            for route_id, route in desk.configuration.routes.items()
        }
        self._replicas = [each for route in self._routes.values() for each in route.replicas]

    def run(self, arrivals: Iterable[Arrival]) -> Iterator[int]:
        """Replay everything, yielding the number of arrivals done, and wait for the disk."""
        next_snapshot_us = 0
        for done, arrival in enumerate(arrivals, start=1):
            while next_snapshot_us <= arrival.at_us:
                self._observe(next_snapshot_us)
                next_snapshot_us += SNAPSHOT_EVERY_US
            self._advance(arrival.at_us)
            self._arrive(arrival)
            yield done
        at_us = next_snapshot_us
        while self._running:
            self._observe(at_us)
            at_us += SNAPSHOT_EVERY_US
        self._append()
        while self._appends:
            self._appends.popleft().result()

    def _arrive(self, arrival: Arrival) -> None:
        now_us = self._start_us + arrival.at_us
        request = self._request(arrival, now_us)
        weighed = self._desk.weigh(request, now_us)
        if weighed.route is None:
            receipt = refusal_receipt(weighed, now_us)
            self._file((*weighed.records, receipt))
            self._receipts(receipt)
            return
        self._file(weighed.records)
        if weighed.hold is not None:
            self._desk.book.sent(weighed.hold, now_us)
        patience_us = arrival.deadline_us
        if arrival.hang_up_after_us is not None:
            patience_us = min(patience_us, arrival.hang_up_after_us)
        replica = self._routes[weighed.route.route_id].least_loaded()
        self._running[request.request_id] = Running(weighed=weighed, arrival=arrival)
        replica.submit(
            Job(
                job_id=request.request_id,
                arrival_ps=arrival.at_us * PS_PER_US,
                input_tokens=arrival.input_tokens,
                output_tokens=min(arrival.output_tokens, arrival.max_output_tokens),
                priority=PRIORITY_RANK[arrival.priority],
                cancel_ps=(arrival.at_us + patience_us) * PS_PER_US,
            )
        )

    def _request(self, arrival: Arrival, now_us: int) -> InferenceRequest:
        """Return the arrival as admission sees it; its counts are the trace's, and say so."""
        configuration = self._desk.configuration
        model = configuration.model(arrival.logical_model)
        return InferenceRequest(
            request_id=make_request_id(now_us, self._random.randbytes(RANDOM_BYTES)),
            tenant_id=arrival.tenant_id,
            logical_model=arrival.logical_model,
            priority=arrival.priority,
            budget=Budget(
                max_input_tokens=model.max_input_tokens,
                max_output_tokens=arrival.max_output_tokens,
                max_total_tokens=model.max_total_tokens,
                deadline_us=arrival.deadline_us,
            ),
            input_tokens=tuple(
                [
                    TokenCount(tokenizer_revision=revision, tokens=arrival.input_tokens)
                    for revision in configuration.tokenizer_revisions
                ]
            ),
            required_capabilities=("json_schema",) if arrival.wants_schema else (),
            user_path="interactive" if arrival.priority == "interactive" else "background",
            task_type=arrival.task_type,
            key_id="replay",
            counted_by="trace",
        )

    def _advance(self, to_us: int) -> None:
        """End what ends up to a virtual time, in the order of the ends."""
        to_ps = to_us * PS_PER_US
        ends = [
            (finished.done_ps, each.replica, finished)
            for each in self._replicas
            if each.due_ps <= to_ps
            for finished in each.advance_to(to_ps)
        ]
        if len(ends) > 1:
            ends.sort(key=lambda end: end[0])
        for _, replica, finished in ends:
            self._end(replica, finished)

    def _end(self, replica: Replica, finished: Finished) -> None:
        running = self._running.pop(finished.job_id)
        weighed = running.weighed
        outcome = self._outcome_of(replica, finished, running)
        ended_at_us = self._start_us + finished.done_ps // PS_PER_US
        rows, receipt = closing_records(weighed, outcome, ended_at_us)
        self._file(rows)
        if weighed.hold is not None:
            self._desk.book.settle(weighed.hold, receipt.cost_total_pico, at_us=ended_at_us)
        self._receipts(receipt)

    def _observe(self, at_us: int) -> None:
        self._advance(at_us)
        for route in self._routes.values():
            parts = [each.replica.snapshot(at_us * PS_PER_US) for each in route.replicas]
            self._desk.book.observe(
                capacity(route.route_id, self._revision, self._start_us + at_us, parts)
            )
        self._revision += 1

    def _file(self, rows: tuple[Record, ...]) -> None:
        self._rows += rows
        if len(self._rows) >= ROWS_PER_APPEND:
            self._append()

    def _append(self) -> None:
        """Hand over what was filed, in its order; wait where the disk is too far behind."""
        if len(self._appends) >= APPENDS_AHEAD:
            self._appends.popleft().result()
        self._appends.append(self._store.append(self._rows))
        self._rows = []


def outcome_of(replica: Replica, finished: Finished, running: Running) -> Outcome:
    """Return a simulated end as an outcome; the network of virtual time takes no time."""
    arrival = running.arrival
    usage = Usage(
        input_tokens=arrival.input_tokens,
        output_tokens=finished.output_tokens,
        cached_input_tokens=finished.cached_tokens,
    )
    if finished.outcome == "refused":
        return Rejected(usage=usage, reason="PROVIDER_REFUSED")
    timings = timings_of(finished, inter_token_ps(replica, finished), network_us=0)
    provider_request_id = f"sim-{finished.job_id}"
    if finished.outcome == "cancelled":
        hung_up = arrival.hang_up_after_us is not None
        patience_us = min(arrival.deadline_us, arrival.hang_up_after_us or arrival.deadline_us)
        asked_ps = finished.arrival_ps + patience_us * PS_PER_US
        timings = replace(timings, cancel_ack_us=max(0, (finished.done_ps - asked_ps) // PS_PER_US))
        return Cancelled(
            usage=usage, timings=timings, provider_request_id=provider_request_id,
            reason="CLIENT_GONE" if hung_up else "DEADLINE_EXCEEDED",
        )  # fmt: skip
    return Completed(
        usage=usage, timings=timings, provider_request_id=provider_request_id,
        finish_reason="stop" if arrival.output_tokens <= arrival.max_output_tokens else "length",
    )  # fmt: skip
