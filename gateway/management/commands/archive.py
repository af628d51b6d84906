"""`manage.py archive --before 2026-01 --to DIR`: old months to a file of their own (LED-8)."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.clock import SystemClock
from gateway.management.outputs import folder
from gateway.operations.anywhere import command_actor
from ledger.archiving import Request, archive
from ledger.backup import Refused


class Command(BaseCommand):
    help = (
        "Moves closed requests that were accepted before a month to an archive and leaves their "
        "hashes in the chain. No server may run; until the new ledger is proved, the old one stays."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--before", required=True, metavar="YYYY-MM", help="a month, UTC")
        parser.add_argument(
            "--to", type=folder, required=True, metavar="DIR", help="where the archive goes"
        )
        parser.add_argument("--reason", default="", help="for the record of actions")
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")
        parser.add_argument("--json", action="store_true", help="the manifest, as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            month = datetime.strptime(options["before"], "%Y-%m").replace(tzinfo=UTC)
        except ValueError as error:
            raise CommandError("--before is a month as 2026-01.") from error
        asked = Request(
            before_us=int(month.timestamp()) * 1_000_000,
            now_us=SystemClock().now_us(),
            actor=command_actor().label,
            reason=options["reason"],
        )
        ledger = Path(options["ledger"] or settings.WEIGHBRIDGE_DB)
        made = archive(ledger, options["to"], asked, self._say)
        if isinstance(made, Refused):
            raise CommandError(f"{made.code}: {made.what}")
        if options["json"]:
            self.stdout.write(msgspec.json.format(msgspec.json.encode(made)).decode())
            return
        told = made.archive
        self.stdout.write(
            f"{options['to'] / told.file}: {told.requests:,} requests, {told.rows:,} rows of "
            f"{told.first_seq:,} to {told.last_seq:,}, {told.size_bytes:,} bytes. The ledger has "
            "their hashes. Keep the archive: nothing else has their content."
        )
        for one in made.stayed:
            self.stdout.write(f"Stay in the ledger: {one}.")
        if not made.stayed:
            self.stdout.write(f"No request accepted before {options['before']} stays.")

    def _say(self, step: str) -> None:
        if self.stderr.isatty():
            self.stderr.write(step)
