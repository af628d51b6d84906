"""`manage.py checkpoint_ledger`: the ledger's size and root, to be kept elsewhere (LED-7)."""

from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.chain import BadHead, checkpoint_of
from ledger.management.new_file import put_out
from ledger.management.opened import opened
from ledger.reading import read_head


class Command(BaseCommand):
    help = "Writes a checkpoint (size, root); verify_ledger --checkpoint proves against it later."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")
        parser.add_argument("--output", type=Path, help="a new file; without it, standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        with opened(options["ledger"] or settings.WEIGHBRIDGE_DB) as connection:
            head = read_head(connection)
        try:
            checkpoint = None if head is None else checkpoint_of(head)
        except BadHead:
            checkpoint = None
        if checkpoint is None:
            raise CommandError(
                "LEDGER_DAMAGED: the ledger's chain_head row is gone or was altered; "
                "run verify_ledger"
            )
        text = msgspec.json.encode(checkpoint).decode()
        put_out(text, options["output"], self.stdout)
