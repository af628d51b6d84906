"""A backend that does what a test's script says, behind the journey that serves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway import configuration as configured
from gateway.book import Book
from gateway.desk import Desk
from gateway.journey import Journey
from gateway.policy.values import CapacitySnapshot, Route
from gateway.providers.base import Call, Capabilities
from gateway.providers.capabilities import OF_KIND
from gateway.providers.outcomes import Outcome
from gateway.run import Run
from gateway.runtime import enter_tenants
from gateway.submission import Caller, Delta, Ended, Message, Refusal, Submission
from ledger.reading import connect_read_only
from ledger.store import Store
from tests.gateway.clock import VirtualClock
from tests.policy_factories import snapshot

Step = Delta | Outcome | Exception
START_US = 1_900_000_000_000_000  # after whatever a fleet's records say


@dataclass(kw_only=True)
class ScriptedAttempt:
    """Yields its steps; from `waits_at` on only once a cancel has come, or never if it is deaf."""

    steps: Sequence[Step]
    waits_at: int | None
    deaf: bool
    cancelled_with: list[str] = field(default_factory=list)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def events(self) -> AsyncIterator[Delta | Outcome]:
        for index, step in enumerate(self.steps):
            if index == self.waits_at:
                await self.woken.wait()
            if isinstance(step, Exception):
                raise step
            yield step

    async def carry(self, piece: Callable[[Delta], None]) -> Outcome:
        async for event in self.events():
            if isinstance(event, Outcome):
                return event
            piece(event)
        raise RuntimeError("the script has no end")

    def cancel(self, reason: str) -> None:
        self.cancelled_with.append(reason)
        if not self.deaf:
            self.woken.set()

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


@dataclass(kw_only=True)
class ScriptedProvider:
    """Every attempt follows the one script."""

    script: Callable[[Call], Sequence[Step]]
    waits_at: int | None = None
    deaf: bool = False
    attempts: list[ScriptedAttempt] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    fresh: Callable[[Route], CapacitySnapshot] | None = None
    tasks: tuple[asyncio.Task[None], ...] = ()

    def start(self, call: Call) -> ScriptedAttempt:
        made = ScriptedAttempt(steps=self.script(call), waits_at=self.waits_at, deaf=self.deaf)
        self.attempts.append(made)
        return made

    def snapshot(self, route: Route) -> CapacitySnapshot | None:
        return None

    async def refresh(self, route: Route) -> CapacitySnapshot | None:
        self.refreshed.append(route.route_id)
        return self.fresh(route) if self.fresh else None

    def reconfigure(self, routes: Iterable[Route]) -> Sequence[asyncio.Task[None]]:
        return ()

    def capabilities(self, route: Route) -> Capabilities:
        return OF_KIND["simulator"]

    async def ask(self, route: Route, provider_request_id: str) -> Outcome | None:
        return None

    async def close(self) -> None: ...


@dataclass(kw_only=True)
class Stage:
    """A journey over a real ledger, and what a test asks of it."""

    journey: Journey
    store: Store
    clock: VirtualClock
    provider: ScriptedProvider
    ledger: Path

    async def admitted(self, **changed) -> Run:
        found = await self.journey.admit(submission(**changed))
        assert not isinstance(found, Refusal), found.reason_code
        return found

    async def pieces(self, run: Run) -> tuple[str, Ended]:
        """The text and the end, as a caller gets them."""
        text = ""
        async for piece in self.journey.deliver(run):
            if isinstance(piece, Ended):
                return text, piece
            text += piece.text
        raise AssertionError("no end")

    def rows(self, sql: str, *values) -> list[tuple]:
        with contextlib.closing(connect_read_only(self.ledger)) as reader:
            return [tuple(row) for row in reader.execute(sql, values).fetchall()]

    def held(self) -> tuple[int, int, int]:
        book = self.journey.desk.book
        return book.in_flight(), book.kv_held_tokens(), book.pending_pico()


def submission(**changed) -> Submission:
    fields: dict[str, Any] = {
        "caller": Caller(tenant_id="support-desk", key_id="key_1", scopes=frozenset()),
        "logical_model": "assist",
        "messages": (Message(role="user", content="How heavy is it?"),),
        "max_output_tokens": 200,
    }
    return Submission(**fields | changed)


@contextlib.contextmanager
def stage(ledger: Path, provider: ScriptedProvider):
    """A journey whose simulated routes all lead to the scripted provider."""
    with Store.open(ledger) as store, contextlib.closing(connect_read_only(ledger)) as reader:
        book, clock = Book(), VirtualClock(START_US)
        desk = Desk(configured.load(reader), book)
        enter_tenants(book, reader, START_US)
        for route_id in desk.configuration.routes:
            book.open_route(route_id)
            book.observe(snapshot(route_id, observed_at_us=START_US))
        journey = Journey(desk=desk, store=store, providers={"simulator": provider}, clock=clock)
        yield Stage(journey=journey, store=store, clock=clock, provider=provider, ledger=ledger)
