"""`manage.py replay_decisions [--request ID]`: every decision made again and compared (RTE-3)."""

from itertools import chain
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.policy.comparing import Comparison
from gateway.replaying import Replayer, Tally, tally
from ledger.errors import LedgerError
from ledger.reading import reader

SHOWN = 5


class Command(BaseCommand):
    help = (
        "Makes recorded decisions again from the ledger alone and compares them byte for byte, "
        "those about retries, fallbacks and hedges too. "
        "Prints how many were identical; exits 1 on any difference and names the first ones. "
        "Decisions of another revision of the code are counted as not comparable."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--request", metavar="ID", help="only the decision of this request")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            replayer = Replayer(reader(settings.WEIGHBRIDGE_DB))
            result = self._replayed(replayer, options["request"])
        except LedgerError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{_counted(result.total)} replayed: {result.identical:,} identical, "
            f"{result.different:,} different, {result.not_comparable:,} not comparable "
            "(decided by another code revision)."
        )
        if result.different:
            shown = "\n".join(_described(each) for each in result.first_different)
            verb = "differs" if result.different == 1 else "differ"
            first = f", the first {SHOWN} of them" if result.different > SHOWN else ""
            raise CommandError(f"{_counted(result.different)} {verb}{first}:\n{shown}")

    def _replayed(self, replayer: Replayer, request_id: str | None) -> Tally:
        if request_id is None:
            return tally(chain(replayer.all(), replayer.steps()), keep=SHOWN)
        comparison = replayer.one(request_id)
        if comparison is None:
            raise CommandError(f"The ledger has no decision of request {request_id!r}.")
        return tally(chain([comparison], replayer.steps(request_id)), keep=SHOWN)


def _counted(number: int) -> str:
    return f"{number:,} decision{'' if number == 1 else 's'}"


def _described(comparison: Comparison) -> str:
    lines = "\n".join(f"    {line}" for line in comparison.differences)
    return f"  {comparison.request_id}\n{lines}"
