"""`manage.py evaluate_slos [--at TIME]`: every closed window once, with what follows from it."""

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.performing import asked, refusal
from gateway.operations.base import Refused
from gateway.operations.control import EvaluateSlos

PASSES_LIMIT = 1_000  # of some eight hours each


class Command(BaseCommand):
    help = (
        "Evaluate every window of every objective that is closed and was not evaluated, act on "
        "the newest, and judge the windows of rollouts. The running server does so by itself."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--at", metavar="TIME", help="as if it were then: 2026-11-01T12:00:00+00:00"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        at_us = None if options["at"] is None else _microseconds(options["at"])
        for _ in range(PASSES_LIMIT):
            result = asked(settings.WEIGHBRIDGE_DB, EvaluateSlos(at_us=at_us))
            if isinstance(result, Refused):
                if result.code != "NOTHING_DUE":
                    raise refusal(result, self.stderr)
                self.stdout.write("Every closed window is evaluated.")
                return
            self.stdout.write(result.summary)


def _microseconds(text: str) -> int:
    """A time in ISO 8601 with its zone, in microseconds since the epoch."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise CommandError("--at is a time with its zone, such as 2026-11-01T12:00:00+00:00")
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
