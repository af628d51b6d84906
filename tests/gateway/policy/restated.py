"""Admission said again, route by route and as plainly as possible: what `decide` is checked with.

Nothing here is taken from `gateway.policy` but its values and the price of a usage.
"""

import math

from gateway.policy.values import Route, RouteState
from ledger.rate_lookup import Priced, price
from ledger.rates import Usage, batch_priced
from tests.gateway.policy.corpus import Case


def logical_model(case: Case):
    return next(each for each in case.policy.models if each.name == case.request.logical_model)


def count(case: Case, route: Route) -> int | None:
    for each in case.request.input_tokens:
        if each.tokenizer_revision == route.tokenizer_revision:
            return each.tokens
    return None


def state_of(case: Case, route: Route) -> RouteState | None:
    for each in case.context.route_states:
        if each.route_id == route.route_id:
            return each
    return None


def fresh(case: Case, route: Route) -> bool:
    state = state_of(case, route)
    if state is None or state.snapshot is None:
        return False
    age_us = case.context.now_us - state.snapshot.observed_at_us
    return age_us <= case.policy.snapshot_max_age_us


def cost_pico(case: Case, route: Route) -> int | None:
    usage = Usage(
        input_tokens=count(case, route) or 0,
        output_tokens=case.request.budget.max_output_tokens,
    )
    keys = (route.route_id, route.identity_id)
    batch = batch_priced(case.request.priority)
    priced = price(case.context.rates, keys, usage, batch=batch, at_us=case.context.now_us)
    return priced.cost.total_pico if isinstance(priced, Priced) else None


def e2e_us(case: Case, route: Route) -> int:
    prediction, state = route.prediction, state_of(case, route)
    waiting = 0
    if state is not None and state.snapshot is not None and fresh(case, route):
        waiting = state.snapshot.waiting_input_tokens
    pace = prediction.prefill_us_per_ktok
    tokens = count(case, route) or 0
    queue = prediction.queue_us + math.ceil(waiting * pace / 1000)
    prefill = prediction.prefill_base_us + math.ceil(tokens * pace / 1000)
    ttft = queue + prefill + case.policy.first_decode_us + case.policy.first_byte_network_us
    return ttft + (case.request.budget.max_output_tokens - 1) * prediction.inter_token_us


def over(limit: int | None, used: int) -> bool:
    return limit is not None and used > limit


def broken_limits(case: Case, route: Route) -> set[str]:
    """Return the name of every hard limit that running on this route would break."""
    request, tenant, policy = case.request, case.context.tenant, case.policy
    budget, model = request.budget, logical_model(case)
    broken = set()
    tokens, output = count(case, route), budget.max_output_tokens
    if tokens is None:
        return {"uncounted"}
    need = tokens + output
    # One count that is not positive spoils the request, whichever route it was made for.
    smallest = min(each.tokens for each in request.input_tokens)
    if smallest < 1 or output < 1 or budget.deadline_us < 1:
        broken.add("not positive")
    if budget.max_input_tokens < tokens or budget.max_total_tokens < need:
        broken.add("request cap")
    if model.max_input_tokens < tokens or model.max_output_tokens < output:
        broken.add("model cap")
    if model.max_total_tokens < need:
        broken.add("model cap")
    for cap, used in (
        (tenant.max_input_tokens, tokens),
        (tenant.max_output_tokens, output),
        (tenant.max_total_tokens, need),
    ):
        if over(cap, used):
            broken.add("tenant cap")
    if route.max_input_tokens < tokens or route.max_output_tokens < output:
        broken.add("route cap")
    if route.max_total_tokens < need:
        broken.add("route cap")
    if tenant.in_flight + 1 > tenant.in_flight_limit:
        broken.add("in flight")
    if over(tenant.requests_per_minute, tenant.requests_in_minute + 1):
        broken.add("requests per minute")
    if over(tenant.tokens_per_minute, tenant.tokens_in_minute + need):
        broken.add("tokens per minute")
    if not set(request.required_capabilities) <= set(route.capabilities):
        broken.add("capability")
    if request.allowed_regions and route.region not in request.allowed_regions:
        broken.add("region")
    if tenant.allowed_regions and route.region not in tenant.allowed_regions:
        broken.add("region")
    if route.quality_milli < request.quality_floor_milli:
        broken.add("quality")
    state = state_of(case, route)
    if state is None or not state.healthy or not route.enabled:
        return broken | {"health"}
    if not fresh(case, route):
        if state.probes_in_flight + 1 > policy.probe_allowance:
            broken.add("probe")
    else:
        broken |= broken_capacity(case, route, state, need)
    if e2e_us(case, route) > budget.deadline_us:
        broken.add("deadline")
    cost = cost_pico(case, route)
    budgets = (budget.max_cost_pico, tenant.budget_pico, tenant.day_budget_pico)
    if cost is None and any(limit is not None for limit in budgets):
        broken.add("unpriced")
    if cost is not None and over(budget.max_cost_pico, cost):
        broken.add("cost")
    if cost is not None and over(
        tenant.budget_pico, tenant.spent_pico + tenant.pending_pico + cost
    ):
        broken.add("tenant budget")
    today = tenant.spent_today_pico + tenant.pending_pico
    if cost is not None and over(tenant.day_budget_pico, today + cost):
        broken.add("tenant day budget")
    return broken


def broken_capacity(case: Case, route: Route, state: RouteState, need: int) -> set[str]:
    snapshot, broken = state.snapshot, set()
    assert snapshot is not None
    shares = {"interactive": (1_000, 1_000), "normal": (800, 850), "batch": (500, 700)}
    permille, kv = shares[case.request.priority]
    for share in case.policy.queue_shares:
        if share.priority == case.request.priority:
            permille, kv = share.queue_permille, share.kv_permille
    whole = snapshot.free_kv_tokens + snapshot.reserved_kv_tokens
    withheld = whole * (1_000 - kv) // 1_000
    if snapshot.free_kv_tokens - state.reserved_since_kv_tokens - withheld < need:
        broken.add("kv")
    if snapshot.waiting_requests + state.accepted_since + 1 > route.queue_limit * permille // 1_000:
        broken.add("queue length")
    if snapshot.oldest_wait_us > route.queue_age_limit_us:
        broken.add("queue age")
    return broken
