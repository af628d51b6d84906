"""Routes taken out of traffic and brought back, without a new policy (RTY-2).

The audit row alone is the record: the last one of a route says whether it is drained.
"""

from typing import ClassVar

from gateway.auth_roles import Role
from gateway.fleet_file.in_force import declared_policy
from gateway.operations.base import Operation, Plan, Refused, Seen
from gateway.policy.values import RoutePolicy
from ledger.queries.actions import drained_routes


class DrainRoute(Operation, frozen=True, kw_only=True):
    """Send a route nothing new, from the next request on; what runs there ends as it will."""

    NAME: ClassVar[str] = "drain_route"
    ROLE: ClassVar[Role] = "operator"

    route_id: str

    def plan(self, seen: Seen) -> Plan | Refused:
        policy, drained = declared_policy(seen.connection), drained_routes(seen.connection)
        routes = sorted(route.route_id for route in policy.routes) if policy else []
        if policy is None or self.route_id not in routes:
            message = f"The policy in force has no route {self.route_id!r}; it has " + (
                ", ".join(routes) or "none"
            )
            return Refused(code="NO_SUCH_ROUTE", message=f"{message}.")
        if self.route_id in drained:
            message = f"{self.route_id} is drained already; nothing was changed."
            return Refused(code="NO_CHANGE", message=message)
        dry = models_left_dry(policy, drained | {self.route_id})
        left = f" No primary route is left for {', '.join(dry)}." if dry else ""
        return Plan(
            records=(),
            summary=f"Drained {self.route_id}: it gets nothing new.{left}",
            subject=self.route_id,
            before={"drained": False},
            after={"drained": True, "models_without_route": dry},
        )


class UndrainRoute(Operation, frozen=True, kw_only=True):
    """Let a drained route take requests again."""

    NAME: ClassVar[str] = "undrain_route"
    ROLE: ClassVar[Role] = "operator"

    route_id: str

    def plan(self, seen: Seen) -> Plan | Refused:
        drained = drained_routes(seen.connection)
        if self.route_id not in drained:
            known = ", ".join(sorted(drained)) or "none"
            message = f"{self.route_id!r} is not drained; drained are: {known}."
            return Refused(code="NOT_DRAINED", message=message)
        return Plan(
            records=(),
            summary=f"{self.route_id} takes requests again.",
            subject=self.route_id,
            before={"drained": True},
            after={"drained": False},
        )


def models_left_dry(policy: RoutePolicy, drained: frozenset[str]) -> list[str]:
    """The models whose primary routes are all drained or switched off."""
    taking = {route.route_id for route in policy.routes if route.enabled} - drained
    return [model.name for model in policy.models if taking.isdisjoint(model.primary_routes)]
