"""`manage.py backup DIR`: a proved copy of the ledger, made while the server runs (LED-8)."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.clock import SystemClock
from gateway.management.outputs import folder
from ledger.backup import Refused, back_up, manifest_of


class Command(BaseCommand):
    help = (
        "Copies the ledger, opens the copy, has SQLite check every page, and computes every hash "
        "and cost again. The manifest beside it is written last."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=folder, metavar="DIR", help="better on another disk")
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")

    def handle(self, *args: Any, **options: Any) -> None:
        ledger = options["ledger"] or settings.WEIGHBRIDGE_DB
        made = back_up(ledger, options["folder"], now_us=SystemClock().now_us())
        if isinstance(made, Refused):
            raise CommandError(f"{made.code}: {made.what}")
        file = options["folder"] / made.file
        self.stdout.write(
            f"{file}: {made.rows:,} rows, {made.size_bytes:,} bytes, proved; "
            f"root {made.checkpoint.root}; manifest {manifest_of(file).name}"
        )
