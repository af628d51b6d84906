"""A route policy under the actions in force: a derived revision, published like any other. Pure.

Decisions name the revision that they followed, so a replay needs nothing new, and what an action
changed can be read as the difference of two revisions. Undoing is publishing without it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.policy.prepared import DEFAULT_SHARES
from gateway.policy.values import PRIORITIES, LogicalModel, PriorityShare, Route, RoutePolicy
from ledger.slo import ActionKind

LEAST_SHARE_PERMILLE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """An action in force: its episode, what it does, and to what (resolved, never "")."""

    episode: str
    kind: ActionKind
    target: str


def derived(base: RoutePolicy, actions: Iterable[InForce]) -> RoutePolicy:
    """The base policy under these actions, in the order they began, with the base's revision."""
    policy = base
    for action in actions:
        change = CHANGES.get(action.kind)
        if change is not None:
            policy = change(policy, action.target)
    return policy


def same_rules(one: RoutePolicy, other: RoutePolicy) -> bool:
    """Whether two revisions say the same."""
    return msgspec.structs.replace(one, revision="") == msgspec.structs.replace(other, revision="")


def limit_prefill(policy: RoutePolicy, target: str) -> RoutePolicy:
    """Half as many requests may wait for their prefill, on one route or on all."""
    return _with_routes(policy, target, lambda r: _route(r, queue_limit=max(1, r.queue_limit // 2)))


def reduce_batch(policy: RoutePolicy, target: str) -> RoutePolicy:
    """The lowest priority may fill half as much of each queue and of the KV room."""
    share = _shares(policy)["batch"]
    return _with_share(policy, "batch", share.queue_permille // 2, share.kv_permille // 2)


def shed_priority(policy: RoutePolicy, target: str) -> RoutePolicy:
    """A priority, and every one below it, is let into no queue (ADM-8)."""
    return _with_share(policy, target or PRIORITIES[-1], LEAST_SHARE_PERMILLE, LEAST_SHARE_PERMILLE)


def cut_route(policy: RoutePolicy, target: str) -> RoutePolicy:
    """A route takes no more requests; as long as its models have another one."""
    return _with_routes(policy, target, lambda r: _route(r, enabled=False)) if target else policy


def tighten_tokens(policy: RoutePolicy, target: str) -> RoutePolicy:
    """A model's output, by default and at most, is half as long; "": of every model."""
    return msgspec.structs.replace(
        policy,
        models=tuple(
            msgspec.structs.replace(
                model,
                max_output_tokens=max(1, model.max_output_tokens // 2),
                default_output_tokens=max(1, model.default_output_tokens // 2),
            )
            if target in ("", model.name)
            else model
            for model in policy.models
        ),
    )


CHANGES: Final[Mapping[ActionKind, Callable[[RoutePolicy, str], RoutePolicy]]] = {
    "limit_prefill": limit_prefill,
    "reduce_batch": reduce_batch,
    "shed_priority": shed_priority,
    "cut_route": cut_route,
    "tighten_tokens": tighten_tokens,
}
"""What changes the policy. A quota is a tenant's; freezing, advice and incidents change nothing."""


def can_cut(policy: RoutePolicy, route_id: str, drained: frozenset[str] = frozenset()) -> bool:
    """Whether each model with this primary route has another one that takes requests."""
    enabled = {route.route_id for route in policy.routes if route.enabled} - drained
    return all(
        enabled & (_arm_mates(model, route_id) - {route_id})
        for model in policy.models
        if route_id in model.primary_routes
    )


def _arm_mates(model: LogicalModel, route_id: str) -> set[str]:
    """The primary routes that get the same traffic: those of its arm, where there are arms."""
    if model.canary is None:
        return set(model.primary_routes)
    named = [arm for arm in model.canary.arms if route_id in arm.route_ids]
    if named:
        return set(named[0].route_ids)
    return set(model.primary_routes) - {r for arm in model.canary.arms for r in arm.route_ids}


def _route(route: Route, **changes: int | bool) -> Route:
    return msgspec.structs.replace(route, **changes)


def _with_routes(policy: RoutePolicy, target: str, change: Callable[[Route], Route]) -> RoutePolicy:
    return msgspec.structs.replace(
        policy,
        routes=tuple(
            change(route) if target in ("", route.route_id) else route for route in policy.routes
        ),
    )


def _shares(policy: RoutePolicy) -> dict[str, PriorityShare]:
    return {share.priority: share for share in (*DEFAULT_SHARES, *policy.queue_shares)}


def _with_share(policy: RoutePolicy, priority: str, queue: int, kv: int) -> RoutePolicy:
    """The policy with no more than these shares for a priority and for those that go before it."""
    shares = _shares(policy)
    lower = PRIORITIES[PRIORITIES.index(priority) :] if priority in PRIORITIES else ()
    for name in lower:
        share = shares[name]
        shares[name] = PriorityShare(
            priority=name,
            queue_permille=max(LEAST_SHARE_PERMILLE, min(queue, share.queue_permille)),
            kv_permille=max(LEAST_SHARE_PERMILLE, min(kv, share.kv_permille)),
        )
    return msgspec.structs.replace(policy, queue_shares=tuple(shares[p] for p in PRIORITIES))
