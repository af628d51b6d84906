"""What the journey asks of a provider, whatever stands behind it (PRV-1, PRV-2)."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.policy.values import CapacitySnapshot, Priority, Route
from gateway.providers.outcomes import Outcome
from gateway.submission import Delta, Message, Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt as a provider needs it. The messages live only as long as the attempt."""

    attempt_id: str
    route: Route
    tenant_id: str
    priority: Priority
    input_tokens: int
    max_output_tokens: int
    messages: tuple[Message, ...] = field(repr=False)
    schema: dict[str, object] | None = field(default=None, repr=False)
    tools_json: str | None = field(default=None, repr=False)
    parameters: Parameters = field(default_factory=Parameters)
    ignore_eos: bool = False
    seed: int | None = None
    without: frozenset[str] = frozenset()  # optional parameters that the provider refused (RTY-2)
    traceparent: str | None = None  # W3C trace context of this attempt, sent on as it is
    tracestate: str | None = None


class Attempted(Protocol):
    """A running attempt: pieces as they arrive, then exactly one outcome, then the end."""

    def events(self) -> AsyncIterator[Delta | Outcome]: ...

    def cancel(self, reason: str) -> None:
        """Ask the backend to stop; the outcome then tells whether it acknowledged."""
        ...


class Provider(Protocol):
    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """Return what must run for as long as the provider does, to be supervised."""
        ...

    def start(self, call: Call) -> Attempted: ...

    def snapshot(self, route: Route) -> CapacitySnapshot | None:
        """Return what the route's backend last said of its capacity; None: nothing yet."""
        ...

    def reconfigure(self, routes: Iterable[Route]) -> Sequence[asyncio.Task[None]]:
        """Serve these routes from now on; return the tasks that were started for the new ones."""
        ...

    async def close(self) -> None: ...
