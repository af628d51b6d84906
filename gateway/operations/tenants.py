"""Tenants and their quotas: each change a new revision (SPEC 2)."""

from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from gateway.auth_roles import Role
from gateway.operations.base import Operation, Plan, Refused, Seen, canonical
from gateway.quota import Quota
from ledger.queries import configuration as stored
from ledger.records import Tenant

NAME_LIMIT_CHARS = 64


class SetTenant(Operation, frozen=True, kw_only=True):
    """Make a tenant, or give one a new quota, in force for its next request."""

    NAME: ClassVar[str] = "set_tenant"
    ROLE: ClassVar[Role] = "admin"

    tenant_id: str
    quota: Quota

    def plan(self, seen: Seen) -> Plan | Refused:
        problems = quota_problems(self.quota)
        name = self.tenant_id
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            problems.append("tenant_id has letters, digits, - and _ alone")
        if len(name) > NAME_LIMIT_CHARS:
            problems.append(f"tenant_id has at most {NAME_LIMIT_CHARS} characters")
        if problems:
            return Refused(
                code="INVALID_QUOTA",
                message=f"The quota can't be used: {problems[0]}.",
                problems=tuple(problems),
            )
        before = stored.tenant(seen.connection, name)
        after: dict[str, Any] = msgspec.to_builtins(self.quota)
        if before is not None and before.body_json == msgspec.json.encode(self.quota).decode():
            message = f"{name} has this quota already; nothing was changed."
            return Refused(code="NO_CHANGE", message=message)
        revision = 1 if before is None else before.revision + 1
        record = Tenant(
            tenant_id=name,
            revision=revision,
            body_json=msgspec.json.encode(self.quota).decode(),
            changed_at_us=seen.now_us,
            changed_by=seen.actor.label,
        )
        return Plan(
            records=(record,),
            summary=f"Set the quota of {name}, revision {revision}.",
            subject=name,
            before={} if before is None else msgspec.json.decode(before.body_json),
            after=msgspec.json.decode(canonical(after)),
        )


def quota_problems(quota: Quota) -> list[str]:
    """What keeps a quota from being used, each a sentence without its full stop."""
    problems = [
        f"{name} is {value}; it must be positive, or left out for no limit"
        for name, value in msgspec.structs.asdict(quota).items()
        if isinstance(value, int) and value <= 0
    ]
    try:
        ZoneInfo(quota.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        problems.append(f"time_zone {quota.time_zone!r} is no IANA time zone")
    return problems
