"""`manage.py slos export | import FILE`: objectives as OpenSLO YAML (SLO-9)."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from gateway.management.performing import PerformingCommand, text_of
from gateway.operations.control import ImportSlos
from ledger import openslo
from ledger.management.opened import readable
from ledger.queries.objectives import objectives
from ledger.reading import reader


class Command(PerformingCommand):
    help = "Export the objectives in force as OpenSLO YAML, or declare those of such a file."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        what.add_parser("export", help="to standard output")
        importing = what.add_parser("import", help="declare each as its next revision")
        importing.add_argument("file", type=Path)
        importing.add_argument("--reason", required=True, help="why; kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "export":
            with readable(settings.WEIGHBRIDGE_DB):
                found = objectives(reader(settings.WEIGHBRIDGE_DB))
            self.stdout.write(openslo.dump(found), ending="")
            return
        text = text_of(options["file"], openslo.SIZE_LIMIT_CHARS)
        operation = ImportSlos(text=text, reason=options["reason"])
        self.perform(operation)
