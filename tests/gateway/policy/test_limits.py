"""ADM-3: which limits a rejection names, each with what was observed, and nothing beside them."""

import pytest

from gateway.policy.admission import decide
from gateway.policy.limits import (
    not_positive,
    over_tenant,
    over_tenant_budget,
    tenants_wait_ms,
)
from gateway.policy.values import TokenCount
from tests.policy_factories import (
    PICO,
    context,
    course_policy,
    model,
    policy,
    prediction,
    rate,
    rates,
    request,
    route,
    state,
    tenant,
)

AT_LEAST_ONE = (
    "max_input_tokens",
    "max_output_tokens",
    "max_total_tokens",
    "deadline_us",
)


def shown(limits):
    return [(each.name, each.limit, each.observed) for each in limits]


def refused(asked, about=None, rules=None):
    rules = rules or course_policy()
    decision = decide(asked, rules.routes, about or context(), rules)
    return decision.reason_code, shown(decision.limits)


def counts(**tokens):
    return tuple(
        TokenCount(tokenizer_revision=name.replace("_", "-"), tokens=count)
        for name, count in tokens.items()
    )


def test_one_of_each_is_positive():
    assert not not_positive(request(tokens=1, **dict.fromkeys(AT_LEAST_ONE, 1)))


@pytest.mark.parametrize("name", AT_LEAST_ONE)
def test_what_is_not_positive_is_named_and_what_is_one_is_not(name):
    asked = request(tokens=1, **dict.fromkeys(AT_LEAST_ONE, 1) | {name: 0})
    assert shown(not_positive(asked)) == [(name, 1, 0)]


def test_of_several_counts_the_smallest_has_to_be_positive():
    asked = request(input_tokens=counts(tok_1=5, tok_2=0), max_output_tokens=-3)
    assert shown(not_positive(asked)) == [("input_tokens", 1, 0), ("max_output_tokens", 1, -3)]
    assert not not_positive(request(input_tokens=counts(tok_1=5, tok_2=1)))


def test_the_tokens_of_a_minute_are_those_that_came_and_those_of_the_request():
    minute = tenant(tokens_per_minute=10, tokens_in_minute=4)
    assert over_tenant(minute, 6) is None
    code, named = over_tenant(minute, 7)
    assert (code, shown(named)) == ("TENANT_RATE_LIMIT", [("tenant.tokens_per_minute", 10, 11)])


@pytest.mark.parametrize(
    ("cheapest_pico", "named"),
    [
        (10, []),
        (11, [("tenant.day_budget_pico", 17, 18)]),
        (20, [("tenant.day_budget_pico", 17, 27)]),
        (21, [("tenant.budget_pico", 127, 128), ("tenant.day_budget_pico", 17, 28)]),
    ],
)
def test_of_month_and_day_each_budget_is_named_that_a_request_is_over(cheapest_pico, named):
    spent = tenant(
        budget_pico=127, spent_pico=102, day_budget_pico=17, spent_today_pico=2, pending_pico=5
    )
    assert shown(over_tenant_budget(spent, cheapest_pico)) == named


def test_a_refused_tenant_waits_for_the_limits_that_refused_it_and_a_millisecond_at_least():
    waits = {
        "retry_after_ms": 2,
        "requests_free_ms": 30,
        "tokens_free_ms": 40,
        "day_ends_ms": 500,
        "month_ends_ms": 6_000,
    }

    def waited(code, about, tokens=1, cheapest_pico=1, **changed):
        waiting = tenant(**waits | about | changed)
        used_up = over_tenant(waiting, tokens)
        named = used_up[1] if used_up else over_tenant_budget(waiting, cheapest_pico)
        return tenants_wait_ms(waiting, code, named)

    requests = {"requests_per_minute": 1, "requests_in_minute": 1}
    day, month = {"day_budget_pico": 0}, {"budget_pico": 0}
    assert waited("TENANT_CONCURRENCY_LIMIT", {"in_flight": 4}) == 2
    assert waited("TENANT_RATE_LIMIT", requests) == 30
    assert waited("TENANT_RATE_LIMIT", {"tokens_per_minute": 0}) == 40
    assert waited("TENANT_BUDGET_EXHAUSTED", day) == 500
    assert waited("TENANT_BUDGET_EXHAUSTED", month) == 6_000
    assert waited("TENANT_BUDGET_EXHAUSTED", day | month) == 6_000
    assert waited("TENANT_BUDGET_EXHAUSTED", day | month, day_ends_ms=7_000) == 7_000
    assert waited("TENANT_RATE_LIMIT", requests, requests_free_ms=0) == 1


