"""One test or more for each reason code of `decide`, in the order of ADM-1, and for ADM-4, 6, 8."""

from typing import Any

import pytest

from gateway.policy.admission import decide
from gateway.policy.reasons import REASONS
from gateway.policy.values import PriorityShare, TokenCount
from ledger.rates import Tier
from tests.policy_factories import (
    NOW_US,
    PICO,
    context,
    course_policy,
    long_route,
    model,
    policy,
    prediction,
    rate,
    rates,
    replaced,
    request,
    route,
    state,
    tenant,
)

COURSE = course_policy()


def decided(asked, about=None, rules=COURSE):
    return decide(asked, rules.routes, about or context(), rules)


def limits(decision) -> dict[str, tuple[int, int]]:
    return {each.name: (each.limit, each.observed) for each in decision.limits}


def fell(decision) -> dict[str, str | None]:
    return {each.route_id: each.fell_at for each in decision.candidates}


# Before step 2


def test_an_unknown_logical_model_is_not_found():
    decision = decided(request(logical_model="nobody"))
    assert (decision.reason_code, decision.http_status) == ("MODEL_NOT_FOUND", 404)


# Step 2: tokens


@pytest.mark.parametrize(
    ("changed", "name", "observed"),
    [
        ({"tokens": 0}, "input_tokens", 0),
        ({"tokens": -5}, "input_tokens", -5),
        ({"input_tokens": ()}, "input_tokens", 0),
        ({"max_output_tokens": 0}, "max_output_tokens", 0),
        ({"max_output_tokens": -1}, "max_output_tokens", -1),
        ({"max_total_tokens": 0}, "max_total_tokens", 0),
        ({"max_input_tokens": 0}, "max_input_tokens", 0),
        ({"deadline_us": 0}, "deadline_us", 0),
    ],
)
def test_what_is_not_positive_is_an_invalid_budget(changed, name, observed):
    decision = decided(request(**changed))
    assert (decision.reason_code, decision.http_status) == ("INVALID_TOKEN_BUDGET", 400)
    assert limits(decision)[name] == (1, observed)
    assert decision.candidates == ()


def test_the_sources_example_of_9340_tokens_over_8192_is_exceeded_and_not_retryable():
    decision = decided(request(tokens=9_340, max_input_tokens=8_192))
    assert (decision.reason_code, decision.http_status) == ("TOKEN_BUDGET_EXCEEDED", 400)
    assert limits(decision) == {"request.max_input_tokens": (8_192, 9_340)}
    assert decision.retry_after_ms is None
    assert not REASONS["TOKEN_BUDGET_EXCEEDED"].retryable


def test_the_caps_of_request_tenant_and_model_each_hold():
    small = tenant(max_input_tokens=900, max_output_tokens=100, max_total_tokens=1_000)
    decision = decided(request(max_total_tokens=1_199), context(tenant=small))
    assert limits(decision) == {
        "tenant.max_input_tokens": (900, 1_000),
        "tenant.max_output_tokens": (100, 200),
        "request.max_total_tokens": (1_199, 1_200),
        "tenant.max_total_tokens": (1_000, 1_200),
    }
    rules = replaced(COURSE, models=(model("fast-v2", max_output_tokens=10**6),))
    assert decided(request(max_output_tokens=10**12), rules=rules).reason_code == (
        "TOKEN_BUDGET_EXCEEDED"
    )


def test_each_candidate_is_checked_with_its_own_tokenizers_count():
    """BUD-3: over the cap by one count and within it by the other, only the other is left."""
    counts = (
        TokenCount(tokenizer_revision="tok-1", tokens=1_001),
        TokenCount(tokenizer_revision="tok-2", tokens=990),
    )
    rules = policy(route("a"), route("b", tokenizer_revision="tok-2"))
    asked = request(input_tokens=counts, max_input_tokens=1_000, max_cost_pico=None)
    decision = decided(asked, context(state("a"), state("b")), rules)
    assert fell(decision) == {"a": "token_budget", "b": None}
    assert (decision.route_id, decision.input_tokens) == ("b", 990)
    assert [each.input_tokens for each in decision.candidates] == [1_001, 990]


def test_a_candidate_whose_tokenizer_did_not_count_falls_and_is_never_guessed():
    rules = policy(route(tokenizer_revision="tok-9"))
    decision = decided(request(), rules=rules)
    assert (decision.reason_code, fell(decision)) == ("NO_CAPABLE_ROUTE", {"fast-v2": "tokenizer"})
    assert decision.candidates[0].e2e_us is None


# Step 3: the tenant


