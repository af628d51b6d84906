"""What the journey asks of a provider, whatever stands behind it (PRV-1, PRV-2)."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from gateway.policy.values import CapacitySnapshot, EndState, Priority, Route
from gateway.providers.outcomes import Outcome
from gateway.quiet import Quiet
from gateway.submission import Delta, Message, Parameters


class Call(Quiet, frozen=True, kw_only=True, gc=False):
    """One attempt as a provider needs it. The messages live only as long as the attempt."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"messages", "schema", "tools_json"})

    attempt_id: str
    route: Route
    tenant_id: str
    priority: Priority
    input_tokens: int
    max_output_tokens: int
    messages: tuple[Message, ...]
    schema: dict[str, object] | None = None
    tools_json: str | None = None
    parameters: Parameters = Parameters()
    ignore_eos: bool = False
    seed: int | None = None
    without: frozenset[str] = frozenset()  # optional parameters that the provider refused (RTY-2)
    traceparent: str | None = None  # W3C trace context of this attempt, sent on as it is
    tracestate: str | None = None


EndStateByClass = tuple[tuple[str, EndState], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What can be relied on behind a route, and what can't (PRV-4).

    tokenizer: who counts the tokens that are priced. sampling: the parameters that are carried.
    cancellation: by its acknowledgement, by closing the connection, or not known to have happened.
    usage_missing: what stands in for a count that did not come. error_classes: how each kind of
    error ends an attempt. status_enquiry: of which requests it can be asked what became of them.
    """

    kind: str
    tokenizer: Literal["route_revision", "backend"]
    sampling: tuple[str, ...]
    stop: bool
    tools: bool
    json_schema: bool
    logprobs: bool
    cancellation: Literal["acknowledged", "closing_acknowledges", "not_acknowledged"]
    usage_timing: Literal["with_the_end", "in_each_chunk", "not_told"]
    usage_missing: Literal["never", "counted", "estimated"]
    error_classes: EndStateByClass
    status_enquiry: Literal["any_request", "by_provider_id", "none"]
    snapshots: Literal["with_age", "none"]


class Attempted(Protocol):
    """A running attempt: pieces as they arrive, then exactly one outcome, then the end."""

    async def carry(self, piece: Callable[[Delta], None]) -> Outcome:
        """Hand each piece to `piece` as it arrives; return the one outcome.

        Awaited once. Stopped in between, the request is closed.
        """
        ...

    def cancel(self, reason: str) -> None:
        """Ask the backend to stop; the outcome then tells whether it acknowledged."""
        ...

    def hold(self) -> None:
        """Read no more of the answer for now, where it comes over a network."""
        ...

    def go_on(self) -> None:
        """Read on after a `hold`; after the outcome it does nothing."""
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

    async def refresh(self, route: Route) -> CapacitySnapshot | None:
        """Ask the route's backend for a snapshot now; None where it tells none (ADM-6)."""
        ...

    def capabilities(self, route: Route) -> Capabilities:
        """Return what can be relied on behind the route (PRV-4)."""
        ...

    async def ask(self, route: Route, provider_request_id: str) -> Outcome | None:
        """Return what became of an earlier request; None: it can't be asked, or has no end yet.

        An id is the provider's; the simulator knows an attempt's id as well (PRV-3).
        """
        ...

    def reconfigure(self, routes: Iterable[Route]) -> Sequence[asyncio.Task[None]]:
        """Serve these routes from now on; return the tasks that were started for the new ones."""
        ...

    async def close(self) -> None: ...