def test_capabilities_that_are_missing_are_named_once_each_and_in_their_order():
    code, named = refused(request(required_capabilities=("vision", "tools", "audio", "vision")))
    assert (code, named) == (
        "CAPABILITY_UNAVAILABLE",
        [("routes_with.audio", 1, 0), ("routes_with.tools", 1, 2), ("routes_with.vision", 1, 0)],
    )


def test_what_no_route_has_is_named_as_one_that_is_missing():
    assert refused(request(allowed_regions=("us",))) == (
        "POLICY_DENIED",
        [("routes_in_allowed_regions", 1, 0)],
    )
    assert refused(request(), context(rates=rates())) == (
        "UNPRICED_MODEL",
        [("priced_routes", 1, 0)],
    )


def test_of_candidates_whose_own_counts_are_too_much_the_one_that_came_closest_is_named():
    """BUD-3: step 2 let the request pass for the count of a candidate that another filter took."""
    rules = policy(
        route("a", capabilities=()),
        route("b", tokenizer_revision="tok-2"),
        route("c", tokenizer_revision="tok-3"),
    )
    about = context(
        state("a"), state("b"), state("c"), rates=rates(*(rate(name) for name in "abc"))
    )
    asked = {"input_tokens": counts(tok_1=900, tok_2=1_001, tok_3=1_005), "max_output_tokens": 200}
    assert refused(request(max_input_tokens=1_000, **asked), about, rules) == (
        "TOKEN_BUDGET_EXCEEDED",
        [("request.max_input_tokens", 1_000, 1_001)],
    )
    assert refused(request(max_total_tokens=1_200, **asked), about, rules) == (
        "TOKEN_BUDGET_EXCEEDED",
        [("request.max_total_tokens", 1_200, 1_201)],
    )
    minute = tenant(tokens_per_minute=9_000, tokens_in_minute=7_800)
    assert refused(request(**asked), context(*about.route_states, tenant=minute), rules) == (
        "TENANT_RATE_LIMIT",
        [("tenant.tokens_per_minute", 9_000, 9_001)],
    )


# Where several fall to one limit, the one that came closest is named, whatever it is called.

BOTH_WAYS = pytest.mark.parametrize(("near", "far"), [("a", "b"), ("b", "a")])


def refused_of(near, far, *, asked=None):
    """The rejection by two routes, each given with its state, in the order of their names."""
    rules = policy(*sorted((near[0], far[0]), key=_route_id))
    states = near[1], far[1]
    about = context(*states, rates=rates(rate("a"), rate("b")))
    return refused(asked or request(max_cost_pico=PICO), about, rules)


@BOTH_WAYS
def test_of_candidates_without_room_the_closest_is_named(near, far):
    def of(near_changed, far_changed, **of_route):
        return refused_of(
            (route(near, **of_route), state(near, **near_changed)),
            (route(far, **of_route), state(far, **far_changed)),
        )

    assert of({"free_kv_tokens": 1_100}, {"free_kv_tokens": 900}) == (
        "CAPACITY_SHED",
        [("free_kv_tokens", 1_100, 1_200)],
    )
    assert of({"waiting_requests": 10}, {"waiting_requests": 12}, queue_limit=10) == (
        "CAPACITY_SHED",
        [("waiting_requests", 10, 10)],
    )
    assert of({"oldest_wait_us": 1_001}, {"oldest_wait_us": 1_002}, queue_age_limit_us=1_000) == (
        "CAPACITY_SHED",
        [("oldest_wait_us", 1_000, 1_001)],
    )
    unseen = {"snapshot": None}
    assert of({**unseen, "probes_in_flight": 1}, {**unseen, "probes_in_flight": 2}) == (
        "CAPACITY_SHED",
        [("probes", 1, 1)],
    )


