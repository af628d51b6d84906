"""`manage.py import_invoice FILE…`: a provider's usage or cost report into the ledger (REC-1)."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.performing import asked, refusal
from gateway.operations.base import Refused
from gateway.operations.reconciliation import ImportInvoice
from ledger.invoices.files import FILE_LIMIT_BYTES
from ledger.invoices.formats import FORMATS
from ledger.invoices.identity import EXPORTS

TOGETHER_LIMIT_BYTES = FILE_LIMIT_BYTES  # of all pages: they travel to a running server in one


class Command(BaseCommand):
    help = (
        "Imports a provider's usage or cost report; several files are the pages of one report, in "
        "order. The same files again change nothing. A file that can't be read is refused with "
        "its line and column, and nothing of it is written."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", nargs="+", type=Path)
        parser.add_argument("--provider", help="who billed it, where the format doesn't say so")
        parser.add_argument("--format", choices=sorted(FORMATS), help="where content doesn't tell")
        parser.add_argument(
            "--export",
            choices=EXPORTS,
            help="part: of an export of which other parts were imported, its lines are added; "
            "later: a whole export made later, what changed takes the place of what was",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        operation = ImportInvoice(
            files=tuple(_contents(options["file"])),
            provider=options["provider"],
            format=options["format"],
            export=options["export"],
        )
        result = asked(settings.WEIGHBRIDGE_DB, operation)
        if isinstance(result, Refused):
            if result.code == "IMPORTED_BEFORE":
                self.stdout.write(result.message)
                return
            raise refusal(result, self.stderr)
        self.stdout.write(f"{result.subject}: {result.summary}")
        for currency, amount in result.after["totals"].items():
            self.stdout.write(f"  {amount} {currency} in all lines")
        if result.after["gaps"]:
            self.stdout.write(f"  {result.after['gaps']} gap(s) between its buckets")


def _contents(paths: list[Path]) -> list[bytes]:
    contents, size = [], 0
    for path in paths:
        try:
            size += path.stat().st_size
            if size > TOGETHER_LIMIT_BYTES:
                raise CommandError(f"{path}: more than {TOGETHER_LIMIT_BYTES:,} bytes; split it.")
            contents.append(path.read_bytes())
        except OSError as error:
            raise CommandError(f"{path} can't be read: {error.strerror}.") from error
    return contents
