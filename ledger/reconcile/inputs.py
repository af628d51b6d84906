"""What a reconciliation looks at, read from the ledger as of one row of its chain (REC-2)."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta

import msgspec

from ledger.money import parse_units
from ledger.queries import invoices as reports
from ledger.queries import reconciliation as stored
from ledger.queries.invoices import LateLine
from ledger.queries.reconciliation import AttemptRow
from ledger.reconcile.currency import RATE_AGE_LIMIT_DAYS, converted, rate_scaled
from ledger.reconcile.matching import instant
from ledger.reconcile.values import Coverage, Ours, Plan, Refused, Theirs, Tokens
from ledger.records import CurrencyRate, Invoice, InvoiceLine, PeriodLock
from ledger.zones import to_local

ATTEMPTS_LIMIT = 500_000  # they are held in memory, about 1 KB each
LINES_LIMIT = 500_000
# Formats that speak of every bucket of their period, also of one without use.
BUCKETED = frozenset(
    {"openai_usage", "openai_costs", "openai_dashboard", "anthropic_usage", "anthropic_cost"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Both sides of a comparison, the opening balance, and where each came from."""

    ours: tuple[Ours, ...]
    theirs: tuple[Theirs, ...]
    coverage: Coverage
    opening_pico: int
    rejected_requests: int
    invoices: tuple[str, ...]
    rates: tuple[CurrencyRate, ...]
    as_of_seq: int


class _Missing(Exception):
    """Ends the reading of inputs; `read_inputs` returns it as a Refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_inputs(
    connection: sqlite3.Connection, plan: Plan, start_us: int, end_us: int, as_of_seq: int
) -> Inputs | Refused:
    """The inputs of a period, or which of them is missing or ambiguous."""
    lock = stored.last_lock(connection, plan.provider, before_us=start_us, as_of_seq=as_of_seq)
    imports = [
        one
        for one in reports.invoices_of_period(
            connection, plan.provider, start_us, end_us, as_of_seq
        )
        if not plan.formats or one.format in plan.formats
    ]
    refused = _sources(plan, imports)
    if refused is not None:
        return refused
    lines = reports.lines_of_period(connection, plan.provider, start_us, end_us, as_of_seq)
    late = _late_lines(connection, plan, lock, as_of_seq)
    exchange = Exchange(connection, plan.currency, as_of_seq)
    try:
        theirs = tuple(_theirs(plan, lines, late, exchange))
        ours = tuple(_ours(connection, lock, start_us, end_us, as_of_seq))
    except _Missing as missing:
        return Refused(code=missing.code, message=str(missing))
    costs = [one for one in imports if one.role == "cost"]
    return Inputs(
        ours=ours,
        theirs=theirs,
        coverage=coverage(costs, [t for t in theirs if t.role == "cost"], start_us, end_us),
        opening_pico=0 if lock is None else parse_units(lock.closing),
        rejected_requests=stored.rejected_requests(connection, start_us, end_us, as_of_seq),
        invoices=tuple(one.invoice_id for one in imports),
        rates=tuple(exchange.used.values()),
        as_of_seq=as_of_seq,
    )


def _sources(plan: Plan, imports: Sequence[Invoice]) -> Refused | None:
    for role in ("cost", "usage"):
        formats = sorted({one.format for one in imports if one.role == role})
        if len(formats) > 1:
            return Refused(
                code="SEVERAL_SOURCES",
                message=f"{' and '.join(formats)} say the same in two ways: name the one to use "
                "in the plan's `formats`",
            )
        if role == "cost" and not formats:
            return Refused(
                code="NO_COST_REPORT",
                message=f"no cost report of {plan.provider} for this period was imported"
                f"{'; its usage report has no money' if imports else ''}: import_invoice one first",
            )
    return None


def _late_lines(
    connection: sqlite3.Connection, plan: Plan, lock: PeriodLock | None, as_of_seq: int
) -> list[LateLine]:
    if lock is None:
        return []
    return reports.late_lines(
        connection, plan.provider, before_us=lock.end_us, after_seq=lock.as_of_seq,
        as_of_seq=as_of_seq,
    )  # fmt: skip


def _theirs(
    plan: Plan, lines: Iterable[InvoiceLine], late: Sequence[LateLine], exchange: "Exchange"
) -> Iterator[Theirs]:
    count, grouping = 0, _Grouping()
    for line in lines:
        if not plan.formats or line.format in plan.formats:
            count += 1
            if count > LINES_LIMIT:
                raise _Missing("TOO_MANY_LINES", f"more than {LINES_LIMIT:,} lines: name formats")
            grouping.look(line)
            yield their_line(line, exchange)
    grouping.check()
    for one in late:
        if not plan.formats or one.line.format in plan.formats:
            found = their_line(one.line, exchange)
            was = 0 if one.before is None else their_line(one.before, exchange).pico
            yield msgspec.structs.replace(found, pico=found.pico - was, late=True)


class _Grouping:
    """Whether one format's imports of the same time are grouped alike: else they count twice."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], dict[str, tuple[bool, bool]]] = {}

    def look(self, line: InvoiceLine) -> None:
        if line.format in BUCKETED and line.meter != "other":
            imports = self._found.setdefault((line.format, line.start_us), {})
            model, project = imports.get(line.invoice_id, (False, False))
            # A key may be null in a report by key: the provider's own console has none.
            imports[line.invoice_id] = (
                model or line.model is not None,
                project or line.project is not None,
            )

    def check(self) -> None:
        for (name, start_us), imports in self._found.items():
            if len(set(imports.values())) > 1:
                raise _Missing(
                    "MIXED_GROUPING",
                    f"{' and '.join(sorted(imports))} are {name} reports of {instant(start_us)}, "
                    "one by model or project and one not: the same use would count twice. Import "
                    "one of them alone under another provider's name",
                )


