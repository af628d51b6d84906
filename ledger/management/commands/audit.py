"""`manage.py audit`: exit 0 when every rule holds, 1 with the rows at fault."""

import sys
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from ledger.invariants import Result, audit
from ledger.management.opened import opened


class Command(BaseCommand):
    help = "Checks what must hold in every ledger; names the rows that break a rule."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")
        parser.add_argument("--json", action="store_true", help="the results as JSON")
        parser.add_argument(
            "--quick", action="store_true", help="without the checks that read every receipt again"
        )
        parser.add_argument(
            "--at-rest",
            action="store_true",
            help="no server runs: a request without a receipt is a fault",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with opened(options["ledger"] or settings.WEIGHBRIDGE_DB) as connection:
            results = audit(connection, at_rest=options["at_rest"], quick=options["quick"])
        if options["json"]:
            self.stdout.write(msgspec.json.format(msgspec.json.encode(results)).decode())
        else:
            for result in results:
                self._tell(result)
        if not all(result.holds for result in results):
            sys.exit(1)

    def _tell(self, result: Result) -> None:
        mark = "holds" if result.holds else result.severity.upper()
        self.stdout.write(f"{mark:<8}{result.code:<36}{result.title}")
        for finding in result.findings:
            self.stderr.write(f"        {result.code}: {finding}")