def test_a_tenant_at_its_in_flight_limit_is_refused_with_retry_after():
    decision = decided(request(), context(tenant=tenant(in_flight=4, retry_after_ms=250)))
    assert (decision.reason_code, decision.http_status) == ("TENANT_CONCURRENCY_LIMIT", 429)
    assert limits(decision) == {"tenant.in_flight": (4, 4)}
    assert decision.retry_after_ms == 250
    assert decided(request(), context(tenant=tenant(in_flight=3))).status == "accepted"


def test_requests_and_tokens_per_minute_are_bounded():
    full = tenant(requests_in_minute=60, requests_per_minute=60, requests_free_ms=9_000)
    decision = decided(request(), context(tenant=full))
    assert (decision.reason_code, decision.http_status) == ("TENANT_RATE_LIMIT", 429)
    assert (limits(decision), decision.retry_after_ms) == (
        {"tenant.requests_per_minute": (60, 61)},
        9_000,
    )
    tokens = tenant(tokens_in_minute=8_801, tokens_per_minute=10_000, tokens_free_ms=7_000)
    decision = decided(request(), context(tenant=tokens))
    assert (limits(decision), decision.retry_after_ms) == (
        {"tenant.tokens_per_minute": (10_000, 10_001)},
        7_000,
    )
    fits = replaced(tokens, tokens_in_minute=8_800)
    assert decided(request(), context(tenant=fits)).status == "accepted"


def test_spent_reserved_and_the_estimate_together_stay_within_the_tenants_budget():
    estimate = 3_600_000_000  # fast-v2, the cheaper one: 0.0036 units
    exact = tenant(spent_pico=5, pending_pico=7, budget_pico=12 + estimate)
    assert decided(request(), context(tenant=exact)).route_id == "fast-v2"
    short = replaced(exact, budget_pico=11 + estimate)
    decision = decided(request(), context(tenant=short))
    assert (decision.reason_code, decision.http_status) == ("TENANT_BUDGET_EXHAUSTED", 402)
    assert limits(decision) == {"tenant.budget_pico": (11 + estimate, 12 + estimate)}
    assert decision.retry_after_ms == short.month_ends_ms


