"""Admission and routing of one request: a pure function from values to a value (ADM-1, ADM-2)."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gateway.policy import canary, candidates, fallback, limits, objectives
from gateway.policy.caps import Caps
from gateway.policy.estimates import Scale, Weighing
from gateway.policy.filters import Bounds, Filter, awake, has_all, sift
from gateway.policy.ordering import first, first_place
from gateway.policy.prepared import prepare
from gateway.policy.reasons import REASONS, UNHEALTHY_HTTP_STATUS
from gateway.policy.values import (
    AdmissionContext,
    Candidate,
    Decision,
    InferenceRequest,
    Limit,
    LogicalModel,
    Route,
    RoutePolicy,
)

_LASTING_LIMITS = frozenset({"tokenizer", "token_budget", "token_limits"})


def decide(
    request: InferenceRequest,
    routes: Sequence[Route],
    context: AdmissionContext,
    policy: RoutePolicy,
) -> Decision:
    """Return whether, where and why the request runs; equal values give equal bytes (ADM-2).

    Steps 2 to 7 of ADM-1 in their order: token caps, the tenant's slots, rates and money, then
    the candidates through every hard filter, then the policy's order among those left, of which
    those that meet the caller's own objectives come first. `routes`
    are the policy's, in any order; the deadline in the budget is what remains of it. A rejection
    before the candidates were looked at has none.

    A route whose provider asked to be left alone is spared, as if it were unhealthy, as long as
    any other primary or fallback takes the request; where none does it is a candidate like any
    other (RTY-2). The edges that it opens are those of an overloaded route.
    """
    spared = frozenset([each.route_id for each in context.route_states if each.cooling])
    if spared:
        states = [
            msgspec.structs.replace(each, healthy=False) if each.cooling else each
            for each in context.route_states
        ]
        elsewhere = msgspec.structs.replace(context, route_states=tuple(states))
        decision = _decide(request, routes, elsewhere, policy, spared)
        if decision.status == "accepted":
            return decision
    return _decide(request, routes, context, policy, frozenset())


def _decide(
    request: InferenceRequest,
    routes: Sequence[Route],
    context: AdmissionContext,
    policy: RoutePolicy,
    spared: frozenset[str],
) -> Decision:
    """Decide as the states say; the edges of `spared` routes are those of overloaded ones."""
    ready = prepare(policy, routes)
    model = ready.models.get(request.logical_model)
    if model is None:
        return _rejected(_Case(request, context, policy, None), "MODEL_NOT_FOUND")
    case, caps = _Case(request, context, policy, model), Caps(request, context.tenant, model)
    table = ready.table(model, case.arm)
    scale = Scale(request, context, policy, ready)
    early = _before_weighing(case, scale, caps, table.revisions)
    if early is not None:
        return early
    weighed = scale.weighings(table)
    bounds = Bounds(scale, caps)
    if bounds.tenant_left_pico is not None:
        costs = [cost for cost in weighed.costs_pico if cost is not None]
        cheapest = min(costs) if costs else 0
        if cheapest > bounds.tenant_left_pico:
            broke = limits.over_tenant_budget(context.tenant, cheapest)
            return _rejected(case, "TENANT_BUDGET_EXHAUSTED", broke)
    filters = awake(bounds, weighed)
    if not filters and table.routes and not objectives.asked(request):
        place, order = first_place(policy.ordering, weighed)
        return _accepted(case, bounds, weighed.one(place), order, tuple(weighed.candidates))
    weighings = weighed.all()
    left, fell, emptied = sift(bounds, weighings, filters)
    if left:
        winner, order = first(policy.ordering, objectives.preferred(request, left))
        return _accepted(case, bounds, winner, order, candidates.primaries(weighings, fell))
    found = fallback.search(
        scale,
        bounds,
        _origins(weighings, fell, spared),
        ready.by_id,
        case.foreign_routes(),
        tried=frozenset(table.ids),  # a primary was judged already, whatever it fell for
    )
    looked_at = (*candidates.primaries(weighings, fell), *candidates.fallbacks(found))
    if found.left:
        winner, order = first(policy.ordering, [each.weighing for each in found.left])
        reached = next(each for each in found.left if each.weighing is winner)
        return _accepted(case, bounds, winner, order, looked_at, reached)
    code = _code(emptied, routes, request)
    named = limits.of_emptied(code, scale, bounds, caps, weighings, fell, routes)
    health_alone = bool(fell) and emptied is not None and emptied.opens == "unhealthy"
    if health_alone and _LASTING_LIMITS.isdisjoint(fell.values()):
        return _rejected(case, code, named, looked_at, http_status=UNHEALTHY_HTTP_STATUS)
    return _rejected(case, code, named, looked_at)


def _origins(
    weighings: list[Weighing], fell: Mapping[str, str], spared: frozenset[str]
) -> list[fallback.Origin]:
    return [
        each._replace(reason="overloaded") if each.route.route_id in spared else each
        for each in fallback.origins_of(weighings, fell)
    ]


class _Case:
    """One decision's request with the canary arm that was fixed before anything else (RTE-1)."""

    __slots__ = ("arm", "context", "plan", "policy", "request")

    def __init__(
        self,
        request: InferenceRequest,
        context: AdmissionContext,
        policy: RoutePolicy,
        model: LogicalModel | None,
    ) -> None:
        self.request, self.context, self.policy = request, context, policy
        self.plan = model.canary if model is not None else None
        self.arm = canary.arm_of(self.plan, request) if self.plan is not None else None

    def foreign_routes(self) -> frozenset[str]:
        if self.plan is None:
            return frozenset()
        return canary.foreign_routes(self.plan, self.arm)


