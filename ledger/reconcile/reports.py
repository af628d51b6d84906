"""A recorded run as people read it: opening, movements, closing, what is material (REC-3).

Values for a page; the exports of the same run are in `exports`. Money in pico units of `currency`.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ledger.money import parse_units
from ledger.queries import reconciliation as stored
from ledger.reconcile.values import UNEXPLAINED, Plan, Tokens
from ledger.records import Discrepancy, PeriodLock, Reconciliation, ReconciliationSignOff

SHOWN_LIMIT = 200

Verdict = Literal["exact", "within_tolerance", "differs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One class with its detail, and what it adds up to. `late`: adjusts a locked period."""

    class_name: str
    detail: str
    late: bool
    attempts: int
    lines: int
    ours_pico: int
    theirs_pico: int

    @property
    def difference_pico(self) -> int:
        return self.theirs_pico - self.ours_pico


class Proposed(msgspec.Struct, frozen=True, kw_only=True):
    """How an open unknown would be settled: what it cost by the provider, and the line ids."""

    request_id: str
    attempt_id: str
    ran: bool
    cost: str
    tokens: Tokens | None
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One discrepancy, with the first of its attempts, their requests, and its lines."""

    ordinal: int
    class_name: str
    detail: str
    unit: str
    late: bool
    material: bool
    attempts: int
    lines: int
    ours_pico: int
    theirs_pico: int
    ours_tokens: Tokens | None
    theirs_tokens: Tokens | None
    request_ids: tuple[str, ...]
    line_ids: tuple[str, ...]
    proposal: Proposed | None

    @property
    def difference_pico(self) -> int:
        return self.theirs_pico - self.ours_pico


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run: opening + movements = closing, and ours + difference = theirs."""

    run_id: str
    provider: str
    period: str
    zone: str
    start_us: int
    end_us: int
    currency: str
    plan: Plan
    opening_pico: int
    ours_pico: int
    theirs_pico: int
    closing_pico: int
    movements: tuple[Movement, ...]
    adjustments_pico: int  # of the movements, what is late
    unexplained_pico: int  # differences of any sign, added up without sign
    verdict: Verdict
    material: int  # discrepancies at or above the plan's materiality
    found: tuple[Found, ...]  # the largest first
    found_count: int
    apart: dict[str, int]
    rates: tuple[dict[str, Any], ...]
    invoices: tuple[str, ...]
    digest: str
    ran_at_us: int
    ran_by: str
    signed: ReconciliationSignOff | None
    lock: PeriodLock | None

    @property
    def difference_pico(self) -> int:
        return self.theirs_pico - self.ours_pico


def report(connection: sqlite3.Connection, run_id: str) -> Report | None:
    """The report of a recorded run; None where the ledger has none of this id."""
    found = stored.run(connection, run_id)
    if found is None:
        return None
    record = found.record
    plan = msgspec.json.decode(record.plan_json, type=Plan)
    every = _every_discrepancy(connection, record)
    movements = movements_of(record)
    unexplained = _unexplained(movements, every)
    largest = sorted(every, key=lambda one: (-abs(_difference(one)), one.ordinal))[:SHOWN_LIMIT]
    return Report(
        run_id=run_id, provider=record.provider, period=record.period, zone=record.zone,
        start_us=record.start_us, end_us=record.end_us, currency=record.currency, plan=plan,
        opening_pico=parse_units(record.opening), ours_pico=parse_units(record.ours),
        theirs_pico=parse_units(record.theirs), closing_pico=parse_units(record.closing),
        movements=movements,
        adjustments_pico=sum(one.difference_pico for one in movements if one.late),
        unexplained_pico=unexplained, verdict=_verdict(plan, unexplained),
        material=sum(abs(_difference(one)) >= plan.materiality_pico for one in every),
        found=tuple(_found(connection, plan, one) for one in largest), found_count=len(every),
        apart=msgspec.json.decode(record.apart_json, type=dict[str, int]),
        rates=tuple(msgspec.json.decode(record.rates_json, type=list[dict[str, Any]])),
        invoices=tuple(record.invoices.split()), digest=record.digest.hex(),
        ran_at_us=record.ran_at_us, ran_by=record.ran_by,
        signed=stored.sign_off(connection, run_id), lock=stored.lock_of_run(connection, run_id),
    )  # fmt: skip


def movements_of(record: Reconciliation) -> tuple[Movement, ...]:
    """A run's sums by class and detail, in the classes' order."""
    sums = msgspec.json.decode(record.classes_json, type=dict[str, tuple[int, int, str, str]])
    found = []
    for name, (attempts, lines, ours, theirs) in sums.items():
        class_name, detail, late = name.split(" ")
        found.append(
            Movement(
                class_name=class_name, detail=detail, late=late == "1", attempts=attempts,
                lines=lines, ours_pico=parse_units(ours), theirs_pico=parse_units(theirs),
            )
        )  # fmt: skip
    return tuple(found)


def _every_discrepancy(
    connection: sqlite3.Connection, record: Reconciliation
) -> Sequence[Discrepancy]:
    found: list[Discrepancy] = []
    while len(found) < record.discrepancies:
        after = found[-1].ordinal if found else -1
        page = stored.discrepancies(connection, record.run_id, after=after, limit=1_000)
        if not page:
            break
        found += page
    return found


def _difference(one: Discrepancy) -> int:
    return parse_units(one.theirs) - parse_units(one.ours)


def _unexplained(movements: Sequence[Movement], every: Sequence[Discrepancy]) -> int:
    """A charge too many and one too few don't cancel; within the tolerance of a line they do."""
    matched = sum(one.difference_pico for one in movements if one.class_name == "matched")
    return abs(matched) + sum(
        abs(_difference(one)) for one in every if one.class_name in UNEXPLAINED
    )


def _verdict(plan: Plan, unexplained: int) -> Verdict:
    if not unexplained:
        return "exact"
    return "within_tolerance" if unexplained <= plan.total_tolerance_pico else "differs"


def _found(connection: sqlite3.Connection, plan: Plan, one: Discrepancy) -> Found:
    members = msgspec.json.decode(one.members_json, type=dict[str, list[str]])
    proposal = None
    if one.proposal_json is not None:
        proposal = msgspec.json.decode(one.proposal_json, type=Proposed)
    return Found(
        ordinal=one.ordinal, class_name=one.class_name, detail=one.detail, unit=one.unit,
        late=bool(one.late), material=abs(_difference(one)) >= plan.materiality_pico,
        attempts=one.attempts, lines=one.lines, ours_pico=parse_units(one.ours),
        theirs_pico=parse_units(one.theirs),
        ours_tokens=msgspec.json.decode(one.ours_tokens_json, type=Tokens | None),
        theirs_tokens=msgspec.json.decode(one.theirs_tokens_json, type=Tokens | None),
        request_ids=stored.requests_of(connection, members["attempts"]),
        line_ids=tuple(name.rpartition(".")[0] for name in members["lines"]),
        proposal=proposal,
    )  # fmt: skip
