"""The limits that a rejection names: what the limit was and what was observed (ADM-3)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.policy.caps import Caps, over
from gateway.policy.estimates import Scale, Weighing
from gateway.policy.filters import Bounds, has_all
from gateway.policy.values import InferenceRequest, Limit, Route, TenantState, TokenCount

REQUESTS_PER_MINUTE: Final = "tenant.requests_per_minute"
TOKENS_PER_MINUTE: Final = "tenant.tokens_per_minute"
DAY_BUDGET: Final = "tenant.day_budget_pico"


def not_positive(request: InferenceRequest) -> tuple[Limit, ...]:
    """Return what has to be at least 1 and is not (INVALID_TOKEN_BUDGET)."""
    budget = request.budget
    counts = request.input_tokens
    smallest = counts[0].tokens if len(counts) == 1 else _smallest(counts)
    if (
        smallest > 0
        and budget.max_input_tokens > 0
        and budget.max_output_tokens > 0
        and budget.max_total_tokens > 0
        and budget.deadline_us > 0
    ):
        return ()
    values = (
        ("input_tokens", smallest),
        ("max_input_tokens", budget.max_input_tokens),
        ("max_output_tokens", budget.max_output_tokens),
        ("max_total_tokens", budget.max_total_tokens),
        ("deadline_us", budget.deadline_us),
    )
    return tuple(Limit(name=name, limit=1, observed=value) for name, value in values if value < 1)


def _smallest(counts: tuple[TokenCount, ...]) -> int:
    return min([count.tokens for count in counts], default=0)


def over_tenant(tenant: TenantState, tokens: int) -> tuple[str, tuple[Limit, ...]] | None:
    """Return the code and limit of the tenant's slots or rates that are used up, or None.

    `tokens`: the fewest that the request may take, input and output cap.
    """
    if tenant.in_flight >= tenant.in_flight_limit:
        name, limit, observed = "tenant.in_flight", tenant.in_flight_limit, tenant.in_flight
        return "TENANT_CONCURRENCY_LIMIT", (Limit(name=name, limit=limit, observed=observed),)
    per_minute = tenant.requests_per_minute
    if per_minute is not None and tenant.requests_in_minute >= per_minute:
        observed = tenant.requests_in_minute + 1
        named = Limit(name=REQUESTS_PER_MINUTE, limit=per_minute, observed=observed)
        return "TENANT_RATE_LIMIT", (named,)
    per_minute = tenant.tokens_per_minute
    if per_minute is not None and tenant.tokens_in_minute + tokens > per_minute:
        return "TENANT_RATE_LIMIT", (_tokens_per_minute(tenant, tokens),)
    return None


def over_tenant_budget(tenant: TenantState, cheapest_pico: int) -> tuple[Limit, ...]:
    """Return each of the tenant's budgets that spent, reserved and the cheapest estimate are over.

    `tenant.budget_pico` is the month's, `tenant.day_budget_pico` the day's; both may be.
    """
    new_pico = tenant.pending_pico + cheapest_pico
    return (
        *over((("tenant.budget_pico", tenant.budget_pico),), tenant.spent_pico + new_pico),
        *over(((DAY_BUDGET, tenant.day_budget_pico),), tenant.spent_today_pico + new_pico),
    )


def tenants_wait_ms(tenant: TenantState, code: str, named: tuple[Limit, ...]) -> int:
    """Return after how long the limits that refused a tenant may let it pass, in ms.

    A slot is free whenever a request ends; of the minute, when enough has left it; of a budget,
    when its day or month is over, the later one where both are used up.
    """
    if code == "TENANT_CONCURRENCY_LIMIT":
        return tenant.retry_after_ms
    waits_ms = {
        REQUESTS_PER_MINUTE: tenant.requests_free_ms,
        TOKENS_PER_MINUTE: tenant.tokens_free_ms,
        DAY_BUDGET: tenant.day_ends_ms,
    }
    return max(1, *[waits_ms.get(limit.name, tenant.month_ends_ms) for limit in named])


def of_emptied(
    code: str,
    scale: Scale,
    bounds: Bounds,
    caps: Caps,
    weighings: Sequence[Weighing],
    fell: Mapping[str, str],
    routes: Sequence[Route],
) -> tuple[Limit, ...]:
    """Return the limits of a rejection whose code came from a filter that emptied the set.

    Where several candidates fell to one limit, the one that came closest is named: it is what a
    changed request has to meet.
    """
    request, tenant = scale.request, scale.context.tenant
    by_filter: dict[str, list[Weighing]] = {}
    for weighing in weighings:
        by_filter.setdefault(fell[weighing.route.route_id], []).append(weighing)
    if code == "CAPABILITY_UNAVAILABLE":
        return tuple(
            Limit(
                name=f"routes_with.{name}",
                limit=1,
                observed=sum(has_all(route.capabilities, (name,)) for route in routes),
            )
            for name in sorted(set(request.required_capabilities))
        )
    if code == "POLICY_DENIED":
        return (Limit(name="routes_in_allowed_regions", limit=1, observed=0),)
    if code == "QUALITY_FLOOR_UNMET":
        best = max(w.route.quality_milli for w in by_filter["quality_floor"])
        return (Limit(name="quality_milli", limit=bounds.quality_floor, observed=best),)
    if code == "NO_CAPABLE_ROUTE":
        return (*_fallen(fell), *_closest_token_limits(by_filter.get("token_limits", ()), bounds))
    if code == "TOKEN_BUDGET_EXCEEDED":
        smallest = min(w.need_kv for w in by_filter["token_budget"]) - bounds.output
        return caps.over(smallest, bounds.output)
    if code == "TENANT_RATE_LIMIT":
        tokens = min(w.need_kv for w in by_filter["tenant_rate"])
        return (_tokens_per_minute(tenant, tokens),)
    if code == "CAPACITY_SHED":
        return _closest_capacity(by_filter, bounds)
    if code == "DEADLINE_INSUFFICIENT":
        soonest = min(w.e2e_us for w in by_filter["deadline"])
        return (Limit(name="deadline_us", limit=bounds.deadline_us, observed=soonest),)
    if code == "UNPRICED_MODEL":
        return (Limit(name="priced_routes", limit=1, observed=0),)
    if code == "TENANT_BUDGET_EXHAUSTED":
        return over_tenant_budget(tenant, _cheapest(by_filter["tenant_budget"]))
    cheapest = _cheapest(by_filter["cost"])
    return over((("request.max_cost_pico", bounds.max_cost_pico),), cheapest)


def _tokens_per_minute(tenant: TenantState, tokens: int) -> Limit:
    return Limit(
        name=TOKENS_PER_MINUTE,
        limit=tenant.tokens_per_minute or 0,
        observed=tenant.tokens_in_minute + tokens,
    )


def _cheapest(weighings: Iterable[Weighing]) -> int:
    return min(w.cost_pico or 0 for w in weighings)


def _fallen(fell: Mapping[str, str]) -> tuple[Limit, ...]:
    """How many candidates fell at which filter; without any candidate, that there was none."""
    if not fell:
        return (Limit(name="candidates", limit=1, observed=0),)
    counted = sorted(Counter(fell.values()).items())
    return tuple(Limit(name=f"fell_at.{name}", limit=0, observed=n) for name, n in counted)


def _closest_token_limits(weighings: Iterable[Weighing], bounds: Bounds) -> tuple[Limit, ...]:
    """The token limits of the roomiest route among those that fell to them."""
    roomiest = max(weighings, key=_roominess, default=None)
    if roomiest is None:
        return ()
    route, total = roomiest.route, roomiest.need_kv
    return (
        *over((("route.max_input_tokens", route.max_input_tokens),), total - bounds.output),
        *over((("route.max_output_tokens", route.max_output_tokens),), bounds.output),
        *over((("route.max_total_tokens", route.max_total_tokens),), total),
    )


def _roominess(weighing: Weighing) -> tuple[int, int, str]:
    route = weighing.route
    return route.max_total_tokens, route.max_output_tokens, route.route_id


def _closest_capacity(by_filter: Mapping[str, list[Weighing]], bounds: Bounds) -> tuple[Limit, ...]:
    """One limit for each kind of capacity that somebody fell to."""
    limits = []
    if stale := by_filter.get("snapshot_age"):
        least = min(w.probes for w in stale)
        limits.append(Limit(name="probes", limit=bounds.probe_allowance, observed=least))
    if full := by_filter.get("kv_capacity"):
        best = max(full, key=lambda w: (w.room_kv - w.need_kv, w.route.route_id))
        limits.append(Limit(name="free_kv_tokens", limit=best.room_kv, observed=best.need_kv))
    if long := by_filter.get("queue_length"):
        best = min(long, key=lambda w: (w.waiting - w.queue_limit, w.route.route_id))
        limits.append(Limit(name="waiting_requests", limit=best.queue_limit, observed=best.waiting))
    if old := by_filter.get("queue_age"):
        best = min(
            old, key=lambda w: (w.oldest_wait_us - w.route.queue_age_limit_us, w.route.route_id)
        )
        limits.append(
            Limit(
                name="oldest_wait_us",
                limit=best.route.queue_age_limit_us,
                observed=best.oldest_wait_us,
            )
        )
    return tuple(limits)
