"""What is compared, by which rules, and what comes out (REC-2). Pure; money in pico units."""

from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

ClassName = Literal[
    "matched",
    "differing",
    "only_ours",
    "only_theirs",
    "duplicate_charge",
    "unknown_resolved",
    "credit_or_refund",
    "tax",
    "commitment_or_fee",
]
CLASSES: tuple[ClassName, ...] = get_args(ClassName)
UNEXPLAINED: frozenset[str] = frozenset(
    {"matched", "differing", "only_ours", "only_theirs", "duplicate_charge"}
)
"""Classes whose differences count against the tolerance in total; the others say what they are."""

BINDINGS_LIMIT = 1_000
Dimension = Literal["model", "project", "api_key", "tier"]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """The base of what follows: immutable, compared by value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why nothing is compared, signed or locked: a stable code, and what to do."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Binding(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the provider calls the traffic of one of our routes."""

    route_id: str
    model: str
    project: str | None = None
    api_key: str | None = None
    tier: str | None = None


class Alias(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A second name of a model on the provider's lines (a display name), and the bound one."""

    theirs: str
    model: str


class Plan(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is compared with what, and the tolerances: declared before, kept with the run.

    `group_by`: what lines and attempts without a common id are grouped by, within each of the
    lines' periods. `formats`: the reports used; none: all that were imported.
    """

    provider: str
    bindings: tuple[Binding, ...]
    currency: str = "USD"
    group_by: tuple[Dimension, ...] = ("model",)
    aliases: tuple[Alias, ...] = ()
    formats: tuple[str, ...] = ()
    line_tolerance_pico: int = 0  # up to here a unit is matched; its difference still counts
    total_tolerance_pico: int = 0  # of the unexplained differences together
    tokens_tolerance: int = 0
    materiality_pico: int = 10**10  # from a cent on, a difference is shown as material


class Tokens(Value, frozen=True, kw_only=True, array_like=True):
    """Tokens in the classes that both sides have: uncached input, cached input, output."""

    uncached: int = 0
    cached: int = 0
    output: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        return Tokens(
            uncached=self.uncached + other.uncached,
            cached=self.cached + other.cached,
            output=self.output + other.output,
        )

    def within(self, other: "Tokens", tolerance: int) -> bool:
        return (
            abs(self.uncached - other.uncached) <= tolerance
            and abs(self.cached - other.cached) <= tolerance
            and abs(self.output - other.output) <= tolerance
        )


class Ours(Value, frozen=True, kw_only=True):
    """One attempt of ours at its provider, as the ledger has it."""

    attempt_id: str
    request_id: str
    route_id: str
    started_at_us: int
    simulated: bool
    outcome: str | None  # completed | rejected | cancelled | failed | unknown; None: no end yet
    open: bool  # unknown, and its money is still held
    provider_request_id: str | None
    tokens: Tokens
    cost_pico: int
    late: bool = False  # of a locked period: cost_pico is what changed since


class Theirs(Value, frozen=True, kw_only=True):
    """One line of the provider's, its amount in the plan's currency."""

    line_id: str
    revision: int
    format: str
    role: str
    kind: str
    start_us: int
    end_us: int
    model: str | None
    project: str | None
    api_key: str | None
    tier: str | None
    meter: str
    tokens: int | None
    pico: int  # 0 of a usage line; of a late revision, what changed
    uncertain_pico: int  # by how much rounding and conversion can have moved it
    provider_request_id: str | None
    repeats: bool
    late: bool = False


class Proposal(Value, frozen=True, kw_only=True):
    """How an open unknown would be settled, with these lines as evidence."""

    request_id: str
    attempt_id: str
    ran: bool  # False: the provider doesn't charge for it
    cost_pico: int
    tokens: Tokens | None
    evidence: tuple[str, ...]  # line ids


class Row(Value, frozen=True, kw_only=True):
    """One attempt or one line, in the one class that it fell into."""

    unit: int  # the index of its unit
    side: Literal["ours", "theirs"]
    member: str  # attempt_id, or line_id and revision
    class_name: ClassName
    detail: str
    pico: int
    late: bool = False


class Unit(Value, frozen=True, kw_only=True):
    """What was compared as one: a provider's request, a period x model group, or a line alone."""

    name: str
    class_name: ClassName
    detail: str
    late: bool
    attempts: tuple[str, ...]
    lines: tuple[str, ...]
    ours_pico: int
    theirs_pico: int
    ours_tokens: Tokens | None = None
    theirs_tokens: Tokens | None = None
    proposal: Proposal | None = None

    @property
    def difference_pico(self) -> int:
        return self.theirs_pico - self.ours_pico


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of which times the provider's reports speak, as spans in order; none: of no bucket at all."""

    empty: tuple[tuple[int, int], ...] = ()
    missing: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Attempts that are out of scope, counted: nothing of them is in any sum."""

    simulated: int = 0
    rejected: int = 0
    other_providers: int = 0
    rejected_requests: int = 0  # refused at admission: they have no attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Every attempt and line in one row each; rows are in the order of their units."""

    units: tuple[Unit, ...]
    rows: tuple[Row, ...]
    apart: Apart
    ours_pico: int
    theirs_pico: int

    @property
    def difference_pico(self) -> int:
        return self.theirs_pico - self.ours_pico
