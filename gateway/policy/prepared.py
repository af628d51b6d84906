"""What a policy settles for every decision, looked up once for many of them.

The last one used is remembered by identity: values are frozen, so the same object says the same.
Pure all the same: what is returned depends on the arguments alone.
"""

from collections.abc import Sequence
from typing import Final

from gateway.policy import canary
from gateway.policy.table import Table
from gateway.policy.values import (
    CanaryArm,
    LogicalModel,
    Priority,
    PriorityShare,
    Route,
    RoutePolicy,
)

DEFAULT_SHARES: Final = (
    PriorityShare(priority="interactive", queue_permille=1000, kv_permille=1000),
    PriorityShare(priority="normal", queue_permille=800, kv_permille=850),
    PriorityShare(priority="batch", queue_permille=500, kv_permille=700),
)
"""Shares of a route where the policy declares none for a priority: whichever of queue and KV runs
out, batch is shed first (ADM-8)."""


class Prepared:
    """A policy's models, routes and shares by name; of each name the first one counts."""

    __slots__ = ("_alone", "_tables", "by_id", "models", "policy", "routes", "shares")

    def __init__(self, policy: RoutePolicy, routes: Sequence[Route]) -> None:
        self.policy, self.routes = policy, routes
        self.models: dict[str, LogicalModel] = {
            model.name: model for model in reversed(policy.models)
        }
        self.by_id = {route.route_id: route for route in routes}
        self.shares: dict[Priority, PriorityShare] = {
            share.priority: share for share in reversed((*policy.queue_shares, *DEFAULT_SHARES))
        }
        self._tables: dict[tuple[str, tuple[str, ...] | None], Table] = {}
        self._alone: dict[str, Table] = {}

    def table(self, model: LogicalModel, arm: CanaryArm | None) -> Table:
        """Return the candidates of a model and arm, sorted by id and each once."""
        key = (model.name, None if arm is None else arm.route_ids)
        found = self._tables.get(key)
        if found is None:
            names = model.primary_routes
            if model.canary is not None:
                names = canary.candidates_of(model.canary, arm, names)
            known = [self.by_id[name] for name in sorted(set(names)) if name in self.by_id]
            found = self._tables[key] = Table(tuple(known))
        return found

    def table_of(self, routes: tuple[Route, ...]) -> Table:
        """Return the table of any routes; that of a single one, as of an edge, is remembered."""
        if len(routes) != 1:
            return Table(routes)
        found = self._alone.get(routes[0].route_id)
        if found is None or found.routes[0] is not routes[0]:
            found = self._alone[routes[0].route_id] = Table(routes)
        return found


class _Memory:
    """The last one, in one attribute, so that no thread sees half of it."""

    __slots__ = ("prepared",)

    def __init__(self) -> None:
        self.prepared: Prepared | None = None


_MEMORY: Final = _Memory()


def prepare(policy: RoutePolicy, routes: Sequence[Route]) -> Prepared:
    """Return the policy prepared; remembered where `routes` can't change behind its back."""
    last = _MEMORY.prepared
    if last is not None and last.policy is policy and last.routes is routes:
        return last
    made = Prepared(policy, routes)
    if isinstance(routes, tuple):
        _MEMORY.prepared = made
    return made
