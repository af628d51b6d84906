"""`manage.py verify_ledger`: exit 0 when the ledger proves itself, 1 with the rows at fault."""

import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.archive_check import archive_faults
from ledger.chain import Checkpoint
from ledger.management.opened import opened
from ledger.verify import verify
from ledger.walk import FAULTS_LIMIT

CHECKPOINT_LIMIT_BYTES = 4_096
ROOT = re.compile("[0-9a-f]{64}")


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
        with opened(path) as connection:
            report = verify(connection, checkpoint=checkpoint, at_rest=options["at_rest"])
            in_archives = {file: archive_faults(connection, file) for file in options["archive"]}
        seconds = time.perf_counter() - started
        faults = [*report.faults, *(one for found in in_archives.values() for one in found)]
        for fault in faults:
            self.stderr.write(str(fault))
        if len(report.faults) >= FAULTS_LIMIT:
            self.stderr.write(f"stopped after {FAULTS_LIMIT} faults")
        verdict = f"{len(faults)} fault(s)" if faults else "sound"
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
        for file, found in in_archives.items():
            said = f"{len(found)} fault(s)" if found else "sound, each row compared with its hash"
            self.stdout.write(f"{file}: {said}")
        if faults or not report.sound:
            sys.exit(1)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file of `checkpoint_ledger`; CommandError where it is something else."""
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(CHECKPOINT_LIMIT_BYTES), type=Checkpoint)
    except OSError as error:
        raise CommandError(f"{path} is no checkpoint: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CommandError(f"{path} is no checkpoint: {error}") from error
    if found.size < 0 or not ROOT.fullmatch(found.root):
        what = "size is a number of rows, root 64 hexadecimal digits in lower case"
        raise CommandError(f"{path} is no checkpoint: {what}")
    return found
