"""A route policy at each step of a rollout: arms, promotion, the old version restored. Pure."""

import msgspec

from gateway.policy.values import CanaryArm, CanaryPlan, LogicalModel, RoutePolicy
from ledger.rollouts import PERMILLE, Plan

BASELINE, CANARY = "baseline", "canary"


def with_share(policy: RoutePolicy, plan: Plan, permille: int) -> RoutePolicy:
    """The policy in which the canary's routes get this share of the model's traffic."""
    arms = (
        CanaryArm(arm=BASELINE, share_permille=PERMILLE - permille, route_ids=plan.baseline_routes),
        CanaryArm(arm=CANARY, share_permille=permille, route_ids=plan.canary_routes),
    )
    canary = CanaryPlan(release_id=plan.release_id, key=plan.key, salt=plan.rollout_id, arms=arms)
    routed = _with_model(
        policy, plan.logical_model, (*plan.baseline_routes, *plan.canary_routes), canary
    )
    return _enabled(routed, plan.canary_routes, enabled=True)


def restored(policy: RoutePolicy, plan: Plan) -> RoutePolicy:
    """The policy without the canary: no primary, no fallback and no hedge reaches its routes."""
    kept = tuple(
        route_id
        for model in policy.models
        if model.name == plan.logical_model
        for route_id in model.primary_routes
        if route_id not in plan.canary_routes
    )  # with what someone published since; the plan's own where nothing else is left
    routed = _with_model(policy, plan.logical_model, kept or plan.baseline_routes, None)
    elsewhere = {
        route_id
        for model in routed.models
        if model.name != plan.logical_model
        for route_id in model.primary_routes
    }
    only_here = tuple(name for name in plan.canary_routes if name not in elsewhere)
    closed = _enabled(routed, only_here, enabled=False)
    edges = tuple(edge for edge in closed.edges if edge.to_route not in only_here)
    return _with_edges_in_use(msgspec.structs.replace(closed, edges=edges))


def promoted(policy: RoutePolicy, plan: Plan) -> RoutePolicy:
    """The policy in which the canary's routes are the model's; the old ones stay declared."""
    return _with_edges_in_use(_with_model(policy, plan.logical_model, plan.canary_routes, None))


def problems_of(policy: RoutePolicy, plan: Plan) -> tuple[str, ...]:
    """Why the plan doesn't fit the policy in force; empty where it does."""
    known = {route.route_id for route in policy.routes}
    missing = [r for r in (*plan.baseline_routes, *plan.canary_routes) if r not in known]
    models = {model.name: model for model in policy.models}
    found = [f"the policy has no route {name}" for name in missing]
    model = models.get(plan.logical_model)
    if model is None:
        return (*found, f"the policy has no model {plan.logical_model}")
    if model.canary is not None and model.canary.release_id != plan.release_id:
        found.append(
            f"{model.name} has a canary of {model.canary.release_id} already: start that release's "
            "rollout, or publish a policy without it"
        )
    others = set(model.primary_routes) - set(plan.baseline_routes) - set(plan.canary_routes)
    found += [
        f"{name} is a primary route of {model.name} in neither arm" for name in sorted(others)
    ]
    return tuple(found)


def overtaken(policy: RoutePolicy, plan: Plan) -> tuple[str, ...]:
    """Why a rollout under way can go no further up: a policy published since is another's."""
    found = problems_of(policy, plan)
    model = next((one for one in policy.models if one.name == plan.logical_model), None)
    if model is not None and model.canary is None:
        found += (f"{model.name} has no canary any more",)
    return found


def _with_model(
    policy: RoutePolicy, name: str, primary_routes: tuple[str, ...], canary: CanaryPlan | None
) -> RoutePolicy:
    def changed(model: LogicalModel) -> LogicalModel:
        if model.name != name:
            return model
        return msgspec.structs.replace(model, primary_routes=primary_routes, canary=canary)

    return msgspec.structs.replace(policy, models=tuple(changed(each) for each in policy.models))


def _with_edges_in_use(policy: RoutePolicy) -> RoutePolicy:
    """The policy without the edges that no primary route leads to any more."""
    reached = {route_id for model in policy.models for route_id in model.primary_routes}
    for _ in policy.edges:
        reached |= {edge.to_route for edge in policy.edges if edge.from_route in reached}
    edges = tuple(edge for edge in policy.edges if edge.from_route in reached)
    return msgspec.structs.replace(policy, edges=edges)


def _enabled(policy: RoutePolicy, route_ids: tuple[str, ...], *, enabled: bool) -> RoutePolicy:
    return msgspec.structs.replace(
        policy,
        routes=tuple(
            msgspec.structs.replace(route, enabled=enabled)
            if route.route_id in route_ids
            else route
            for route in policy.routes
        ),
    )
