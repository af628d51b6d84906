"""`manage.py check_focus FILE`: whether a CSV keeps to FOCUS 1.2."""

import gzip
import io
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.focus.checking import Checked, check

SHOWN = 20
GZIP = b"\x1f\x8b"


class Command(BaseCommand):
    help = (
        "Checks columns, types, nulls and allowed values of a CSV against FOCUS 1.2, names the "
        "first problems by line and column, and exits 1 where there are any. Reads gzip too."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["file"]
        try:
            found = _checked(path)
        except UnicodeDecodeError as error:
            raise CommandError(f"{path} is no UTF-8 text: {error.reason}.") from error
        except (OSError, EOFError) as error:
            raise CommandError(f"{path} can't be read: {error}.") from error
        for problem in found.problems[:SHOWN]:
            self.stderr.write(
                f"{problem.code}: line {problem.line}, {problem.column or 'file'}: "
                f"{problem.message}"
            )
        if not found.conforms:
            counts = ", ".join(f"{number:,} {code}" for code, number in found.counts.items())
            raise CommandError(f"{path}: {found.rows:,} rows; {counts}.")
        self.stdout.write(f"{path}: {found.rows:,} rows keep to FOCUS 1.2.")


def _checked(path: Path) -> Checked:
    with path.open("rb") as raw:
        packed = raw.read(2) == GZIP
    with gzip.open(path) if packed else path.open("rb") as content:
        return check(io.TextIOWrapper(content, encoding="utf-8-sig", newline=""))
