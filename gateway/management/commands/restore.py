"""`manage.py restore FILE --to DIR`: a backup put back, proved before it counts (LED-8)."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.outputs import folder
from ledger.backup import LEDGER_NAME, Refused, restore


class Command(BaseCommand):
    help = (
        "Puts a backup into a folder that has no ledger, when it is the file of its manifest, its "
        "pages are sound and its chain verifies. An existing ledger is never overwritten."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="a file of `backup`")
        parser.add_argument("--to", type=folder, required=True, metavar="DIR", help="a new folder")

    def handle(self, *args: Any, **options: Any) -> None:
        done = restore(options["file"], options["to"])
        if isinstance(done, Refused):
            raise CommandError(f"{done.code}: {done.what}")
        ledger = options["to"] / LEDGER_NAME
        self.stdout.write(
            f"{ledger}: {done.rows:,} rows, proved; root {done.checkpoint.root}. Next: set "
            f"WEIGHBRIDGE_DB to {ledger.resolve()}, then manage.py migrate --database ledger, then "
            "serve."
        )
