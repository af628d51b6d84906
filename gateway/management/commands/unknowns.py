"""`manage.py unknowns [--json]`: what nobody knows the end of, how long, and the money at risk."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from gateway.clock import SystemClock
from gateway.unknown_report import unknowns_body
from ledger.management.opened import readable
from ledger.reading import reader


class Command(BaseCommand):
    help = "List the open unknowns. `manage.py operate resolve_unknown` settles one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="for machines")

    def handle(self, *args: Any, **options: Any) -> None:
        with readable(settings.WEIGHBRIDGE_DB):
            body = unknowns_body(reader(settings.WEIGHBRIDGE_DB), SystemClock().now_us())
        if options["json"]:
            self.stdout.write(json.dumps(body, indent=2))
            return
        if not body["open"]:
            self.stdout.write("No open unknowns: no money is held for them.")
            return
        for one in body["unknowns"]:
            self.stdout.write(
                f"{one['attempt_id']}  {one['tenant_id']}  {one['route_id']}  {one['code']}  "
                f"since {one['since']}  {one['held']} units held"
            )
        self.stdout.write(
            f"{body['open']} open, {body['money_at_risk']} units at risk. Settle one:"
        )
        self.stdout.write(
            "  manage.py operate resolve_unknown --reason R --json "
            '\'{"attempt_id": "…", "became": "completed|cancelled|failed|not_run|written_off", …}\''
        )
