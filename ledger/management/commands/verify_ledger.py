"""`manage.py verify_ledger`: exit 0 when the ledger proves itself, 1 with the rows at fault."""

import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.archive_check import archive_faults
from ledger.chain import Checkpoint
from ledger.errors import LedgerError
from ledger.reading import connect_read_only
from ledger.verify import verify
from ledger.walk import FAULTS_LIMIT


class Command(BaseCommand):
    help = "Computes every hash and every receipt's cost again and names each row at fault."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--ledger", type=Path, help="another ledger file than the configured")
        parser.add_argument(
            "--checkpoint", type=Path, help="a file of checkpoint_ledger that was kept elsewhere"
        )
        parser.add_argument(
            "--at-rest",
            action="store_true",
            help="no server runs: a request without a receipt is a fault",
        )
        parser.add_argument(
            "--archive",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="an archive whose rows are checked, too; may be given again",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["ledger"] or settings.WEIGHBRIDGE_DB
        checkpoint = read_checkpoint(options["checkpoint"]) if options["checkpoint"] else None
        started = time.perf_counter()
        try:
            connection = connect_read_only(path)
        except LedgerError as error:
            raise CommandError(str(error)) from error
        report = verify(connection, checkpoint=checkpoint, at_rest=options["at_rest"])
        in_archives = [
            fault for file in options["archive"] for fault in archive_faults(connection, file)
        ]
        connection.close()
        seconds = time.perf_counter() - started
        for fault in (*report.faults, *in_archives):
            self.stderr.write(str(fault))
        if len(report.faults) >= FAULTS_LIMIT:
            self.stderr.write(f"stopped after {FAULTS_LIMIT} faults")
        count = len(report.faults) + len(in_archives)
        verdict = f"{count} fault(s)" if count else "sound"
        self.stdout.write(
            f"{path}: {verdict}; {report.rows:,} rows in {seconds:.1f} s "
            f"({report.rows / max(seconds, 1e-9):,.0f} rows/s); root {report.root or 'unknown'}"
        )
        if report.unfinished:
            self.stdout.write(
                f"{report.unfinished:,} request(s) have no receipt yet: in flight, or left by a "
                f"crash until the next start"
            )
        if report.archived:
            self.stdout.write(
                f"{report.archived:,} row(s) are in archives: here their hashes stand in the chain"
            )
        for file in options["archive"]:
            self.stdout.write(f"{file}: compared with the hashes, row by row")
        if in_archives or not report.sound:
            sys.exit(1)


def read_checkpoint(path: Path) -> Checkpoint:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except (OSError, msgspec.DecodeError) as error:
        raise CommandError(f"{path} is no checkpoint: {error}") from error
