"""A reconciliation from start to end, and the records that keep it (REC-2, REC-3).

`reconcile` reads and computes and appends nothing: the same plan on the same inputs gives the
same `Run`, to the byte. `records_of` says what to append.
"""

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from hashlib import sha256

import msgspec

from ledger.money import units_text
from ledger.queries import reconciliation as stored
from ledger.queries.archives import archives_of_attempts
from ledger.reading import read_head
from ledger.reconcile.inputs import Inputs, read_inputs
from ledger.reconcile.matching import compare
from ledger.reconcile.tying import tied_out
from ledger.reconcile.values import BINDINGS_LIMIT, Comparison, Plan, Refused, Unit
from ledger.records import Discrepancy, Reconciliation, Record
from ledger.zones import day_start_us, days, parse_zone

DISCREPANCIES_LIMIT = 20_000  # one run is one commit, all of it or nothing
MEMBERS_LIMIT = 20  # named in a discrepancy; the exports hold all

_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_DAYS = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\.\.([0-9]{4}-[0-9]{2}-[0-9]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodOf:
    """A period by name, in a reporting zone."""

    name: str
    zone: str
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One reconciliation, computed."""

    run_id: str
    plan: Plan
    period: PeriodOf
    inputs: Inputs
    comparison: Comparison
    inputs_digest: bytes
    digest: bytes

    @property
    def closing_pico(self) -> int:
        return self.inputs.opening_pico + self.comparison.difference_pico


def period_of(name: str, zone: str = "UTC") -> PeriodOf | Refused:
    """A month ("2026-09") or days, both included ("2026-09-01..2026-09-07"), in a zone (CST-9)."""
    try:
        where = parse_zone(zone)
        month, span = _MONTH.fullmatch(name), _DAYS.fullmatch(name)
        if month is not None:
            first = date(int(month[1]), int(month[2]), 1)
            after = date(first.year + first.month // 12, first.month % 12 + 1, 1)
            start_us, end_us = day_start_us(first, where), day_start_us(after, where)
        elif span is not None:
            found = days(date.fromisoformat(span[1]), date.fromisoformat(span[2]), where)
            start_us, end_us = found.start_us, found.end_us
        else:
            raise ValueError(f"{name[:40]!r} is no period: write 2026-09 or 2026-09-01..2026-09-07")
    except (ValueError, OverflowError) as error:
        return Refused(code="PERIOD", message=str(error))
    if start_us >= end_us:
        return Refused(code="PERIOD", message=f"{name} is empty")
    return PeriodOf(name=name, zone=zone, start_us=start_us, end_us=end_us)


def reconcile(
    connection: sqlite3.Connection, plan: Plan, period: PeriodOf, *, as_of_seq: int | None = None
) -> Run | Refused:
    """The comparison of a period, as of the ledger's head or of an earlier row; or why not."""
    if not plan.bindings or len(plan.bindings) > BINDINGS_LIMIT:
        return Refused(
            code="BINDINGS",
            message=f"a plan binds 1 to {BINDINGS_LIMIT:,} routes to {plan.provider}'s models",
        )
    bound = Counter(binding.route_id for binding in plan.bindings)
    twice = next((route_id for route_id, times in bound.items() if times > 1), None)
    if twice is not None:
        message = f"{twice} is bound twice: other names of its model are `aliases`"
        return Refused(code="BINDINGS", message=message)
    files = archives_of_attempts(
        connection, period.start_us, period.end_us, wait_us=stored.WAIT_LIMIT_US
    )
    if files:
        return Refused(
            code="PERIOD_ARCHIVED",
            message=f"requests of {period.name} are in {', '.join(files)}: what was reconciled "
            "before is on its page; it can't be compared again here",
        )
    lock = stored.last_lock(connection, plan.provider)
    if as_of_seq is None:
        if lock is not None and period.start_us < lock.end_us:
            return Refused(
                code="PERIOD_LOCKED",
                message=f"{plan.provider} is locked up to the end of {lock.period}; lines that "
                "came later are adjustments of the next period",
            )
        head = read_head(connection)
        as_of_seq = 0 if head is None else head.size
    inputs = read_inputs(connection, plan, period.start_us, period.end_us, as_of_seq)
    if isinstance(inputs, Refused):
        return inputs
    comparison = tied_out(
        compare(
            plan, inputs.ours, inputs.theirs, inputs.coverage,
            rejected_requests=inputs.rejected_requests,
        ),
        inputs.ours, inputs.theirs,
    )  # fmt: skip
    covered = _canonical(
        [plan, period.name, period.zone, sorted(inputs.ours, key=lambda o: o.attempt_id),
         sorted(inputs.theirs, key=lambda t: (t.line_id, t.revision)),
         [list(inputs.coverage.empty), list(inputs.coverage.missing)],
         units_text(inputs.opening_pico), inputs.rejected_requests, _rates(inputs)]
    )  # fmt: skip
    inputs_digest = sha256(covered).digest()
    digest = sha256(_canonical([_exact(unit) for unit in comparison.units])).digest()
    return Run(
        run_id="rec_" + sha256(inputs_digest + digest).hexdigest()[:32],
        plan=plan,
        period=period,
        inputs=inputs,
        comparison=comparison,
        inputs_digest=inputs_digest,
        digest=digest,
    )


def again(
    connection: sqlite3.Connection, record: Reconciliation, *, as_of_seq: int | None = None
) -> Run | Refused:
    """A recorded run, computed again from what it looked at, or as of another row.

    Refused (NOT_REPRODUCED) where what it looked at gives something else than was recorded.
    """
    period = PeriodOf(
        name=record.period, zone=record.zone, start_us=record.start_us, end_us=record.end_us
    )
    plan = msgspec.json.decode(record.plan_json, type=Plan)
    seq = record.as_of_seq if as_of_seq is None else as_of_seq
    run = reconcile(connection, plan, period, as_of_seq=seq)
    if as_of_seq is None and isinstance(run, Run) and run.run_id != record.run_id:
        return Refused(
            code="NOT_REPRODUCED",
            message=f"{record.run_id} comes out otherwise now: the code that compares has changed, "
            "or the ledger's file has; verify_ledger tells. Run the period again",
        )
    return run


def outdated(connection: sqlite3.Connection, record: Reconciliation) -> Refused | None:
    """None where the run, made again now, would compare the same; else why that can't be said.

    RUN_OUTDATED: something of its period came later. PERIOD_ARCHIVED: it can't be made again.
    """
    head = read_head(connection)
    run = again(connection, record, as_of_seq=0 if head is None else head.size)
    if isinstance(run, Run) and run.run_id == record.run_id:
        return None
    if isinstance(run, Refused) and run.code == "PERIOD_ARCHIVED":
        return run
    return Refused(
        code="RUN_OUTDATED",
        message="lines or attempts of the period came after the run: run and sign it again",
    )


def records_of(run: Run, *, now_us: int, by: str) -> tuple[Record, ...] | Refused:
    """The Reconciliation and its discrepancies, to be appended in one commit."""
    found = [unit for unit in run.comparison.units if unit.class_name != "matched"]
    if len(found) > DISCREPANCIES_LIMIT:
        return Refused(
            code="TOO_MANY_DISCREPANCIES",
            message=f"{len(found):,} units don't match; {DISCREPANCIES_LIMIT:,} are kept at most: "
            "see whether the plan's bindings and dimensions are right, or compare fewer days",
        )
    comparison = run.comparison
    record = Reconciliation(
        run_id=run.run_id,
        provider=run.plan.provider,
        period=run.period.name,
        zone=run.period.zone,
        start_us=run.period.start_us,
        end_us=run.period.end_us,
        currency=run.plan.currency,
        plan_json=_canonical(run.plan).decode(),
        as_of_seq=run.inputs.as_of_seq,
        invoices=" ".join(run.inputs.invoices),
        rates_json=_canonical(_rates(run.inputs)).decode(),
        inputs_digest=run.inputs_digest,
        digest=run.digest,
        ours=units_text(comparison.ours_pico),
        theirs=units_text(comparison.theirs_pico),
        difference=units_text(comparison.difference_pico),
        opening=units_text(run.inputs.opening_pico),
        closing=units_text(run.closing_pico),
        classes_json=_canonical(class_sums(comparison)).decode(),
        apart_json=_canonical(comparison.apart).decode(),
        discrepancies=len(found),
        ran_at_us=now_us,
        ran_by=by,
    )
    return (record, *(_discrepancy(run.run_id, n, unit) for n, unit in enumerate(found)))


def class_sums(comparison: Comparison) -> Mapping[str, tuple[int, int, str, str]]:
    """ "class detail late" -> (attempts, lines, ours, theirs), by name."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for unit in comparison.units:
        one = sums[f"{unit.class_name} {unit.detail} {int(unit.late)}"]
        one[0] += len(unit.attempts)
        one[1] += len(unit.lines)
        one[2] += unit.ours_pico
        one[3] += unit.theirs_pico
    return {
        name: (one[0], one[1], units_text(one[2]), units_text(one[3]))
        for name, one in sorted(sums.items())
    }


def _discrepancy(run_id: str, ordinal: int, unit: Unit) -> Discrepancy:
    members = {
        "attempts": unit.attempts[:MEMBERS_LIMIT],
        "lines": unit.lines[:MEMBERS_LIMIT],
    }
    return Discrepancy(
        run_id=run_id,
        ordinal=ordinal,
        class_name=unit.class_name,
        detail=unit.detail,
        unit=unit.name,
        late=int(unit.late),
        attempts=len(unit.attempts),
        lines=len(unit.lines),
        ours=units_text(unit.ours_pico),
        theirs=units_text(unit.theirs_pico),
        ours_tokens_json=_canonical(unit.ours_tokens).decode(),
        theirs_tokens_json=_canonical(unit.theirs_tokens).decode(),
        members_json=_canonical(members).decode(),
        proposal_json=None if unit.proposal is None else _exact_json(unit),
    )


def _exact_json(unit: Unit) -> str:
    proposal = unit.proposal
    if proposal is None:
        return "null"
    fields = msgspec.structs.asdict(proposal)
    fields["cost"] = units_text(fields.pop("cost_pico"))
    return _canonical(fields).decode()


def _exact(unit: Unit) -> object:
    """The unit with its money as text: a sum may outgrow what JSON integers hold."""
    fields = msgspec.structs.asdict(unit)
    for name in ("ours_pico", "theirs_pico"):
        fields[name] = units_text(fields[name])
    fields["proposal"] = _exact_json(unit)
    return fields


def _rates(inputs: Inputs) -> list[dict[str, object]]:
    rates = {(r.from_currency, r.on_day, r.revision): r for r in inputs.rates}
    return [
        {"from": r.from_currency, "to": r.to_currency, "on_day": r.on_day, "rate": r.rate,
         "revision": r.revision, "source": r.source}
        for _, r in sorted(rates.items())
    ]  # fmt: skip


def _canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
