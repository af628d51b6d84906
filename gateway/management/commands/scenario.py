"""`manage.py scenario NAME [--seed N]`: a fault on the simulator, and what is diagnosed of it."""

import tempfile
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from gateway.demo.scenario_run import Result, run
from gateway.demo.scenarios import SCENARIOS
from gateway.management.progress import ctrl_c_at_a_step
from ledger.diagnosis import Finding


class Command(BaseCommand):
    help = (
        "Run a calm window and one with a fault through desk, book and simulator in virtual time, "
        "on a ledger of its own, and diagnose it. Exits 1 where the diagnosis is another."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", choices=[*SCENARIOS, "all"], help="without: a list")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--ledger", type=Path, help="keep the ledger here; not with all")

    def handle(self, *args: Any, **options: Any) -> None:
        name, keep = options["name"], options["ledger"]
        if name is None:
            for scenario in SCENARIOS.values():
                self.stdout.write(f"{scenario.name:<20}{scenario.tells}")
            return
        if keep is not None and (name == "all" or keep.exists()):
            raise CommandError("--ledger names a new file, for one scenario")
        wrong = 0
        for chosen in SCENARIOS if name == "all" else [name]:
            with tempfile.TemporaryDirectory() as folder:
                path = keep or Path(folder) / "ledger.sqlite3"
                migrated(path)
                with ctrl_c_at_a_step() as step:
                    result = run(path, SCENARIOS[chosen], options["seed"], step)
            self._tell(result)
            wrong += not result.right
        if wrong:
            raise CommandError(f"{wrong} diagnosed as something else")

    def _tell(self, result: Result) -> None:
        self.stdout.write(f"{result.scenario.name}, seed {result.seed}: {result.scenario.tells}")
        self.stdout.write(
            f"  {result.before.requests:,} requests before, {result.now.requests:,} with it"
        )
        if not result.findings:
            self.stdout.write("  nothing is wrong")
        for finding in result.findings:
            for line in _lines(finding):
                self.stdout.write(f"  {line}")


def _lines(finding: Finding) -> list[str]:
    return [
        f"{finding.row}: {finding.symptom}",
        *(f"  {what}: {before} -> {now}" for what, before, now in finding.evidence),
        f"  likely: {'; '.join(finding.causes)}",
        f"  not yet: {finding.not_yet}",
    ]


def migrated(path: Path) -> None:
    """Make an empty ledger at `path`; the settings' own is neither opened nor changed."""
    connection = connections["ledger"]
    usual = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        call_command("migrate", database="ledger", verbosity=0)
    finally:
        connection.close()
        connection.settings_dict["NAME"] = usual
