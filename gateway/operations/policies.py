"""Route policies: drafted, compared, published, returned to (SPEC 2, 5; FBK-1).

A published revision is immutable, and the one declared last is in force, under the actions that
objectives have taken. Who publishes says which revision it is based on, so that of two who start
from the same one the second is told.
"""

import sqlite3
from typing import Any, ClassVar, Final

import msgspec

from gateway.auth_roles import Role
from gateway.control.publication import in_force, overlaid
from gateway.fleet_file.differences import differences
from gateway.fleet_file.in_force import declared_policy
from gateway.fleet_file.named import named
from gateway.operations.base import PROBLEMS_LIMIT, Operation, Plan, Refused, Seen
from gateway.operations.drafting import (
    changes,
    drafted,
    missing_draft,
    moved,
    name_problem,
    read_body,
    refused,
)
from gateway.operations.policy_checks import around, policy_faults, policy_warnings
from gateway.policy.values import RoutePolicy
from ledger.queries import configuration as stored
from ledger.queries import drafts
from ledger.records import RoutePolicyRecord

KIND: Final = "route_policy"
INVALID: Final = "INVALID_POLICY"


class DraftPolicy(Operation, frozen=True, kw_only=True):
    """Keep a policy as a draft, with what would still keep it from being published."""

    NAME: ClassVar[str] = "draft_policy"
    ROLE: ClassVar[Role] = "operator"
    NEEDS_REASON: ClassVar[bool] = False

    revision: str
    policy: dict[str, Any]  # its fields by name
    based_on: str | None = None  # the revision in force, where none is named
    note: str = ""

    def plan(self, seen: Seen) -> Plan | Refused:
        policy = _read(self.revision, self.policy)
        if isinstance(policy, Refused):
            return policy
        if stored.policy(seen.connection, self.revision) is not None:
            return _taken(self.revision)
        return drafted(
            seen,
            kind=KIND,
            name=self.revision,
            body_json=msgspec.json.encode(policy).decode(),
            based_on=self.based_on or _declared_revision(seen.connection),
            note=self.note,
            faults=policy_faults(policy, around(seen.connection, seen.now_us)),
            tree=named(policy),
        )


class PublishPolicy(Operation, frozen=True, kw_only=True):
    """Put a policy in force, given or drafted, for the next request."""

    NAME: ClassVar[str] = "publish_policy"
    ROLE: ClassVar[Role] = "admin"

    revision: str  # new: that of no published policy
    policy: dict[str, Any] | None = None  # None: the draft of that name
    draft_revision: int | None = None  # None: the newest
    based_on: str | None = None  # None: what the draft says

    def plan(self, seen: Seen) -> Plan | Refused:
        based_on = self.based_on
        if self.policy is not None:
            policy = _read(self.revision, self.policy)
            if isinstance(policy, Refused):
                return policy
        else:
            draft = drafts.draft(seen.connection, KIND, self.revision, self.draft_revision)
            if draft is None:
                return missing_draft(self.revision, self.draft_revision)
            policy = msgspec.json.decode(draft.body_json, type=RoutePolicy)
            based_on = based_on or draft.based_on
        return _published(seen, policy, based_on, f"Published {self.revision}")


class ReturnToPolicy(Operation, frozen=True, kw_only=True):
    """Put the policy of an earlier revision in force again, under a new revision."""

    NAME: ClassVar[str] = "return_to_policy"
    ROLE: ClassVar[Role] = "operator"

    to: str  # the published revision whose policy comes back
    revision: str  # what it is published as
    based_on: str | None = None  # the revision in force, where none is named

    def plan(self, seen: Seen) -> Plan | Refused:
        record = stored.policy(seen.connection, self.to)
        if record is None:
            known = ", ".join(each.revision for each in stored.policies(seen.connection)[-5:])
            message = f"There is no published policy {self.to!r}; the latest are {known or 'none'}."
            return Refused(code="NO_SUCH_POLICY", message=message)
        wrong = name_problem(self.revision, "revision")
        if wrong is not None:
            return wrong
        policy = msgspec.structs.replace(
            msgspec.json.decode(record.body_json, type=RoutePolicy), revision=self.revision
        )
        based_on = self.based_on or _declared_revision(seen.connection)
        said = f"Returned to {self.to}, published as {self.revision}"
        return _published(seen, policy, based_on, said, returned_to=self.to)


def policy_of(connection: sqlite3.Connection, revision: str) -> RoutePolicy | None:
    """The policy of a published revision, else the newest draft of that name, else None."""
    record = stored.policy(connection, revision) or drafts.draft(connection, KIND, revision)
    return None if record is None else msgspec.json.decode(record.body_json, type=RoutePolicy)


def _read(revision: str, tree: dict[str, Any]) -> RoutePolicy | Refused:
    wrong = name_problem(revision, "revision")
    if wrong is not None:
        return wrong
    return read_body(RoutePolicy, tree, INVALID, revision=revision)


def _published(
    seen: Seen, policy: RoutePolicy, based_on: str | None, said: str, **more: str
) -> Plan | Refused:
    connection = seen.connection
    if stored.policy(connection, policy.revision) is not None:
        return _taken(policy.revision)
    current = declared_policy(connection)
    standing = current.revision if current else None
    overtaken = moved(standing, based_on, "policy in force")
    if overtaken is not None:
        return overtaken
    if current is not None and msgspec.structs.replace(current, revision="") == (
        msgspec.structs.replace(policy, revision="")
    ):
        message = f"{standing} is the same policy and in force already; nothing was published."
        return Refused(code="NO_CHANGE", message=message)
    faults = policy_faults(policy, around(connection, seen.now_us))
    if faults:
        return refused(INVALID, faults, named(policy))
    found = changes(differences(current, policy)) if current else []
    tree = named(policy)
    looks = [each.shown(tree) for each in policy_warnings(policy, connection)[:PROBLEMS_LIMIT]]
    worth = f" Worth a look: {' '.join(looks)}" if looks else ""
    warned = {"warnings": looks} if looks else {}
    return Plan(
        records=policy_records(policy, seen),
        summary=f"{said}: {len(policy.models)} models, {len(policy.routes)} routes, "
        f"{len(policy.edges)} fallback edges.{worth}",
        subject=policy.revision,
        before={"revision": standing},
        after={"revision": policy.revision, "changes": found, **warned, **more},
    )


def policy_records(policy: RoutePolicy, seen: Seen) -> tuple[RoutePolicyRecord, ...]:
    """The rows that put a policy in force, under the actions that objectives have taken."""
    declared = RoutePolicyRecord(
        revision=policy.revision,
        body_json=msgspec.json.encode(policy).decode(),
        published_at_us=seen.now_us,
        published_by=seen.actor.label,
    )
    over = overlaid(
        policy,
        in_force(seen.connection),
        published=stored.policies_count(seen.connection) + 1,
        now_us=seen.now_us,
    )
    return (declared,) if over is None else (declared, over)


def _declared_revision(connection: sqlite3.Connection) -> str | None:
    policy = declared_policy(connection)
    return None if policy is None else policy.revision


def _taken(revision: str) -> Refused:
    return Refused(
        code="REVISION_EXISTS",
        message=f"{revision} is published already, and a published revision never changes. "
        "Choose a new one.",
    )