def test_a_candidate_over_the_tenants_budget_falls_alone_where_the_cheaper_one_cannot_run():
    rules = course_policy()
    about = context(
        state("fast-v2", healthy=False),
        state("long-context-v4", free_kv_tokens=80_000),
        tenant=tenant(budget_pico=5 * PICO // 1_000),
    )
    decision = decided(request(deadline_us=10_000_000), about, rules)
    assert fell(decision) == {"fast-v2": "health", "long-context-v4": "tenant_budget"}
    assert decision.reason_code == "TENANT_BUDGET_EXHAUSTED"


# Step 4: candidates, permanent reasons before passing ones


def test_a_capability_that_no_route_has_is_unavailable_whatever_the_health():
    about = context(state("fast-v2", healthy=False), state("long-context-v4", healthy=False))
    decision = decided(request(required_capabilities=("tools", "vision")), about)
    assert (decision.reason_code, decision.http_status) == ("CAPABILITY_UNAVAILABLE", 422)
    assert limits(decision) == {"routes_with.tools": (1, 2), "routes_with.vision": (1, 0)}


def test_a_capability_that_only_a_route_of_another_model_has_leaves_no_capable_route():
    rules = course_policy(models=(model("fast-v2"), model("long-context-v4", name="large")))
    decision = decided(request(required_capabilities=("long_context",)), rules=rules)
    assert (decision.reason_code, decision.http_status) == ("NO_CAPABLE_ROUTE", 422)
    assert limits(decision) == {"fell_at.capability": (0, 1)}
    assert "model" in decision.conditional_on


def test_regions_of_request_and_tenant_that_leave_no_route_deny():
    for asked, about in (
        (request(allowed_regions=("us",)), context()),
        (request(), context(tenant=tenant(allowed_regions=("us",)))),
        (request(allowed_regions=("eu",)), context(tenant=tenant(allowed_regions=("us",)))),
    ):
        decision = decided(asked, about)
        assert (decision.reason_code, decision.http_status) == ("POLICY_DENIED", 403)
        assert decision.conditional_on == ()


def test_a_denied_region_comes_before_quality_and_health():
    about = context(state("fast-v2", healthy=False), state("long-context-v4", healthy=False))
    asked = request(allowed_regions=("us",), quality_floor_milli=1_001)
    assert decided(asked, about).reason_code == "POLICY_DENIED"


def test_a_quality_floor_that_no_allowed_route_reaches_is_unmet_and_names_the_best():
    rules = policy(route(quality_milli=850), long_route(quality_milli=890))
    decision = decided(request(quality_floor_milli=900), rules=rules)
    assert (decision.reason_code, decision.http_status) == ("QUALITY_FLOOR_UNMET", 422)
    assert limits(decision) == {"quality_milli": (900, 890)}
    assert decided(request(quality_floor_milli=850), rules=rules).status == "accepted"


def test_health_alone_gives_503_and_a_token_limit_beside_it_422():
    down = context(state("fast-v2", healthy=False), state("long-context-v4", healthy=False))
    decision = decided(request(), down)
    assert (decision.reason_code, decision.http_status) == ("NO_CAPABLE_ROUTE", 503)
    assert limits(decision) == {"fell_at.health": (0, 2)}

    asked = request(tokens=12_000, max_cost_pico=None, deadline_us=60_000_000)
    decision = decided(asked, down)
    assert (decision.reason_code, decision.http_status) == ("NO_CAPABLE_ROUTE", 422)
    assert limits(decision) == {
        "fell_at.health": (0, 1),
        "fell_at.token_limits": (0, 1),
        "route.max_input_tokens": (8_192, 12_000),
        "route.max_total_tokens": (8_192, 12_200),
    }


def test_a_switched_off_route_counts_as_down():
    decision = decided(request(), rules=policy(route(enabled=False)))
    assert (decision.reason_code, decision.http_status) == ("NO_CAPABLE_ROUTE", 503)
    assert fell(decision) == {"fast-v2": "disabled"}


def test_a_route_that_the_context_does_not_know_is_not_vouched_for():
    decision = decided(request(), context(state("long-context-v4")), policy(route()))
    assert fell(decision) == {"fast-v2": "health"}


# Step 5: capacity


def test_kv_room_is_what_is_free_less_what_was_reserved_since():
    rules = policy(route())
    need = 1_200
    for reserved, outcome in ((23_999 - need + 1, "accepted"), (24_000 - need + 1, "rejected")):
        decision = decided(request(), context(state(reserved_since_kv_tokens=reserved)), rules)
        assert decision.status == outcome
    assert (decision.reason_code, decision.http_status) == ("CAPACITY_SHED", 503)
    assert limits(decision) == {"free_kv_tokens": (1_199, 1_200)}
    assert decision.retry_after_ms == 1_000


def test_a_full_and_a_too_old_queue_shed():
    rules = policy(route(queue_limit=10, queue_age_limit_us=1_000_000))
    full = decided(request(), context(state(waiting_requests=7, accepted_since=3)), rules)
    assert (full.reason_code, limits(full)) == ("CAPACITY_SHED", {"waiting_requests": (10, 10)})
    old = decided(request(), context(state(oldest_wait_us=1_000_001)), rules)
    assert (old.reason_code, limits(old)) == (
        "CAPACITY_SHED",
        {"oldest_wait_us": (1_000_000, 1_000_001)},
    )
    edge = state(waiting_requests=7, accepted_since=2, oldest_wait_us=1_000_000)
    assert decided(request(), context(edge), rules).status == "accepted"


def test_batch_is_shed_first_then_normal_and_interactive_last():
    """ADM-8: without shares of its own a policy sheds batch at half the queue, normal at 80 %."""
    rules = policy(route(queue_limit=10))
    shed_at = {}
    for priority in ("interactive", "normal", "batch"):
        for waiting in range(12):
            about = context(state(waiting_requests=waiting))
            if decided(request(priority=priority), about, rules).reason_code == "CAPACITY_SHED":
                shed_at[priority] = waiting
                break
    assert shed_at == {"batch": 5, "normal": 8, "interactive": 10}


def test_a_policy_may_keep_part_of_queue_and_kv_from_a_priority():
    share = PriorityShare(priority="batch", queue_permille=1_000, kv_permille=400)
    rules = policy(route(), queue_shares=(share,))
    # 24,000 tokens in all, of which batch leaves 14,400 to others: its room is free - 14,400.
    for free, outcome in ((15_600, "accepted"), (15_599, "rejected")):
        about = context(state(free_kv_tokens=free, reserved_kv_tokens=24_000 - free))
        assert decided(request(priority="batch"), about, rules).status == outcome
        assert decided(request(), about, rules).status == "accepted"


def test_a_stale_snapshot_admits_the_probe_allowance_and_no_more():
    """ADM-6: neither its KV nor its queue is believed, whatever they say."""
    rules = policy(route(), probe_allowance=2)
    at_limit = NOW_US - rules.snapshot_max_age_us
    full: dict[str, Any] = {"free_kv_tokens": 0, "waiting_requests": 999}
    fresh = decided(request(), context(state(observed_at_us=at_limit, **full)), rules)
    assert fresh.reason_code == "CAPACITY_SHED"
    for snapshotless in (state(observed_at_us=at_limit - 1, **full), state(snapshot=None)):
        for probes, outcome in ((0, "accepted"), (1, "accepted"), (2, "rejected")):
            about = context(replaced(snapshotless, probes_in_flight=probes))
            decision = decided(request(), about, rules)
            assert (decision.status, decision.probe) == (outcome, outcome == "accepted")
        assert limits(decision) == {"probes": (2, 2)}
        assert decision.reason_code == "CAPACITY_SHED"
    assert (
        "PROBE_WITHOUT_FRESH_SNAPSHOT"
        in decided(request(), context(state(snapshot=None)), rules).reasons
    )


# Steps 6 and 7: time and money


def test_the_estimate_adds_what_waits_and_the_requests_own_prefill_rounded_up():
    """ADM-4: queue 120,000 + ceil(1,001 x 333 / 1,000), prefill 260,000 + ceil(7 x 333 / 1,000)."""
    rules = policy(route(prediction=prediction(prefill_us_per_ktok=333)))
    about = context(state(waiting_input_tokens=1_001))
    decision = decided(request(tokens=7), about, rules)
    queue_us, prefill_us = 120_000 + 334, 260_000 + 3
    assert decision.candidates[0].queue_us == queue_us
    assert decision.candidates[0].prefill_us == prefill_us
    assert decision.ttft_us == queue_us + prefill_us + 40_000 + 20_000
    assert decision.e2e_us == queue_us + prefill_us + 60_000 + 199 * 24_000


def test_the_first_decode_and_network_constants_are_the_policys():
    rules = policy(route(), first_decode_us=1, first_byte_network_us=2)
    assert decided(request(), rules=rules).ttft_us == 380_003


def test_a_deadline_equal_to_the_estimate_is_met_and_a_microsecond_less_is_not():
    rules = policy(route())
    assert decided(request(deadline_us=5_216_000), rules=rules).status == "accepted"
    decision = decided(request(deadline_us=5_215_999), rules=rules)
    assert (decision.reason_code, decision.http_status) == ("DEADLINE_INSUFFICIENT", 422)
    assert limits(decision) == {"deadline_us": (5_215_999, 5_216_000)}
    assert decision.conditional_on == ("deadline", "model")


def test_a_cost_budget_equal_to_the_estimate_is_met_and_a_pico_unit_less_is_not():
    rules = policy(route())
    assert decided(request(max_cost_pico=3_600_000_000), rules=rules).status == "accepted"
    decision = decided(request(max_cost_pico=3_599_999_999), rules=rules)
    assert (decision.reason_code, decision.http_status) == ("COST_BUDGET_EXCEEDED", 422)
    assert limits(decision) == {"request.max_cost_pico": (3_599_999_999, 3_600_000_000)}


def test_a_model_without_a_price_is_refused_where_a_cost_budget_applies_and_served_where_not():
    """CST-7: unpriced is never zero."""
    unpriced = context(rates=rates())
    decision = decided(request(), unpriced)
    assert (decision.reason_code, decision.http_status) == ("UNPRICED_MODEL", 422)
    served = decided(request(max_cost_pico=None), unpriced)
    assert (served.status, served.cost_pico) == ("accepted", None)
    assert "COST_FIT" not in served.reasons
    of_tenant = replaced(unpriced, tenant=tenant(budget_pico=PICO))
    assert decided(request(max_cost_pico=None), of_tenant).reason_code == "UNPRICED_MODEL"


def test_a_routes_own_rate_wins_over_its_identitys_and_tiers_and_batch_price_as_the_ledger_does():
    rules = policy(route())
    own = rates(rate("identity-of-fast-v2", 5, 5), rate("fast-v2", 2, 8))
    assert decided(request(), context(rates=own), rules).cost_pico == 3_600_000_000
    tier = Tier(
        over_input_tokens=999,
        input_micro_per_mtok=4_000_000,
        output_micro_per_mtok=10_000_000,
        cached_input_micro_per_mtok=0,
    )
    tiered = rates(rate("identity-of-fast-v2", 2, 8, tiers=(tier,), batch_multiplier_permille=500))
    assert decided(request(), context(rates=tiered), rules).cost_pico == 6_000_000_000
    batch = decided(request(priority="batch"), context(rates=tiered), rules)
    assert batch.cost_pico == 3_000_000_000
