"""`manage.py rebuild_rollups [--check]`: rollups made anew, or proved equal to the receipts."""

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger import open_work
from ledger.archive_check import archive_faults
from ledger.block_roots import fill
from ledger.lock import LedgerLock
from ledger.management.opened import opened, readable
from ledger.older_schema import connect_as_of_today
from ledger.queries.archives import archives as known_archives
from ledger.reading import connect_read_only, read_head
from ledger.rollups.rebuild import first_difference, rebuild, renew_archived


class Command(BaseCommand):
    help = (
        "Makes the rollups and the lists of open work again from the records, and the roots of "
        "blocks that are missing (no server may run on the ledger). "
        "With --check, changes nothing and exits 1, naming the first row that differs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check",
            action="store_true",
            help="compare with the receipts, with --archive those of archives too; change nothing",
        )
        parser.add_argument(
            "--archive",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="with the receipts in archives, too: give every archive",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(settings.WEIGHBRIDGE_DB)
        if options["check"]:
            self._check(path, options["archive"])
            return
        with readable(path):
            self._rebuild(path, options["archive"])

    def _check(self, path: Path, archives: Sequence[Path]) -> None:
        """By the kept sums of archived months first; then by the archives, which proves both."""
        with ExitStack() as stack:
            connection = stack.enter_context(opened(path))
            sources = self._proved(connection, archives, stack) if archives else []
            try:
                difference = first_difference(connection, self._report)
                if difference is None and sources:
                    difference = first_difference(connection, self._report, sources)
            except (sqlite3.OperationalError, LookupError, ValueError) as error:
                raise CommandError(f"The rollups can't be read: {error}.") from error
        if difference is not None:
            raise CommandError(f"The rollups differ from the receipts. {difference}")
        beside = f", those of {len(sources)} archive(s) among them" if sources else ""
        self.stdout.write(f"The rollups equal the receipts{beside}.")

    def _rebuild(self, path: Path, archives: Sequence[Path]) -> None:
        connect_read_only(path).close()  # LedgerNotReady where there is no ledger
        lock = LedgerLock.take(path)
        try:
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                if archives:
                    self._renew_archived(connection, archives)
                position = rebuild(connection, progress=self._report)
                open_work.rebuild(connection)
                head = read_head(connection)
                if head is not None:
                    fill(connection, head)
            finally:
                connection.close()
        finally:
            lock.release()
        self.stdout.write(f"Rollups rebuilt up to row {position} of the chain.")

    def _renew_archived(self, connection: sqlite3.Connection, files: Sequence[Path]) -> None:
        with ExitStack() as stack:
            sources = self._proved(connection, files, stack)
            renew_archived(connection, sources, progress=self._report)

    def _proved(
        self, connection: sqlite3.Connection, files: Sequence[Path], stack: ExitStack
    ) -> list[sqlite3.Connection]:
        """All the archives of the ledger, in their order, each proved to be what was archived."""
        names = [file.name for file in files]
        for file in files:  # its sums would be added twice
            if names.count(file.name) > 1:
                raise CommandError(f"{file.name} is given twice: give each archive once.")
        order = [one.file for one in known_archives(connection)]
        missing = set(order) - set(names)
        if missing:
            raise CommandError(f"Every archive is needed; not given: {', '.join(sorted(missing))}.")
        for file in files:
            for fault in archive_faults(connection, file):
                raise CommandError(f"{file} isn't the archive that the ledger has: {fault}")
        ordered = sorted(files, key=lambda file: order.index(file.name))
        return [stack.enter_context(closing(connect_as_of_today(file))) for file in ordered]

    def _report(self, receipts: int) -> None:
        if self.stderr.isatty():
            self.stderr.write(f"\r{receipts:,} receipts", ending="")