def their_line(line: InvoiceLine, exchange: "Exchange") -> Theirs:
    """The line as it is compared: its amount in the plan's currency."""
    pico, uncertain = 0, 0
    if line.amount is not None and line.currency is not None:
        pico = parse_units(line.amount)
        step = 0 if line.step is None else parse_units(line.step)
        uncertain = step // 2 + line.rounded
        if line.currency != exchange.currency:
            scaled = rate_scaled(exchange.rate(line).rate)
            pico, uncertain = converted(pico, scaled), converted(uncertain, scaled) + 1
    return Theirs(
        line_id=line.line_id, revision=line.revision, format=line.format, role=line.role,
        kind=line.kind, start_us=line.start_us, end_us=line.end_us, model=line.model,
        project=line.project, api_key=line.api_key, tier=line.tier, meter=line.meter,
        tokens=line.tokens, pico=pico, uncertain_pico=uncertain,
        provider_request_id=line.provider_request_id, repeats=bool(line.repeats),
    )  # fmt: skip


class Exchange:
    """The rates into one currency, and which of them were used."""

    def __init__(self, connection: sqlite3.Connection, currency: str, as_of_seq: int) -> None:
        self._connection, self._as_of_seq = connection, as_of_seq
        self.currency = currency
        self.used: dict[tuple[str, str], CurrencyRate] = {}

    def rate(self, line: InvoiceLine) -> CurrencyRate:
        source, day = line.currency or "", to_local(line.start_us, UTC).date()
        found = self.used.get((source, day.isoformat()))
        if found is None:
            found = reports.currency_rate(
                self._connection, source, self.currency, day.isoformat(), self._as_of_seq
            )
            oldest = day - timedelta(days=RATE_AGE_LIMIT_DAYS)
            if found is None or date.fromisoformat(found.on_day) < oldest:
                raise _Missing(
                    "NO_CURRENCY_RATE",
                    f"a line is in {source}, and there is no rate into {self.currency} of {day} or "
                    f"the {RATE_AGE_LIMIT_DAYS} days before: record one with its source",
                )
            self.used[source, day.isoformat()] = found
        return found


def _ours(
    connection: sqlite3.Connection,
    lock: PeriodLock | None,
    start_us: int,
    end_us: int,
    as_of_seq: int,
) -> Iterator[Ours]:
    rows = stored.attempts_of_period(connection, start_us, end_us, as_of_seq)
    for count, row in enumerate(rows):
        if count >= ATTEMPTS_LIMIT:
            message = f"more than {ATTEMPTS_LIMIT:,} attempts: compare a shorter period"
            raise _Missing("TOO_MANY_ATTEMPTS", message)
        yield our_attempt(row)
    if lock is not None:
        for row, then_pico in stored.late_ends(
            connection, before_us=lock.end_us, after_seq=lock.as_of_seq, as_of_seq=as_of_seq
        ):
            changed = row.cost_pico - then_pico
            yield msgspec.structs.replace(our_attempt(row), cost_pico=changed, late=True)


def our_attempt(row: AttemptRow) -> Ours:
    """The attempt as it is compared; an attempt without an end is an unknown."""
    cached = min(row.cached_input_tokens, row.input_tokens)
    outcome = row.outcome or "unknown"
    return Ours(
        attempt_id=row.attempt_id, request_id=row.request_id, route_id=row.route_id,
        started_at_us=row.started_at_us, simulated=row.provider_kind == "simulator",
        outcome=outcome, open=outcome == "unknown" and row.held,
        provider_request_id=row.provider_request_id, cost_pico=row.cost_pico,
        tokens=Tokens(uncached=row.input_tokens - cached, cached=cached, output=row.output_tokens),
    )  # fmt: skip


def coverage(
    imports: Sequence[Invoice], theirs: Sequence[Theirs], start_us: int, end_us: int
) -> Coverage:
    """Which parts of the period the cost reports call empty, and of which they say nothing."""
    bucketed = [one for one in imports if one.format in BUCKETED]
    starts = {line.start_us for line in theirs}
    empty: list[tuple[int, int]] = []
    missing: list[tuple[int, int]] = []
    reached = start_us
    for one in sorted(bucketed, key=lambda one: (one.start_us, one.end_us)):
        empty += _spans(one.empty_json)
        missing += _spans(one.gaps_json)
        if one.start_us > reached:
            missing.append((reached, one.start_us))
        reached = max(reached, one.end_us)
    if bucketed and reached < end_us:
        missing.append((reached, end_us))
    silent = [span for span in sorted(set(missing)) if not _spoken(span, bucketed)]
    said = [span for span in sorted(set(empty)) if not any(span[0] <= s < span[1] for s in starts)]
    return Coverage(empty=tuple(said), missing=tuple(silent))


def _spans(text: str) -> list[tuple[int, int]]:
    return msgspec.json.decode(text, type=list[tuple[int, int]])


def _spoken(span: tuple[int, int], imports: Sequence[Invoice]) -> bool:
    """Whether another report covers a gap of one."""
    return any(
        one.start_us <= span[0] and span[1] <= one.end_us
        and not any(s < span[1] and span[0] < e for s, e in _spans(one.gaps_json))
        for one in imports
    )  # fmt: skip
