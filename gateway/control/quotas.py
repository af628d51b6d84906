"""A tenant's quota as an action: half of its slots while it is in force, as before afterwards."""

import sqlite3

import msgspec

from gateway.control.objectives import Entered
from gateway.control.publication import PREFIX
from gateway.quota import Quota
from ledger.queries import configuration
from ledger.queries import objectives as stored
from ledger.records import ControlAction, Tenant

ACTION = f"{PREFIX}change_quota"


class Quotas:
    """The quotas that the actions of one commit change, each after those before it.

    Of n actions in force on a tenant the slots are halved n times, in whatever order they end.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tenants: dict[str, Tenant] = {}  # as they are with what was planned
        self._declared: dict[str, dict[str, int]] = {}  # by tenant: episode -> slots without any

    def rows(self, entered: Entered) -> tuple[list[Tenant], dict[str, object]]:
        """The tenant's new revision, and what the action's row tells of it; nothing of other kinds.

        A quota that someone has changed since is left as they set it.
        """
        if entered.kind != "change_quota" or entered.phase not in ("applied", "undone"):
            return [], {}
        tenant = self._tenant(entered.target)
        if tenant is None:
            return [], {"tenant": "gone"}
        quota = msgspec.json.decode(tenant.body_json, type=Quota)
        slots, in_force = quota.in_flight_limit, self._in_force(entered.target)
        if entered.phase == "applied":
            newest = next(reversed(in_force.values()), None)
            declared = newest if _is(newest, in_force, slots) and newest is not None else slots
            in_force[entered.episode] = declared
        else:
            known = in_force.get(entered.episode)
            if known is None or not _is(known, in_force, slots):
                in_force.pop(entered.episode, None)
                return [], {"in_flight_limit": slots, "left": "changed since"}
            declared = in_force.pop(entered.episode)
        changed = _halved(declared, in_force)
        row = Tenant(
            tenant_id=tenant.tenant_id,
            revision=tenant.revision + 1,
            body_json=msgspec.json.encode(
                msgspec.structs.replace(quota, in_flight_limit=changed)
            ).decode(),
            changed_at_us=entered.at_us,
            changed_by=f"slo:{entered.definition.slo_id}",
        )
        self._tenants[tenant.tenant_id] = row
        told: dict[str, object] = {
            "in_flight_limit_before": slots,
            "in_flight_limit": changed,
            "in_flight_limit_declared": declared,
        }
        return [row], told

    def _tenant(self, tenant_id: str) -> Tenant | None:
        planned = self._tenants.get(tenant_id)
        return planned or configuration.tenant(self._connection, tenant_id)

    def _in_force(self, tenant_id: str) -> dict[str, int]:
        """Each action in force on the tenant, the oldest first, with the slots it was told of."""
        if tenant_id not in self._declared:
            self._declared[tenant_id] = {
                one.record.episode or "": declared
                for one in stored.open_episodes(self._connection)
                if one.record.action == ACTION
                and one.record.subject == tenant_id
                and one.record.phase == "applied"
                and (declared := _told(one.record)) is not None
            }
        return self._declared[tenant_id]


def _halved(declared: int, in_force: dict[str, int]) -> int:
    """The slots under the actions that were told of `declared`; those of other slots are past."""
    return max(1, declared >> sum(one == declared for one in in_force.values()))


def _is(declared: int | None, in_force: dict[str, int], slots: int) -> bool:
    """Whether the slots are what the actions in force have made of `declared`."""
    return declared is not None and slots == _halved(declared, in_force)


def _told(applied: ControlAction) -> int | None:
    """The slots without any action, as the row of an action told when it was applied."""
    after = msgspec.json.decode(applied.after_json, type=dict[str, str | int])
    found = after.get("in_flight_limit_declared", after.get("in_flight_limit_before"))
    return found if isinstance(found, int) else None
