"""Invoices imported, compared, signed and closed; every write of SPEC 11 (REC-1..3)."""

import re
from datetime import date
from functools import partial
from typing import ClassVar

import msgspec

from gateway.auth_roles import Role
from gateway.operations.base import Operation, Plan, Refused, Seen
from gateway.reconciling import currency_of_costs, default_plan
from ledger.invoices import formats
from ledger.invoices.currencies import CURRENCIES
from ledger.invoices.fields import refused_character
from ledger.invoices.identity import Export, lines_in_force
from ledger.invoices.importing import Import, importing
from ledger.invoices.values import Refusal
from ledger.queries import invoices as reports
from ledger.queries import reconciliation as stored
from ledger.reconcile import closing, running
from ledger.reconcile.currency import rate_scaled
from ledger.reconcile.values import Plan as MatchingPlan
from ledger.reconcile.values import Refused as NotCompared
from ledger.records import CurrencyRate

SOURCE_LIMIT_CHARS = 200

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class ImportInvoice(Operation, frozen=True, kw_only=True):
    """Import a provider's usage or cost report: its files, or all its pages in order."""

    NAME: ClassVar[str] = "import_invoice"
    ROLE: ClassVar[Role] = "operator"
    LONG: ClassVar[bool] = True
    NEEDS_REASON: ClassVar[bool] = False

    files: tuple[bytes, ...]
    provider: str | None = None
    format: str | None = None
    export: Export | None = None  # what it is to those before, where that can't be told

    def plan(self, seen: Seen) -> Plan | Refused:
        report = formats.read(self.files, provider=self.provider, format_name=self.format)
        if isinstance(report, Refusal):
            return self._unread(report)
        hashes = " ".join(report.files_sha256)
        found = importing(
            report,
            known=lines_in_force(report, partial(reports.newest_lines, seen.connection)),
            imported_before=reports.imports_of_files(
                seen.connection, report.provider, report.format, hashes
            ),
            now_us=seen.now_us,
            by=seen.actor.label,
            export=self.export,
        )
        if isinstance(found, Refusal):
            return self._unread(found)
        invoice = found.invoice
        if found.repeated:
            message = (
                f"These files were imported before, as {invoice.invoice_id}, and their lines are "
                "in force: nothing was written."
            )
            return Refused(code="IMPORTED_BEFORE", message=message)
        return Plan(
            records=found.records,
            summary=_imported(found),
            subject=invoice.invoice_id,
            after={
                "provider": invoice.provider,
                "format": invoice.format,
                "lines": invoice.lines,
                "new_lines": invoice.new_lines,
                "totals": msgspec.json.decode(invoice.totals_json),
                "finer_than_pico_lines": invoice.finer_than_pico_lines,
                "gaps": len(msgspec.json.decode(invoice.gaps_json)),
            },
            evidence=invoice.files_sha256,
        )

    def _unread(self, why: Refusal) -> Refused:
        place = f"file {why.file + 1}: " if len(self.files) > 1 else ""
        where = f"line {why.line}, column {why.column}: " if why.line else ""
        return Refused(code=why.code, message=f"{place}{where}{why.message}")


class RecordCurrencyRate(Operation, frozen=True, kw_only=True):
    """Record what a currency was worth in another on a day, and who says so."""

    NAME: ClassVar[str] = "record_currency_rate"
    ROLE: ClassVar[Role] = "operator"
    NEEDS_REASON: ClassVar[bool] = False

    from_currency: str
    to_currency: str
    on_day: str
    rate: str
    source: str

    def plan(self, seen: Seen) -> Plan | Refused:
        problem = self._problem()
        if problem is not None:
            return Refused(code="INVALID_RATE", message=problem)
        before = reports.newest_rate(
            seen.connection, self.from_currency, self.to_currency, self.on_day
        )
        if before is not None and (before.rate, before.source) == (self.rate, self.source):
            return Refused(code="NO_CHANGE", message="This rate is recorded already.")
        record = CurrencyRate(
            from_currency=self.from_currency,
            to_currency=self.to_currency,
            on_day=self.on_day,
            revision=0 if before is None else before.revision + 1,
            rate=self.rate,
            source=self.source,
            recorded_at_us=seen.now_us,
            recorded_by=seen.actor.label,
        )
        pair = f"{self.from_currency}/{self.to_currency} {self.on_day}"
        return Plan(
            records=(record,),
            summary=f"Recorded {pair} = {self.rate}, by {self.source}.",
            subject=pair,
            before={} if before is None else {"rate": before.rate, "source": before.source},
            after={"rate": self.rate, "source": self.source},
        )

    def _problem(self) -> str | None:
        for code in (self.from_currency, self.to_currency):
            if code not in CURRENCIES:
                return f"{code[:10]!r} is no currency of ISO 4217: three capital letters, as EUR."
        if self.from_currency == self.to_currency:
            return "A currency needs no rate into itself."
        if not _is_day(self.on_day):
            return "The day is one of the calendar, written as 2026-09-30."
        if not 0 < len(self.source) <= SOURCE_LIMIT_CHARS:
            return f"The source has 1 to {SOURCE_LIMIT_CHARS} characters: who says so, and where."
        if refused_character(self.source):
            return f"The source has {refused_character(self.source)}, no character of a text."
        try:
            rate_scaled(self.rate)
        except ValueError as error:
            return f"The rate can't be used: {error}."
        return None


