"""The six checks of the source's demonstration (section 12), with its exact numbers (SPEC 17)."""

from gateway.policy.admission import decide
from gateway.policy.reasons import REASONS
from tests.policy_factories import PICO, context, course_policy, request, state, tenant

POLICY = course_policy()
# 1,000 in and 200 out at 2 and 8 units per million: (2,000 + 1,600) / 1,000,000 = 0.0036.
NORMAL_COST_PICO = 36 * PICO // 10_000
# 12,000 in and 200 out at 4 and 12: (48,000 + 2,400) / 1,000,000 = 0.0504.
LONG_COST_PICO = 504 * PICO // 10_000


def test_req_normal_is_accepted_on_fast_v2_with_440_ms_ttft_and_5216_ms_e2e():
    decision = decide(request(), POLICY.routes, context(), POLICY)
    assert (decision.status, decision.route_id) == ("accepted", "fast-v2")
    assert decision.ttft_us == 120_000 + 260_000 + 40_000 + 20_000 == 440_000
    assert decision.e2e_us == 440_000 + 199 * 24_000 == 5_216_000
    assert decision.cost_pico == NORMAL_COST_PICO
    assert decision.reserve_kv_tokens == 1_200
    assert decision.reasons == (
        "CAPABILITY_MATCH",
        "KV_CAPACITY_AVAILABLE",
        "DEADLINE_FIT",
        "COST_FIT",
        "ONLY_CANDIDATE",
    )
    # Twice as slow and, at 0.0064 of 0.01 units, affordable: out only by its finish time.
    slower = next(c for c in decision.candidates if c.route_id == "long-context-v4")
    assert (slower.e2e_us, slower.fell_at) == (860_000 + 199 * 36_000, "deadline")


def test_req_long_is_accepted_on_long_context_v4_with_860_ms_ttft_and_8024_ms_e2e():
    asked = request(
        request_id="req-long",
        tokens=12_000,
        deadline_us=9_000_000,
        max_cost_pico=PICO // 10,
        required_capabilities=("long_context",),
    )
    decision = decide(asked, POLICY.routes, context(tenant=tenant(in_flight=0)), POLICY)
    assert (decision.status, decision.route_id) == ("accepted", "long-context-v4")
    assert (decision.ttft_us, decision.e2e_us) == (860_000, 8_024_000)
    assert decision.cost_pico == LONG_COST_PICO


def test_a_tenant_at_its_limit_of_four_is_rejected_and_may_retry():
    decision = decide(request(), POLICY.routes, context(tenant=tenant(in_flight=4)), POLICY)
    assert (decision.status, decision.reason_code) == ("rejected", "TENANT_CONCURRENCY_LIMIT")
    assert REASONS["TENANT_CONCURRENCY_LIMIT"].retryable
    assert decision.candidates == ()


def test_a_deadline_of_300_ms_is_insufficient_on_every_route():
    asked = request(request_id="req-deadline", deadline_us=300_000)
    decision = decide(asked, POLICY.routes, context(), POLICY)
    assert decision.reason_code == "DEADLINE_INSUFFICIENT"
    assert [(each.limit, each.observed) for each in decision.limits] == [(300_000, 5_216_000)]


def test_a_request_over_the_total_window_of_the_only_route_has_no_capable_route():
    asked = request(request_id="req-total-window", tokens=8_000, max_output_tokens=512)
    decision = decide(asked, POLICY.routes[:1], context(), POLICY)
    assert (decision.reason_code, decision.http_status) == ("NO_CAPABLE_ROUTE", 422)
    over = next(each for each in decision.limits if each.name == "route.max_total_tokens")
    assert (over.limit, over.observed) == (8_192, 8_512)


def test_without_free_kv_on_any_route_the_request_is_shed_and_may_retry():
    full = context(state("fast-v2", free_kv_tokens=0), state("long-context-v4", free_kv_tokens=0))
    decision = decide(request(request_id="req-shed"), POLICY.routes, full, POLICY)
    assert (decision.reason_code, decision.http_status) == ("CAPACITY_SHED", 503)
    assert REASONS["CAPACITY_SHED"].retryable
    assert decision.retry_after_ms == POLICY.retry_after_ms
