"""`manage.py reconcile --provider P --period 2026-09`: invoice against attempts (REC-2, REC-3)."""

from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.performing import asked, refusal, text_of
from gateway.operations.base import Refused
from gateway.operations.reconciliation import Reconcile
from ledger.management.new_file import new_file
from ledger.management.opened import readable
from ledger.money import units_text
from ledger.queries import reconciliation as stored
from ledger.reading import reader
from ledger.reconcile.exports import Export, write_csv, write_sqlite
from ledger.reconcile.reports import Report, report
from ledger.reconcile.running import Run, again
from ledger.reconcile.values import UNEXPLAINED, Plan
from ledger.reconcile.values import Refused as NotCompared

PLAN_LIMIT_BYTES = 1 << 20


class Command(BaseCommand):
    help = (
        "Compares what a provider billed with the attempts that it was sent, and keeps the result. "
        "Exits 0 where they agree within the plan's tolerances, 1 where not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--provider", required=True)
        parser.add_argument("--period", required=True, help="2026-09, or 2026-09-01..2026-09-07")
        parser.add_argument("--zone", default="UTC", help="the reporting zone; UTC")
        parser.add_argument("--plan", type=Path, help="bindings and tolerances, as JSON")
        parser.add_argument("--csv", type=Path, help="every attempt and line; a new file")
        parser.add_argument("--sqlite", type=Path, help="the same for Datasette; a new file")

    def handle(self, *args: Any, **options: Any) -> None:
        operation = Reconcile(
            provider=options["provider"],
            period=options["period"],
            zone=options["zone"],
            matching=_plan(options["plan"]),
        )
        result = asked(settings.WEIGHBRIDGE_DB, operation)
        if isinstance(result, Refused) and result.code != "SAME_RUN":
            raise refusal(result, self.stderr)
        run_id = result.message.split()[0] if isinstance(result, Refused) else result.subject
        with readable(settings.WEIGHBRIDGE_DB):
            connection = reader(settings.WEIGHBRIDGE_DB)
            found, recorded = report(connection, run_id), stored.run(connection, run_id)
            if found is None or recorded is None:
                raise CommandError(f"{run_id} is not in the ledger.")
            run = None
            if options["csv"] or options["sqlite"]:
                run = again(connection, recorded.record)
        if isinstance(run, NotCompared):
            raise CommandError(str(run))
        self._tell(found)
        if isinstance(run, Run):
            self._write(run, options["csv"], options["sqlite"])
        if found.verdict == "differs":
            self.stderr.write(_differs(found))
            raise SystemExit(1)

    def _tell(self, found: Report) -> None:
        self.stdout.write(f"{found.run_id}: {found.provider} {found.period}, {found.currency}")
        self.stdout.write(
            f"  ours {units_text(found.ours_pico)} + differences "
            f"{units_text(found.difference_pico)} = theirs {units_text(found.theirs_pico)}"
        )
        for one in found.movements:
            late = " (late)" if one.late else ""
            self.stdout.write(
                f"  {one.class_name} {one.detail}{late}: {one.attempts} attempts, {one.lines} "
                f"lines, difference {units_text(one.difference_pico)}"
            )
        self.stdout.write(
            f"  opening {units_text(found.opening_pico)}, closing "
            f"{units_text(found.closing_pico)}; {found.verdict.replace('_', ' ')}"
        )

    def _write(self, run: Run, csv_path: Path | None, sqlite_path: Path | None) -> None:
        try:
            if csv_path is not None:
                with new_file(csv_path) as out:
                    self._written(csv_path, write_csv(run, out))
            if sqlite_path is not None:
                self._written(sqlite_path, write_sqlite(run, sqlite_path))
        except OSError as error:
            raise CommandError(f"{error.filename or error}: {error.strerror or ''}") from error

    def _written(self, path: Path, written: Export) -> None:
        self.stdout.write(f"  {path}: {written.rows:,} rows, sha256 {written.sha256}")


def _differs(found: Report) -> str:
    """By how much, and the classes that it is in, the largest first."""
    classes = [one for one in found.movements if one.class_name in UNEXPLAINED]
    classes.sort(key=lambda one: -abs(one.difference_pico))
    said = [
        f"{one.class_name} {one.detail}".rstrip() + f" {units_text(one.difference_pico)}"
        for one in classes
        if one.class_name != "matched" or one.difference_pico
    ]
    amount = f"{units_text(found.unexplained_pico)} {found.currency}"
    return f"differs by {amount}: {', '.join(said)}"


def _plan(path: Path | None) -> Plan | None:
    if path is None:
        return None
    try:
        return msgspec.json.decode(text_of(path, PLAN_LIMIT_BYTES), type=Plan)
    except msgspec.DecodeError as error:
        raise CommandError(f"{path} is no plan: {error}.") from error