def _before_weighing(
    case: _Case, scale: Scale, caps: Caps, revisions: tuple[str, ...]
) -> Decision | None:
    """Return the rejection of step 2 or of the tenant's slots and rates (step 3), or None.

    A request is refused here only where the smallest of the candidates' counts is too much; a
    candidate whose own count is too much falls later, alone (BUD-3). `revisions`: the candidates'
    tokenizers.
    """
    request, tenant, counts = case.request, case.context.tenant, scale.counts
    invalid = limits.not_positive(request)
    if invalid:
        return _rejected(case, "INVALID_TOKEN_BUDGET", invalid)
    own = [counts[revision] for revision in revisions if revision in counts]
    smallest = min(own or counts.values())
    exceeded = caps.over(smallest, request.budget.max_output_tokens)
    if exceeded:
        return _rejected(case, "TOKEN_BUDGET_EXCEEDED", exceeded)
    used_up = limits.over_tenant(tenant, smallest + request.budget.max_output_tokens)
    if used_up is not None:
        code, named = used_up
        return _rejected(case, code, named)
    return None


def _code(emptied: Filter | None, routes: Iterable[Route], request: InferenceRequest) -> str:
    """Return the code of the filter that emptied the set.

    CAPABILITY_UNAVAILABLE says that no route of the policy has the capabilities, healthy or not.
    Where one has them that isn't a candidate of this model, nothing capable is left instead.
    """
    if emptied is not None and emptied.name != "capability":
        return emptied.reason_code
    if any(has_all(route.capabilities, request.required_capabilities) for route in routes):
        return "NO_CAPABLE_ROUTE"
    return "CAPABILITY_UNAVAILABLE"


def _accepted(
    case: _Case,
    bounds: Bounds,
    winner: Weighing,
    order: str,
    looked_at: tuple[Candidate, ...],
    reached: fallback.Reached | None = None,
) -> Decision:
    route = winner.route
    reasons = ["CAPABILITY_MATCH"]
    if bounds.regions is not None:
        reasons.append("REGION_ALLOWED")
    if bounds.quality_floor > 0:
        reasons.append("QUALITY_FLOOR_MET")
    reasons.append("KV_CAPACITY_AVAILABLE" if winner.fresh else "PROBE_WITHOUT_FRESH_SNAPSHOT")
    reasons.append("DEADLINE_FIT")
    if bounds.cost_applies:
        reasons.append("COST_FIT")
    if objectives.asked(case.request):
        met = objectives.meets(case.request, winner)
        reasons.append(objectives.MET if met else objectives.MISSED)
    reasons.append(order)
    if reached is not None:
        reasons.append(f"FALLBACK_{reached.reason.upper()}")
    return Decision(
        request_id=case.request.request_id,
        status="accepted",
        candidates=looked_at,
        reasons=tuple(reasons),
        route_id=route.route_id,
        identity_id=route.identity_id,
        tokenizer_revision=route.tokenizer_revision,
        input_tokens=winner.tokens or 0,
        reserve_kv_tokens=winner.need_kv,
        ttft_us=winner.ttft_us,
        e2e_us=winner.e2e_us,
        cost_pico=winner.cost_pico,
        degraded_from=reached.degraded_from if reached is not None else None,
        release_id=case.plan.release_id if case.plan is not None else None,
        arm=case.arm.arm if case.arm is not None else None,
        probe=not winner.fresh,
    )


def _rejected(
    case: _Case,
    code: str,
    named: tuple[Limit, ...] = (),
    looked_at: tuple[Candidate, ...] = (),
    *,
    http_status: int | None = None,
) -> Decision:
    reason = REASONS[code]
    wait_ms: int | None = case.policy.retry_after_ms if reason.retryable else None
    if code.startswith("TENANT_"):
        wait_ms = limits.tenants_wait_ms(case.context.tenant, code, named)
    counts = [count.tokens for count in case.request.input_tokens]
    return Decision(
        request_id=case.request.request_id,
        status="rejected",
        candidates=looked_at,
        reason_code=code,
        limits=named,
        conditional_on=reason.conditional_on,
        retry_after_ms=wait_ms,
        http_status=http_status or reason.http_status,
        input_tokens=min(counts, default=0),
        release_id=case.plan.release_id if case.plan is not None else None,
        arm=case.arm.arm if case.arm is not None else None,
    )
