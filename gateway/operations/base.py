"""What an operation is, who performs it, and what becomes of it."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec

from gateway.auth_roles import Role
from ledger.records import ControlAction, Record

REASON_LIMIT_CHARS = 500
PROBLEMS_LIMIT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who does it, with which role, and from where: what a ControlAction is attributed to."""

    name: str
    role: Role
    via: Literal["console", "command", "api", "server"]

    @property
    def label(self) -> str:
        return f"{self.via}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a plan may look at: the ledger as it is, the time, and who asks."""

    connection: sqlite3.Connection
    now_us: int
    actor: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to append, and what the audit log and the asker are told. All of it or nothing.

    `before` and `after` go into the audit log: no secrets. `shown_once` (a new key) does not.
    """

    records: tuple[Record, ...]
    summary: str  # one sentence, past tense
    subject: str  # what was changed: a revision, a route, a request
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    evidence: str = ""
    shown_once: str | None = field(default=None, repr=False)


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """Nothing was written. `code` is stable; the message says what to do."""

    code: str
    message: str
    problems: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """It is durable, and in force where a server runs."""

    summary: str
    subject: str
    records: int
    after: dict[str, Any] = {}
    shown_once: str | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that can be asked for; its fields are what the asker fills in."""

    NAME: ClassVar[str]
    ROLE: ClassVar[Role]
    NEEDS_REASON: ClassVar[bool] = True
    AUDITED: ClassVar[bool] = True  # False: what it appends says who did what by itself
    LONG: ClassVar[bool] = False  # True: its plan may take more than a tenth of a second

    reason: str = ""

    def takes_long(self, seen: Seen) -> bool:
        """Whether planning it now reads so much that a server does it in a process of its own."""
        return self.LONG

    def plan(self, seen: Seen) -> Plan | Refused:
        """The plan, or why not. Reads, and never writes."""
        raise TypeError(f"{type(self).__name__} declares no plan")


def audit(operation: Operation, plan: Plan, seen: Seen) -> ControlAction:
    """The row of the audit log that goes with a plan: who, what, why, before and after (SEC-2)."""
    return ControlAction(
        action=operation.NAME,
        subject=plan.subject,
        actor=seen.actor.label,
        acted_at_us=seen.now_us,
        reason=operation.reason,
        before_json=canonical(plan.before),
        after_json=canonical(plan.after),
        evidence=plan.evidence,
    )


def canonical(value: Mapping[str, Any]) -> str:
    """JSON text with sorted keys: the same mapping gives the same text."""
    return msgspec.json.encode(value, order="deterministic").decode()
