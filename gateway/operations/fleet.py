"""What is served, as a whole: model identities, and the fleet file applied at once (SPEC 2, 5)."""

import hashlib
from typing import ClassVar

from msgspec.structs import asdict

from gateway.auth_roles import Role
from gateway.fleet_file.document import read_fleet
from gateway.fleet_file.identities import EMPTY_ACTION, Identity, empty_fields, identity_record
from gateway.fleet_file.in_force import plan_id
from gateway.fleet_file.secrets import credential_faults
from gateway.operations.base import PROBLEMS_LIMIT, Operation, Plan, Refused, Seen
from gateway.operations.drafting import changes, refused
from gateway.operations.fleet_plan import planned
from ledger.queries import configuration as stored


class RegisterIdentity(Operation, frozen=True, kw_only=True):
    """Register a model identity, so that routes, rates and evidence can name it."""

    NAME: ClassVar[str] = "register_identity"
    ROLE: ClassVar[Role] = "operator"

    identity: Identity

    def plan(self, seen: Seen) -> Plan | Refused:
        secret = credential_faults(asdict(self.identity))
        if secret:
            return refused("CREDENTIAL", secret)
        empty = empty_fields(self.identity)
        if empty:
            message = f"{empty[0]} is empty. {EMPTY_ACTION}."
            return Refused(code="INVALID_IDENTITY", message=message)
        record = identity_record(self.identity)
        if stored.identity(seen.connection, record.identity_id) is not None:
            message = f"{record.identity_id} is registered already; nothing was changed."
            return Refused(code="NO_CHANGE", message=message)
        return Plan(
            records=(record,),
            summary=f"Registered {record.identity_id}, a model of {record.logical_model}.",
            subject=record.identity_id,
            after=asdict(self.identity),
        )


class ApplyFleet(Operation, frozen=True, kw_only=True):
    """Publish what a fleet file changes, all of it in one commit or nothing."""

    NAME: ClassVar[str] = "apply_fleet"
    ROLE: ClassVar[Role] = "admin"

    text: str  # the file, TOML
    plan_id: str | None = None  # of `fleet plan`: refused where something has changed since

    def plan(self, seen: Seen) -> Plan | Refused:
        now = plan_id(seen.connection, self.text)
        if self.plan_id is not None and self.plan_id != now:
            return Refused(
                code="MOVED",
                message="The file or what is in force has changed since that plan; plan again.",
            )
        reading = read_fleet(self.text)
        if reading.fleet is None:
            return _invalid(reading.problems)
        plan = planned(reading.fleet, seen)
        if plan.faults:
            return _invalid(reading.lines(plan.faults))
        if not plan.records:
            message = "The fleet is as the file says already; nothing was changed."
            return Refused(code="NO_CHANGE", message=message)
        count = "1 change" if len(plan.found) == 1 else f"{len(plan.found)} changes"
        return Plan(
            records=tuple(plan.records),
            summary=f"Applied the fleet file: {count}, {len(plan.records)} rows.",
            subject="fleet",
            after={"changes": changes(plan.found)},
            evidence=f"sha256:{hashlib.sha256(self.text.encode()).hexdigest()}",
        )


def _invalid(problems: tuple[str, ...]) -> Refused:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return Refused(
        code="INVALID_FLEET",
        message=f"The fleet file has {count}; nothing was written.",
        problems=problems[:PROBLEMS_LIMIT],
    )
