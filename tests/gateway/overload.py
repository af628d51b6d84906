"""More load than a route can carry, in virtual time: the desk, book, settling and simulator that
serve, over a real ledger. What can be sustained is measured first, by a run that is saturated."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

import msgspec

from gateway import configuration as configured
from gateway.book import Book
from gateway.demo.replay import Replay
from gateway.demo.traffic import Arrival
from gateway.desk import Desk
from gateway.policy.values import Priority
from gateway.quota import Quota
from ledger.records import Receipt
from ledger.store import Store
from tests.server_fixtures import Fleet

START_US = 1_900_000_000_000_000
MINUTE_US = 60_000_000
ROUTE, TENANT = "fast-v2", "overload"
SHARES: tuple[tuple[Priority, float], ...] = (("interactive", 0.5), ("normal", 0.2), ("batch", 0.3))
DEADLINES_US: dict[Priority, int] = {
    "interactive": 15_000_000,
    "normal": 60_000_000,
    "batch": 300_000_000,
}
OUTPUT_CAP = 256


@dataclass(kw_only=True)
class Overload:
    """What a run ended with, and the longest that its queue was at any decision."""

    receipts: list[Receipt] = field(default_factory=list)
    longest_queue: int = 0
    queue_limit: int = 0
    held_at_the_end: tuple[int, int, int] | None = None  # slots, KV tokens, pico units

    def by_priority(self, priority: str) -> list[Receipt]:
        return [each for each in self.receipts if each.priority == priority]

    def tokens_per_second(self, minutes: float) -> float:
        """Input and output tokens of what was completed within the run."""
        end_us = START_US + int(minutes * MINUTE_US)
        done = [
            r for r in self.receipts if r.status == "completed" and (r.ended_at_us or 0) < end_us
        ]
        return sum(r.input_tokens + r.output_tokens for r in done) / (minutes * 60)


def arrivals(per_second: float, minutes: float, seed: int) -> Iterator[Arrival]:
    """Poisson arrivals of one tenant: short chats and long prompts, three priorities."""
    draw = Random(seed)
    at_s = draw.expovariate(per_second)
    while at_s < minutes * 60:
        priority = draw.choices([each for each, _ in SHARES], [share for _, share in SHARES])[0]
        yield Arrival(
            at_us=int(at_s * 1_000_000),
            input_tokens=draw.choice((200, 600, 1_200, 3_000)),
            output_tokens=draw.choice((60, 120, 240)),
            tenant_id=TENANT,
            logical_model="assist",
            priority=priority,
            task_type="chat",
            max_output_tokens=OUTPUT_CAP,
            deadline_us=DEADLINES_US[priority],
            wants_schema=False,
            hang_up_after_us=None,
        )
        at_s += draw.expovariate(per_second)


def one_route(configuration: configured.Configuration) -> configured.Configuration:
    """The fleet's configuration with one model on one route, no canary and no fallback."""
    policy = configuration.policy
    replaced = msgspec.structs.replace
    model = replaced(policy.models[0], primary_routes=(ROUTE,), canary=None)
    policy = replaced(policy, models=(model,), edges=(), queue_shares=())
    return replace(configuration, policy=policy, models={model.name: model})


def overloaded(fleet: Fleet, per_second: float, minutes: float, seed: int = 5) -> Overload:
    """Run so many requests a second for so long, to the last one's end."""
    run, book = Overload(), Book()
    with Store.open(fleet.ledger) as store, contextlib.closing(fleet.reader()) as reader:
        desk = Desk(one_route(configured.load(reader)), book)
        quota = Quota(in_flight_limit=100_000)
        book.set_quota(TENANT, quota, now_us=START_US, spent_pico=0)
        book.open_routes(desk.configuration.routes)
        replay = Replay(
            desk=desk, store=store, start_us=START_US, seed=seed, first_revision=1,
            receipts=run.receipts.append,
        )  # fmt: skip
        for _ in replay.run(arrivals(per_second, minutes, seed)):
            state = next(each for each in book.route_states() if each.route_id == ROUTE)
            if state.snapshot is not None:
                waiting = state.snapshot.waiting_requests + state.accepted_since
                run.longest_queue = max(run.longest_queue, waiting)
        run.queue_limit = desk.configuration.routes[ROUTE].queue_limit
        run.held_at_the_end = (book.in_flight(), book.kv_held_tokens(), book.pending_pico())
    return run
