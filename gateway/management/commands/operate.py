"""`manage.py operate NAME --json '{…}' --reason R`: any operation, with or without a server."""

import json
import sys
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.performing import performed
from gateway.operations.base import Refused
from gateway.operations.registry import OPERATIONS, described, read, values_of

FIELDS_LIMIT_BYTES = 64 << 20


class Command(BaseCommand):
    help = (
        "Perform an operation: by the running server if there is one, else on the ledger alone. "
        "Exits 0 when it is done, 1 when it is refused, with the reasons on stderr."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="an operation that --list names")
        parser.add_argument("--list", action="store_true", help="every operation with its fields")
        parser.add_argument(
            "--json", default="{}", metavar="FIELDS", help="its fields; - reads them from stdin"
        )
        parser.add_argument("--reason", default="", help="why; kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"] or options["name"] is None:
            self._list()
            return
        text = options["json"]
        if text == "-":
            text = sys.stdin.read(FIELDS_LIMIT_BYTES)
        body = _with_reason(text, options["reason"])
        operation = read(options["name"], body)
        if isinstance(operation, Refused):
            raise CommandError(f"{operation.code}: {operation.message}")
        done = performed(settings.WEIGHBRIDGE_DB, operation, self.stderr)
        self.stdout.write(done.summary)
        if done.shown_once is not None:
            self.stdout.write(done.shown_once)

    def _list(self) -> None:
        for name, told in described().items():
            needed = "reason" if told["needs_reason"] else "no reason"
            self.stdout.write(f"{name} ({told['role']}, {needed}): {told['summary']}")
            for field in msgspec.structs.fields(OPERATIONS[name]):
                if field.name != "reason":
                    required = " (required)" if field.required else ""
                    values = ", ".join(values_of(told["schema"], field.name))
                    shown = f": {values}" if values else ""
                    self.stdout.write(f"    {field.name}{required}{shown}")


def _with_reason(text: str, reason: str) -> bytes:
    try:
        fields = json.loads(text)
    except ValueError as problem:
        raise CommandError(f"--json is no JSON: {problem}") from None
    if not isinstance(fields, dict):
        raise CommandError("--json has to be an object: the operation's fields by name")
    if reason:
        fields["reason"] = reason
    return json.dumps(fields).encode()
