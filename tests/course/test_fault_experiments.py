"""The source's three fault experiments (section 14) and two of its extensions (SPEC 17)."""

from fractions import Fraction

from gateway.policy.admission import decide
from gateway.policy.reasons import REASONS
from gateway.policy.values import TokenCount
from ledger import slo, slo_burn
from ledger.quantiles import nearest_rank
from tests.ledger.receipts import receipt
from tests.policy_factories import (
    NOW_US,
    context,
    course_policy,
    edge,
    evaluation,
    long_route,
    model,
    policy,
    request,
    route,
    state,
)


def queue_objective(priority: str) -> slo.SloDefinition:
    """Queue time at or under 1,000 ms for 99 % of a priority, with a page at burn 6."""
    rule = slo.BurnRule(
        name="page",
        severity="page",
        factor=Fraction(6),
        long_us=6 * slo.HOUR_US,
        short_us=30 * slo.MINUTE_US,
    )
    return slo.SloDefinition(
        slo_id=f"queue-{priority}",
        revision=1,
        title="Queue time",
        indicator="queue",
        target_ppm=990_000,
        threshold_us=1_000_000,
        selector=slo.Selector(priorities=(priority,)),
        rules=(rule,),
    )


def burn(definition: slo.SloDefinition, receipts: list) -> Fraction | None:
    verdicts = [slo.judge(definition, each) for each in receipts]
    valid = sum(each is not None for each in verdicts)
    return slo_burn.burn_rate(
        slo_burn.Tally(good=verdicts.count("good"), valid=valid), definition.budget
    )


def test_experiment_one_a_comfortable_mean_does_not_hide_the_interactive_tail():
    queue_ms = sorted([20] * 95 + [4_000] * 5)
    assert sum(queue_ms) / 100 == 219
    assert [nearest_rank(queue_ms, q, 100) for q in (95, 96, 99)] == [20, 4_000, 4_000]

    receipts = [receipt(priority="interactive", queue_us=20_000) for _ in range(55)]
    receipts += [receipt(priority="interactive", queue_us=4_000_000) for _ in range(5)]
    receipts += [receipt(priority="batch", queue_us=20_000) for _ in range(40)]
    assert sum(each.queue_us or 0 for each in receipts) == 100 * 219_000

    interactive, batch = queue_objective("interactive"), queue_objective("batch")
    rule = interactive.rules[0]
    assert burn(interactive, receipts) == Fraction(25, 3)  # 8.33
    assert slo_burn.rule_state(rule, Fraction(25, 3), Fraction(25, 3)) == "ALERT"
    assert burn(batch, receipts) == 0
    assert slo_burn.rule_state(rule, Fraction(0), Fraction(0)) == "QUIET"


def test_experiment_two_without_kv_room_the_request_is_shed_outside_the_queue_and_passes_later():
    rules = course_policy()
    need = 1_200
    short = context(
        state("fast-v2", free_kv_tokens=need - 1),
        state("long-context-v4", free_kv_tokens=need - 1),
    )
    shed = decide(request(), rules.routes, short, rules)
    assert (shed.status, shed.reason_code) == ("rejected", "CAPACITY_SHED")
    assert REASONS["CAPACITY_SHED"].retryable
    assert (shed.retry_after_ms, shed.http_status) == (1_000, 503)
    assert (shed.route_id, shed.reserve_kv_tokens) == (None, 0)
    assert [each.fell_at for each in shed.candidates] == ["kv_capacity", "kv_capacity"]
    assert [(each.limit, each.observed) for each in shed.limits] == [(1_199, 1_200)]

    restored = context(state("fast-v2", free_kv_tokens=need), state("long-context-v4"))
    again = decide(request(request_id="req-again"), rules.routes, restored, rules)
    assert (again.status, again.route_id) == ("accepted", "fast-v2")


def test_experiment_three_a_route_that_lost_json_schema_is_no_substitute_for_an_unhealthy_one():
    rules = policy(route(), long_route(capabilities=("tools", "long_context")))
    down = context(state("fast-v2", healthy=False), state("long-context-v4"))
    decision = decide(request(deadline_us=9_000_000), rules.routes, down, rules)
    assert (decision.status, decision.reason_code) == ("rejected", "NO_CAPABLE_ROUTE")
    assert not REASONS["NO_CAPABLE_ROUTE"].retryable
    assert {each.route_id: each.fell_at for each in decision.candidates} == {
        "fast-v2": "health",
        "long-context-v4": "capability",
    }


def test_experiment_three_holds_along_a_declared_fallback_edge_too():
    rules = policy(
        route(),
        long_route(capabilities=("tools", "long_context")),
        models=(model("fast-v2"),),
        edges=(edge("fast-v2", "long-context-v4"),),
    )
    down = context(
        state("fast-v2", healthy=False),
        state("long-context-v4"),
        evaluations=(evaluation("long-context-v4"),),
    )
    decision = decide(request(deadline_us=9_000_000), rules.routes, down, rules)
    assert (decision.status, decision.reason_code) == ("rejected", "NO_CAPABLE_ROUTE")
    refused = decision.candidates[-1]
    assert (refused.route_id, refused.fell_at) == ("long-context-v4", "edge_capabilities")


def test_extension_one_an_expired_snapshot_makes_a_route_conservative():
    rules = course_policy(probe_allowance=1)
    old = NOW_US - rules.snapshot_max_age_us - 1
    long_idle = state("long-context-v4", free_kv_tokens=0)
    probing = context(state("fast-v2", observed_at_us=old), long_idle)
    assert decide(request(), rules.routes, probing, rules).probe

    used_up = context(state("fast-v2", observed_at_us=old, probes_in_flight=1), long_idle)
    decision = decide(request(), rules.routes, used_up, rules)
    assert decision.reason_code == "CAPACITY_SHED"
    assert decision.candidates[0].fell_at == "snapshot_age"


def test_extension_three_a_tokenizer_revision_that_counts_more_changes_budget_and_names_itself():
    counts = (
        TokenCount(tokenizer_revision="tok-1", tokens=1_000),
        TokenCount(tokenizer_revision="tok-2", tokens=1_300),
    )
    for revision, tokens in (("tok-1", 1_000), ("tok-2", 1_300)):
        rules = policy(route(tokenizer_revision=revision))
        decision = decide(request(input_tokens=counts), rules.routes, context(), rules)
        assert decision.tokenizer_revision == revision
        assert decision.input_tokens == tokens
        assert decision.reserve_kv_tokens == tokens + 200
        assert decision.cost_pico == tokens * 2_000_000 + 200 * 8_000_000
