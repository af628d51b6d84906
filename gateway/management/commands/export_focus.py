"""`manage.py export_focus --from D --to D --out FILE`: charges as FOCUS 1.2 (CST-9)."""

from datetime import date
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.focus.charges import Issuer
from ledger.focus.exporting import write
from ledger.management.new_file import new_file
from ledger.management.opened import readable
from ledger.queries.archives import archives_of_period
from ledger.queries.charges import ChargeFilter
from ledger.reading import reader
from ledger.zones import days, parse_zone


class Command(BaseCommand):
    help = (
        "Writes every charge of the days, both included, as a FOCUS 1.2 CSV: a row for each part "
        "of a request's cost. Prints how many rows it has, and its SHA-256."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--from", dest="first", required=True, type=date.fromisoformat)
        parser.add_argument("--to", dest="last", required=True, type=date.fromisoformat)
        parser.add_argument("--zone", default="UTC", help="whose days and months; UTC")
        parser.add_argument("--tenant", help="of this tenant alone")
        parser.add_argument("--issuer", default=Issuer().name, help="who charges: your name")
        parser.add_argument("--out", required=True, type=Path, help="a new file")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            zone = parse_zone(options["zone"])
            period = days(options["first"], options["last"], zone)
        except (ValueError, OverflowError) as error:
            raise CommandError(f"{error}.") from error
        wanted = ChargeFilter(
            start_us=period.start_us, end_us=period.end_us, tenant_id=options["tenant"]
        )
        path = options["out"]
        try:
            with readable(settings.WEIGHBRIDGE_DB):
                connection = reader(settings.WEIGHBRIDGE_DB)
                files = archives_of_period(connection, period.start_us, period.end_us)
                if files:
                    raise CommandError(f"Requests of these days are in {', '.join(files)}.")
                # What was exported once may be booked somewhere: it is never overwritten.
                with new_file(path) as out:
                    written = write(
                        connection, wanted, out, issuer=Issuer(name=options["issuer"]), zone=zone
                    )
        except OSError as error:
            raise CommandError(f"{path} can't be written: {error.strerror}.") from error
        self.stdout.write(f"{path}: {written.rows:,} rows, sha256 {written.sha256}")
