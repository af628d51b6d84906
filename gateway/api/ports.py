"""What the API needs of the rest of the gateway: nothing but this (DESIGN, shape)."""

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Protocol

from gateway.api.auth import KeyRing
from gateway.clock import Clock
from gateway.desk import Considered
from gateway.idempotency import Claims
from gateway.operations.base import Actor, Done, Operation, Refused
from gateway.policy.values import TenantState
from gateway.submission import Delta, Ended, Refusal, Submission
from ledger.records import Record


class Run(Protocol):
    """An accepted request on its way."""

    @property
    def request_id(self) -> str: ...
    @property
    def created_us(self) -> int: ...
    @property
    def logical_model(self) -> str: ...
    @property
    def route_id(self) -> str: ...
    @property
    def identity_id(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def degraded_from(self) -> str | None: ...

    @property
    def handed_over_us(self) -> int | None:
        """When its first attempt was handed to a provider; None before."""
        ...

    def kept_output(self) -> tuple[bool, int]:
        """Returns whether the answer is over, and how many characters of it memory holds."""
        ...


class Journey(Protocol):
    """Carries a request. Each may raise LedgerUnavailable: then nothing was run or told."""

    async def admit_together(
        self, submissions: Sequence[Submission]
    ) -> "Refusal | tuple[Run, ...]":
        """Returns the refusal, or a run for each, all durable before it returns: all or none."""
        ...

    async def consider(self, submission: Submission) -> Considered:
        """Returns what would be decided on it now; nothing is held, recorded or run."""
        ...

    def deliver(self, run: "Run") -> AsyncIterator[Delta | Ended]:
        """Yields the answer's pieces as they arrive, then Ended once, with the durable receipt."""
        ...

    def batches(
        self, run: "Run", choice: int = 0, *, once: bool = False,
        at_once: Callable[[Delta], bool] | None = None,
    ) -> AsyncGenerator[tuple[int, Sequence[Delta | Ended]], None]:  # fmt: skip
        """Yields the same, the pieces together that are there at once, with `choice` beside.

        `once`: nobody reads them again. `at_once` may write a piece itself: it returns whether.
        """
        ...

    async def whole(self, run: "Run") -> Sequence[Delta | Ended]:
        """Returns all of them at once, when the last one is there."""
        ...

    async def cancel(self, run: "Run") -> None:
        """Passes on that the client went away."""
        ...

    async def cancel_by_name(self, tenant_id: str, request_id: str, wait_s: float) -> bool | None:
        """Cancels a tenant's running request; returns whether its receipt is there within the
        wait. None: no such request of this tenant runs."""
        ...


class Operations(Protocol):
    """Carries out operations, one at a time."""

    async def perform(self, operation: Operation, actor: Actor) -> Done | Refused:
        """Returns what was done, durable and in force, or why nothing was."""
        ...


class Ports(Protocol):
    """The running gateway as the API sees it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def keys(self) -> KeyRing: ...
    @property
    def journey(self) -> Journey: ...
    @property
    def claims(self) -> Claims: ...

    @property
    def operations(self) -> Operations: ...

    async def commit(self, records: Sequence[Record]) -> object:
        """Returns once the records are durable. Raises RecordRefused or LedgerUnavailable."""
        ...

    def models(self) -> tuple[str, ...]:
        """Returns the logical models of the policy in force, sorted."""
        ...

    def allowance(self, tenant_id: str) -> TenantState | None:
        """Returns what a tenant has used of its quota; None where it has none."""
        ...

    def versions(self, model: str) -> tuple[str, ...]:
        """Returns the identities of a model's primary routes, each once; () of no such model."""
        ...

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        """Returns whether requests are taken, and each reason why not."""
        ...

    def reader(self) -> sqlite3.Connection:
        """Returns the calling thread's read-only connection to the ledger."""
        ...
