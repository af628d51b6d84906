"""`manage.py ledger_health`: how the ledger is; exit 1 when a signal is bad."""

import sys
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from gateway.clock import SystemClock
from ledger.health import health


class Command(BaseCommand):
    help = "Shows the ledger's file, log, chain, triggers, backup and open unknowns, by code."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")
        parser.add_argument("--json", action="store_true", help="the signals as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found = health(
            options["ledger"] or Path(settings.WEIGHBRIDGE_DB), now_us=SystemClock().now_us()
        )
        if options["json"]:
            self.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode())
        else:
            for signal in found.signals:
                advice = f": {signal.advice}" if signal.advice else ""
                line = f"{signal.state:<6}{signal.code:<18}{signal.title}: {signal.value}{advice}"
                self.stdout.write(line)
        if found.state == "bad":
            sys.exit(1)
