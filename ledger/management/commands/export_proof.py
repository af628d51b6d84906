"""`manage.py export_proof REQUEST_ID`: a receipt's proof as a file, checked without the ledger."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.management.commands.verify_ledger import read_checkpoint
from ledger.management.new_file import put_out
from ledger.management.opened import opened
from ledger.older_schema import as_of_today
from ledger.proof_files import NoProof, prove_receipt


class Command(BaseCommand):
    help = (
        "Writes the proof that a request's receipt stands in the ledger (RFC 6962); with "
        "--checkpoint also that the ledger continues one that was exported before. "
        "ledger/offline_proof.py checks it with nothing but SHA-256."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("request_id", metavar="REQUEST_ID")
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")
        parser.add_argument("--archive", type=Path, help="the archive that has the request")
        parser.add_argument("--checkpoint", type=Path, help="a file of checkpoint_ledger")
        parser.add_argument("--output", type=Path, help="a new file; without it, standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        earlier = read_checkpoint(options["checkpoint"]) if options["checkpoint"] else None
        with ExitStack() as files:
            connection = files.enter_context(opened(options["ledger"] or settings.WEIGHBRIDGE_DB))
            archive = options["archive"] and files.enter_context(opened(options["archive"]))
            if archive:
                as_of_today(archive)
            proof = prove_receipt(connection, options["request_id"], earlier, archive)
        if isinstance(proof, NoProof):
            raise CommandError(f"{proof.code}: {proof.what}")
        text = msgspec.json.format(msgspec.json.encode(proof)).decode()
        put_out(text, options["output"], self.stdout)
