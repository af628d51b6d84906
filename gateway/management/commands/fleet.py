"""`manage.py fleet plan | apply | export`: the fleet as a file that is reviewed (docs/fleet.md)."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.clock import SystemClock
from gateway.fleet_file.differences import Difference
from gateway.fleet_file.document import TEXT_LIMIT_BYTES, read_fleet, write_fleet
from gateway.fleet_file.in_force import fleet_in_force, plan_id
from gateway.management.performing import asked, refusal, text_of
from gateway.operations.anywhere import command_actor
from gateway.operations.base import Refused, Seen
from gateway.operations.fleet import ApplyFleet
from gateway.operations.fleet_plan import FleetPlan, planned
from ledger.management.opened import readable
from ledger.reading import reader

CHANGES_EXIT = 2


class Command(BaseCommand):
    help = (
        "plan: what a fleet file would change; exits 0 for nothing, 2 for something, 1 for a file "
        "that can't be used, each problem with its line and column. apply: publish that, all of "
        "it or nothing. export: what is in force, as a file."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        plan = what.add_parser("plan", help="what a file would change")
        plan.add_argument("file", type=Path)
        apply = what.add_parser("apply", help="publish what a file changes")
        apply.add_argument("file", type=Path)
        apply.add_argument("--reason", required=True, help="why; kept in the audit log")
        apply.add_argument("--plan", metavar="ID", help="only if it is still what `plan` showed")
        what.add_parser("export", help="what is in force")

    def handle(self, *args: Any, **options: Any) -> None:
        with readable(settings.WEIGHBRIDGE_DB):
            self._handle(reader(settings.WEIGHBRIDGE_DB), options)

    def _handle(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        if options["what"] == "export":
            fleet = fleet_in_force(connection, SystemClock().now_us())
            self.stdout.write(write_fleet(fleet), ending="")
            return
        text = text_of(options["file"], TEXT_LIMIT_BYTES)
        plan = self._planned(connection, text)
        self._show(plan.found)
        if options["what"] == "apply":
            if plan.records:
                self._apply(
                    ApplyFleet(text=text, plan_id=options["plan"], reason=options["reason"])
                )
        elif plan.found:
            self.stdout.write(f"plan {plan_id(connection, text)}")
            raise SystemExit(CHANGES_EXIT)

    def _planned(self, connection: sqlite3.Connection, text: str) -> FleetPlan:
        reading = read_fleet(text)
        problems = reading.problems
        if reading.fleet is not None:
            now_us = SystemClock().now_us()
            seen = Seen(connection=connection, now_us=now_us, actor=command_actor())
            plan = planned(reading.fleet, seen)
            problems = reading.lines(plan.faults)
            if not problems:
                return plan
        for problem in problems:
            self.stderr.write(problem)
        raise CommandError("The fleet file can't be used; nothing was written.")

    def _show(self, found: Iterable[Difference]) -> None:
        lines = [str(each) for each in found]
        for line in lines:
            self.stdout.write(line)
        if not lines:
            self.stdout.write("No change: the fleet is as the file says.")

    def _apply(self, operation: ApplyFleet) -> None:
        result = asked(settings.WEIGHBRIDGE_DB, operation)
        if isinstance(result, Refused):
            if result.code != "NO_CHANGE":  # someone else applied the same in the meantime
                raise refusal(result, self.stderr)
            self.stdout.write(result.message)
        else:
            self.stdout.write(result.summary)
