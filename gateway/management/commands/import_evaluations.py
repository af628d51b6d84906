"""`manage.py import_evaluations FILE`: evidence of model identities, for gates and fallbacks."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from gateway.management.performing import performed, text_of
from gateway.operations.releases import ImportEvaluations
from ledger.evaluation_import import SIZE_LIMIT_BYTES


class Command(BaseCommand):
    help = "Import evaluation results from JSON: an array, or one object a line (docs/control.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        text = text_of(options["file"], SIZE_LIMIT_BYTES)
        done = performed(settings.WEIGHBRIDGE_DB, ImportEvaluations(text=text), self.stderr)
        self.stdout.write(done.summary)
