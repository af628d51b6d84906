"""`manage.py policy list | show | diff | check | draft | publish | return`: route policies."""

import sqlite3
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from gateway.clock import SystemClock
from gateway.fleet_file.differences import differences
from gateway.fleet_file.document import TEXT_LIMIT_BYTES
from gateway.fleet_file.named import named, read
from gateway.fleet_file.positions import BadToml, nearest, parse
from gateway.fleet_file.secrets import credential_faults
from gateway.fleet_file.toml_text import written
from gateway.management.performing import PerformingCommand, text_of
from gateway.operations.policies import (
    KIND,
    DraftPolicy,
    PublishPolicy,
    ReturnToPolicy,
    policy_of,
)
from gateway.operations.policy_checks import around, policy_faults, policy_warnings
from gateway.policy.values import RoutePolicy
from gateway.reporting import iso
from ledger.management.opened import readable
from ledger.queries import configuration as stored
from ledger.queries import drafts
from ledger.reading import reader


class Command(PerformingCommand):
    help = (
        "Route policies: list them, show or compare revisions, check a file, draft, publish, "
        "return to an earlier one. A file has a policy's fields in TOML, as `show` prints them. "
        "Exits 1 where something is refused, each problem on stderr with line and column."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        what.add_parser("list", help="published revisions, the one in force last, and drafts")
        what.add_parser("show", help="one as TOML").add_argument("revision")
        diff = what.add_parser("diff", help="what differs between two")
        diff.add_argument("before")
        diff.add_argument("after")
        check = what.add_parser("check", help="what keeps a file from being published")
        check.add_argument("file", type=Path)
        draft = what.add_parser("draft", help="keep a file as a draft")
        draft.add_argument("file", type=Path)
        draft.add_argument("--note", default="")
        publish = what.add_parser("publish", help="put a draft, or a file, in force")
        publish.add_argument("revision")
        publish.add_argument("--file", type=Path, help="instead of the draft of that name")
        publish.add_argument("--based-on", help="the revision in force that you looked at")
        publish.add_argument("--reason", required=True)
        back = what.add_parser("return", help="put an earlier revision in force again")
        back.add_argument("to", help="the published revision")
        back.add_argument("--as", dest="revision", required=True, help="its new revision")
        back.add_argument("--reason", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        with readable(settings.WEIGHBRIDGE_DB):
            connection = reader(settings.WEIGHBRIDGE_DB)
            getattr(self, f"_{options['what']}")(connection, options)

    def _list(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        for each in stored.policies(connection):
            self.stdout.write(f"{each.revision}  {iso(each.published_at_us)}  {each.published_by}")
        for draft in drafts.drafts(connection, KIND):
            based = f" on {draft.based_on}" if draft.based_on else ""
            self.stdout.write(f"{draft.name}  draft {draft.revision}{based}  {draft.drafted_by}")

    def _show(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        policy = _known(policy_of(connection, options["revision"]), options["revision"])
        self.stdout.write(written(named(policy)), ending="")

    def _diff(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        before = _known(policy_of(connection, options["before"]), options["before"])
        after = _known(policy_of(connection, options["after"]), options["after"])
        for each in differences(before, after):
            self.stdout.write(str(each))

    def _check(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        policy = self._read(connection, options["file"], sound=True)
        tree = named(policy)
        for warning in policy_warnings(policy, connection):
            self.stdout.write(f"worth a look: {warning.shown(tree)}")
        self.stdout.write(f"{policy.revision} can be published.")

    def _draft(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        policy = self._read(connection, options["file"], sound=False)
        self.perform(
            DraftPolicy(revision=policy.revision, policy=named(policy), note=options["note"])
        )

    def _publish(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        tree = None
        if options["file"]:
            tree = named(self._read(connection, options["file"], sound=True))
        self.perform(
            PublishPolicy(
                revision=options["revision"],
                policy=tree,
                based_on=options["based_on"],
                reason=options["reason"],
            )
        )

    def _return(self, connection: sqlite3.Connection, options: dict[str, Any]) -> None:
        self.perform(
            ReturnToPolicy(to=options["to"], revision=options["revision"], reason=options["reason"])
        )

    def _read(self, connection: sqlite3.Connection, path: Path, *, sound: bool) -> RoutePolicy:
        """The policy in a file; CommandError where it can't be read, or isn't `sound`."""
        try:
            tree, places = parse(text_of(path, TEXT_LIMIT_BYTES))
        except BadToml as problem:
            raise CommandError(f"{path}: {problem}") from None
        except RecursionError:
            raise CommandError(f"{path} is nested too deeply.") from None
        policy, faults = read(RoutePolicy, tree)
        faults = credential_faults(tree) or faults
        if policy is not None and not faults and sound:
            faults = policy_faults(policy, around(connection, SystemClock().now_us()))
        if policy is None or faults:
            for fault in faults:
                self.stderr.write(f"{nearest(places, fault.path)}: {fault.shown(tree)}")
            raise CommandError(f"{path} can't be used; nothing was written.")
        return policy


def _known(policy: RoutePolicy | None, revision: str) -> RoutePolicy:
    if policy is None:
        raise CommandError(f"There is no policy or draft {revision!r}; see `policy list`.")
    return policy
