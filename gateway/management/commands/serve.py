"""`manage.py serve`: the gateway and its console in one process, which owns the ledger."""

import signal
from types import FrameType
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.connections import server_config
from ledger.errors import LedgerNotReady
from ledger.lock import LedgerLock
from ledger.management.opened import readable
from ledger.reading import connect_read_only

SHUTDOWN_SECONDS = 25


class Command(BaseCommand):
    help = "Serve the gateway, its API and its console."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--access-log", action="store_true", help="log each HTTP request")

    def handle(self, *args: Any, **options: Any) -> None:
        path = settings.WEIGHBRIDGE_DB
        with readable(path):
            # Asked before the server starts, so that the answer is one sentence, not a traceback.
            if not path.exists():
                raise LedgerNotReady(str(path), "there is no such file")
            LedgerLock.take(path).release()
            if not path.with_name(path.name + "-journal").exists():  # that a writer undoes
                connect_read_only(path).close()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Once it has stopped in good order uvicorn raises the signal again: that is no failure.
            signal.signal(number, _stopped)
        server = uvicorn.Server(
            server_config(
                host=options["host"],
                port=options["port"],
                access_log=options["access_log"],
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                log_config=None,
            )
        )
        server.run()
        if not server.started:
            raise CommandError("The server did not start; what it said above tells why.")


def _stopped(number: int, frame: FrameType | None) -> None:
    """Let the command return, with 0."""