class Reconcile(Operation, frozen=True, kw_only=True):
    """Compare a provider's lines of a period with our attempts, and keep the comparison."""

    NAME: ClassVar[str] = "reconcile"
    ROLE: ClassVar[Role] = "operator"
    LONG: ClassVar[bool] = True
    NEEDS_REASON: ClassVar[bool] = False

    provider: str
    period: str
    zone: str = "UTC"
    matching: MatchingPlan | None = None  # None: every real route, each by its backend's model

    def plan(self, seen: Seen) -> Plan | Refused:
        period = running.period_of(self.period, self.zone)
        if isinstance(period, NotCompared):
            return _refused(period)
        matching = self.matching or default_plan(seen.connection, self.provider)
        if isinstance(matching, NotCompared):
            return _refused(matching)
        if matching.provider != self.provider:
            message = f"The plan is for {matching.provider}, not {self.provider}."
            return Refused(code="OTHER_PROVIDER", message=message)
        ours = currency_of_costs(seen.connection)
        if ours is not None and ours != matching.currency:
            message = (
                f"Our costs are in {ours} and the plan compares in {matching.currency}: say "
                f'"currency": "{ours}" in the plan; lines in other currencies are converted.'
            )
            return Refused(code="OTHER_CURRENCY", message=message)
        run = running.reconcile(seen.connection, matching, period)
        if isinstance(run, NotCompared):
            return _refused(run)
        if stored.run(seen.connection, run.run_id) is not None:
            message = f"{run.run_id} is this comparison, made before: nothing was written."
            return Refused(code="SAME_RUN", message=message)
        records = running.records_of(run, now_us=seen.now_us, by=seen.actor.label)
        if isinstance(records, NotCompared):
            return _refused(records)
        head = records[0]
        return Plan(
            records=records,
            summary=f"Compared {self.provider}, {self.period}: {len(records) - 1:,} discrepancies.",
            subject=run.run_id,
            after={
                name: getattr(head, name)
                for name in ("currency", "opening", "ours", "theirs", "difference", "closing")
            },
            evidence=run.digest.hex(),
        )


class SignReconciliation(Operation, frozen=True, kw_only=True):
    """Sign a comparison: as a second person, who neither ran it nor imported its reports."""

    NAME: ClassVar[str] = "sign_reconciliation"
    ROLE: ClassVar[Role] = "operator"
    LONG: ClassVar[bool] = True

    run_id: str

    def plan(self, seen: Seen) -> Plan | Refused:
        if seen.actor.via == "api":
            message = "A key is no person: sign on the console, or by a command."
            return Refused(code="SECOND_PERSON", message=message)
        found = stored.run(seen.connection, self.run_id)
        if found is None:
            return _no_run(self.run_id)
        run = found.record
        imports = [reports.invoice(seen.connection, one) for one in run.invoices.split()]
        signed = closing.signing(
            run,
            [one for one in imports if one is not None],
            stored.sign_off(seen.connection, self.run_id),
            stored.last_lock(seen.connection, run.provider),
            by=seen.actor.label,
            note=self.reason,
            now_us=seen.now_us,
            outdated=partial(running.outdated, seen.connection, run),
        )
        if isinstance(signed, NotCompared):
            return _refused(signed)
        return Plan(
            records=(signed,),
            summary=f"Signed the comparison of {run.provider}, {run.period}.",
            subject=self.run_id,
            after={"signed": True, "difference": run.difference, "closing": run.closing},
            evidence=run.digest.hex(),
        )


class LockPeriod(Operation, frozen=True, kw_only=True):
    """Close a signed period: what comes later for it is an adjustment of the next one."""

    NAME: ClassVar[str] = "lock_period"
    ROLE: ClassVar[Role] = "operator"
    LONG: ClassVar[bool] = True

    run_id: str

    def plan(self, seen: Seen) -> Plan | Refused:
        found = stored.run(seen.connection, self.run_id)
        if found is None:
            return _no_run(self.run_id)
        run = found.record
        last = stored.last_lock(seen.connection, run.provider)
        earlier = None
        if last is not None and last.end_us < run.start_us:
            earlier = reports.earliest_line_us(
                seen.connection, run.provider, from_us=last.end_us, before_us=run.start_us,
                as_of_seq=run.as_of_seq,
            )  # fmt: skip
        lock = closing.locking(
            run,
            stored.sign_off(seen.connection, self.run_id),
            last,
            earlier,
            by=seen.actor.label,
            now_us=seen.now_us,
            outdated=running.outdated(seen.connection, run),
        )
        if isinstance(lock, NotCompared):
            return _refused(lock)
        return Plan(
            records=(lock,),
            summary=f"Locked {run.period} of {run.provider}; it closes at {run.closing}.",
            subject=f"{run.provider} {run.period}",
            before={"locked": False},
            after={"locked": True, "closing": run.closing, "run_id": run.run_id},
            evidence=run.digest.hex(),
        )


def _refused(why: NotCompared) -> Refused:
    return Refused(code=why.code, message=why.message)


def _imported(found: Import) -> str:
    invoice = found.invoice
    text = (
        f"Imported {invoice.lines:,} lines of {invoice.provider} ({invoice.format}), "
        f"{invoice.new_lines - found.revised:,} of them new, {found.revised:,} changed."
    )
    if invoice.finer_than_pico_lines:
        text += (
            f" {invoice.finer_than_pico_lines:,} amounts are printed finer than 10^-12 and were "
            "rounded half to even."
        )
    if found.beside:
        text += (
            f" {found.beside:,} were added beside lines about the same thing that these files "
            "don't have. That is right for parts of one export; where a file is a whole export "
            "made later, it counts twice: import such files with --export later."
        )
    return text


def _no_run(run_id: str) -> Refused:
    return Refused(code="NO_SUCH_RUN", message=f"There is no reconciliation {run_id[:60]!r}.")


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