@BOTH_WAYS
def test_closest_is_the_least_over_its_own_limit_and_not_the_least_or_the_roomiest(near, far):
    assert refused_of(
        (route(near, queue_limit=20), state(near, waiting_requests=21)),
        (route(far, queue_limit=10), state(far, waiting_requests=12)),
    ) == ("CAPACITY_SHED", [("waiting_requests", 20, 21)])
    assert refused_of(
        (route(near, queue_age_limit_us=2_000), state(near, oldest_wait_us=2_001)),
        (route(far, queue_age_limit_us=1_000), state(far, oldest_wait_us=1_002)),
    ) == ("CAPACITY_SHED", [("oldest_wait_us", 2_000, 2_001)])
    assert refused_of(
        (route(near), state(near, free_kv_tokens=1_100)),
        (route(far, tokenizer_revision="tok-2"), state(far, free_kv_tokens=1_150)),
        asked=request(input_tokens=counts(tok_1=1_000, tok_2=1_200), max_cost_pico=PICO),
    ) == ("CAPACITY_SHED", [("free_kv_tokens", 1_100, 1_200)])


@BOTH_WAYS
def test_of_candidates_too_small_for_the_tokens_the_roomiest_in_all_and_then_in_output_is_named(
    near, far
):
    def of(near_limits, far_limits, **asked):
        names = ("max_total_tokens", "max_output_tokens")
        return refused_of(
            (route(near, **dict(zip(names, near_limits, strict=True))), state(near)),
            (route(far, **dict(zip(names, far_limits, strict=True))), state(far)),
            asked=request(max_cost_pico=PICO, **asked),
        )

    fell = ("fell_at.token_limits", 0, 2)
    assert of((1_199, 1_000), (1_198, 1_024)) == (
        "NO_CAPABLE_ROUTE",
        [fell, ("route.max_total_tokens", 1_199, 1_200)],
    )
    assert of((8_192, 199), (8_192, 198)) == (
        "NO_CAPABLE_ROUTE",
        [fell, ("route.max_output_tokens", 199, 200)],
    )
    assert of((8_192, 199), (8_192, 198), tokens=8_193, max_total_tokens=65_536) == (
        "NO_CAPABLE_ROUTE",
        [
            fell,
            ("route.max_input_tokens", 8_192, 8_193),
            ("route.max_output_tokens", 199, 200),
            ("route.max_total_tokens", 8_192, 8_393),
        ],
    )


@BOTH_WAYS
def test_of_candidates_too_slow_or_too_dear_the_soonest_and_the_cheapest_is_named(near, far):
    def of(asked):
        slower = prediction(prefill_base_us=540_000)
        rules = policy(*sorted((route(near), route(far, prediction=slower)), key=_route_id))
        priced = rates(rate(near, 2), rate(far, 3))
        return refused(asked, context(state(near), state(far), rates=priced), rules)

    assert of(request(deadline_us=5_215_999, max_cost_pico=PICO)) == (
        "DEADLINE_INSUFFICIENT",
        [("deadline_us", 5_215_999, 5_216_000)],
    )
    assert of(request(max_cost_pico=3_599_999_999)) == (
        "COST_BUDGET_EXCEEDED",
        [("request.max_cost_pico", 3_599_999_999, 3_600_000_000)],
    )


def test_where_nobody_is_a_candidate_that_is_named_and_else_each_filter_in_its_order():
    assert refused(request(), rules=policy(route(), models=(model(),))) == (
        "NO_CAPABLE_ROUTE",
        [("candidates", 1, 0)],
    )
    rules = policy(route("a", max_output_tokens=1), route("b"), route("c", tokenizer_revision="?"))
    about = context(state("a"), state("b", healthy=False), state("c"))
    assert refused(request(), about, rules)[1] == [
        ("fell_at.health", 0, 1),
        ("fell_at.token_limits", 0, 1),
        ("fell_at.tokenizer", 0, 1),
        ("route.max_output_tokens", 1, 200),
    ]


def _route_id(one):
    return one.route_id
