"""A tenant's quota as an action: half of its slots while it is in force, as before afterwards."""

import sqlite3

import msgspec

from gateway.control.objectives import Entered
from gateway.quota import Quota
from ledger.queries import configuration
from ledger.queries import objectives as stored
from ledger.records import Tenant


def quota_rows(
    connection: sqlite3.Connection, entered: Entered
) -> tuple[list[Tenant], dict[str, object]]:
    """The tenant's new revision, and what the action's row tells of it; nothing for other kinds.

    A quota that someone has changed since is left as they set it.
    """
    if entered.kind != "change_quota" or entered.phase not in ("applied", "undone"):
        return [], {}
    tenant = configuration.tenant(connection, entered.target)
    if tenant is None:
        return [], {"tenant": "gone"}
    quota = msgspec.json.decode(tenant.body_json, type=Quota)
    slots = quota.in_flight_limit
    if entered.phase == "applied":
        changed = max(1, slots // 2)
    else:
        told = _told(connection, entered.episode)
        if told is None or told[1] != slots:
            return [], {"in_flight_limit": slots, "left": "changed since"}
        changed = told[0]
    row = Tenant(
        tenant_id=tenant.tenant_id,
        revision=tenant.revision + 1,
        body_json=msgspec.json.encode(
            msgspec.structs.replace(quota, in_flight_limit=changed)
        ).decode(),
        changed_at_us=entered.at_us,
        changed_by=f"slo:{entered.definition.slo_id}",
    )
    return [row], {"in_flight_limit_before": slots, "in_flight_limit": changed}


def _told(connection: sqlite3.Connection, episode: str) -> tuple[int, int] | None:
    """(slots before, slots after) that the action's row told when it was applied."""
    for row in stored.episode(connection, episode):
        if row.phase == "applied":
            after = msgspec.json.decode(row.after_json, type=dict[str, str | int])
            before, slots = after.get("in_flight_limit_before"), after.get("in_flight_limit")
            if isinstance(before, int) and isinstance(slots, int):
                return before, slots
    return None
