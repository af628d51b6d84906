"""What a policy settles for every decision, looked up once for many of them.

The last ones used are remembered by identity: values are frozen, so the same object says the same.
Pure all the same: what is returned depends on the arguments alone.
"""

from collections.abc import Sequence
from typing import Final

from gateway.policy import canary
from gateway.policy.values import (
    CanaryArm,
    LogicalModel,
    Priority,
    PriorityShare,
    Route,
    RoutePolicy,
)

DEFAULT_SHARES: Final = (
    PriorityShare(priority="interactive", queue_permille=1000),
    PriorityShare(priority="normal", queue_permille=800),
    PriorityShare(priority="batch", queue_permille=500),
)
"""Shares of a queue where the policy declares none for a priority: batch is shed first (ADM-8)."""


class Prepared:
    """A policy's models, routes and shares by name; of each name the first one counts."""

    __slots__ = ("_primaries", "by_id", "models", "policy", "routes", "shares")

    def __init__(self, policy: RoutePolicy, routes: Sequence[Route]) -> None:
        self.policy, self.routes = policy, routes
        self.models: dict[str, LogicalModel] = {
            model.name: model for model in reversed(policy.models)
        }
        self.by_id = {route.route_id: route for route in routes}
        self.shares: dict[Priority, PriorityShare] = {
            share.priority: share for share in reversed((*policy.queue_shares, *DEFAULT_SHARES))
        }
        self._primaries: dict[tuple[str, tuple[str, ...] | None], tuple[Route, ...]] = {}

    def primaries(self, model: LogicalModel, arm: CanaryArm | None) -> tuple[Route, ...]:
        """Return the candidates of a model and arm, sorted by id and each once."""
        key = (model.name, None if arm is None else arm.route_ids)
        found = self._primaries.get(key)
        if found is None:
            names = model.primary_routes
            if model.canary is not None:
                names = canary.candidates_of(model.canary, arm, names)
            found = tuple([self.by_id[name] for name in sorted(set(names)) if name in self.by_id])
            self._primaries[key] = found
        return found


class _Memory:
    """The last one: one attribute, so that no thread sees half of it."""

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
