"""What holds for every input: `decide` next to an independent restatement of its limits."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import replay
from gateway.policy.admission import decide
from gateway.policy.reasons import REASONS
from gateway.policy.values import RoutePolicy
from tests.gateway.policy import restated
from tests.gateway.policy.corpus import Case, Draw, case
from tests.policy_factories import MODEL, replaced

cases = st.integers(0, 10**9).map(case)
FROM_DECIDE = {
    code
    for code in REASONS
    if code
    not in {"UNAUTHENTICATED", "INVALID_REQUEST", "IDEMPOTENCY_CONFLICT", "LEDGER_UNAVAILABLE"}
}


def arm_routes(each: Case, decision) -> set[str]:
    """The primary routes that the arm named in the decision leaves."""
    model = restated.logical_model(each)
    if model.canary is None:
        return set(model.primary_routes)
    arms = {arm.arm: set(arm.route_ids) for arm in model.canary.arms}
    if decision.arm is None:
        return set(model.primary_routes).difference(*arms.values())
    return arms[decision.arm] & set(model.primary_routes)


def primaries(each: Case, decision):
    return [route for route in each.routes if route.route_id in arm_routes(each, decision)]


def known_model(each: Case) -> bool:
    return any(model.name == each.request.logical_model for model in each.policy.models)


@given(cases, st.integers(0, 10**9))
def test_the_order_of_routes_states_rates_counts_and_models_does_not_matter(each: Case, seed: int):
    draw = Draw(seed)
    context = replaced(
        each.context,
        route_states=draw.shuffled(each.context.route_states),
        rates=replaced(each.context.rates, rates=draw.shuffled(each.context.rates.rates)),
    )
    policy = replaced(each.policy, models=draw.shuffled(each.policy.models))
    request = replaced(each.request, input_tokens=draw.shuffled(each.request.input_tokens))
    first = decide(*each)
    again = decide(request, draw.shuffled(each.routes), context, policy)
    assert replay.encode_decision(first) == replay.encode_decision(again)


@given(cases)
def test_what_is_accepted_breaks_no_hard_limit(each: Case):
    decision = decide(*each)
    if decision.status == "accepted":
        winner = next(r for r in each.routes if r.route_id == decision.route_id)
        assert restated.broken_limits(each, winner) == set()
        assert decision.e2e_us == restated.e2e_us(each, winner)
        assert decision.cost_pico == restated.cost_pico(each, winner)
        assert decision.input_tokens == restated.count(each, winner)
        assert decision.probe is not restated.fresh(each, winner)
        assert decision.identity_id == winner.identity_id


@given(cases)
def test_a_request_that_a_primary_could_run_is_accepted_on_the_best_of_them(each: Case):
    if not known_model(each):
        return
    decision = decide(*each)
    able = [r for r in primaries(each, decision) if not restated.broken_limits(each, r)]
    if not able:
        assert decision.status == "rejected" or decision.degraded_from is not None
        return
    keys = {
        "e2e": lambda r: restated.e2e_us(each, r),
        "cost": lambda r: 10**30 if (c := restated.cost_pico(each, r)) is None else c,
        "quality": lambda r: -r.quality_milli,
        "route_id": lambda r: r.route_id,
    }
    rule = (*each.policy.ordering, "route_id")
    best = min(able, key=lambda r: [keys[part](r) for part in rule])
    assert (decision.route_id, decision.degraded_from) == (best.route_id, None)


@given(cases)
def test_a_degraded_answer_is_reached_along_a_declared_edge_with_evidence(each: Case):
    decision = decide(*each)
    if decision.degraded_from is None:
        return
    assert decision.degraded_from in arm_routes(each, decision)
    by_id = {route.route_id: route for route in each.routes}
    target = by_id[decision.route_id or ""]
    via = next(
        c.via_route
        for c in decision.candidates
        if c.route_id == target.route_id and c.role == "fallback" and c.fell_at is None
    )
    edge = next(
        e for e in each.policy.edges if (e.from_route, e.to_route) == (via, target.route_id)
    )
    results = [
        e
        for e in each.context.evaluations
        if e.identity_id == target.identity_id and e.suite == edge.required_evaluation_suite
    ]
    assert results[-1].passed
    assert results[-1].score_milli >= edge.quality_floor_milli
    assert restated.fresh(each, target)
    assert target.safety_policy_revision >= by_id[via or ""].safety_policy_revision
    if each.request.allowed_regions or each.context.tenant.allowed_regions:
        assert edge.preserves_data_boundary
    if each.request.required_capabilities:
        assert edge.preserves_required_capabilities


@given(cases)
def test_every_rejection_is_complete_and_follows_the_one_table(each: Case):
    decision = decide(*each)
    if decision.status == "accepted":
        assert (decision.reason_code, decision.limits, decision.http_status) == (None, (), 200)
        return
    reason = REASONS[decision.reason_code or ""]
    assert decision.conditional_on == reason.conditional_on
    # A budget isn't to be retried, and still says when its next day or month begins.
    told = reason.retryable or decision.reason_code == "TENANT_BUDGET_EXHAUSTED"
    assert (decision.retry_after_ms is not None) is told
    assert (decision.route_id, decision.reserve_kv_tokens) == (None, 0)
    unhealthy = (decision.reason_code, decision.http_status) == ("NO_CAPABLE_ROUTE", 503)
    assert decision.http_status == reason.http_status or unhealthy
    assert decision.limits or decision.reason_code == "MODEL_NOT_FOUND"


@given(cases)
def test_every_primary_that_was_looked_at_is_recorded_once_with_why_it_fell(each: Case):
    decision = decide(*each)
    if decision.candidates:
        seen = [c.route_id for c in decision.candidates if c.role == "primary"]
        assert sorted(seen) == sorted(r.route_id for r in primaries(each, decision))
        for candidate in decision.candidates:
            if candidate.role == "primary":
                route = next(r for r in each.routes if r.route_id == candidate.route_id)
                able = not restated.broken_limits(each, route)
                assert (candidate.fell_at is None) is able


@given(cases)
def test_more_capacity_never_turns_a_primarys_acceptance_away(each: Case):
    """Nor into CAPACITY_SHED. A degraded answer is no part of it: a fallback route that is no
    longer overloaded but has no price, say, opens none of the edges that its overload did."""
    before = decide(*each)
    roomier = tuple(
        state
        if state.snapshot is None
        else replaced(
            state,
            reserved_since_kv_tokens=0,
            snapshot=replaced(
                state.snapshot,
                free_kv_tokens=state.snapshot.free_kv_tokens + 100_000,
                waiting_requests=0,
                oldest_wait_us=0,
            ),
        )
        for state in each.context.route_states
    )
    context = replaced(each.context, route_states=roomier)
    after = decide(each.request, each.routes, context, each.policy)
    if before.status == "accepted" and before.degraded_from is None:
        assert (after.status, after.degraded_from) == ("accepted", None)


@given(cases)
def test_a_longer_deadline_and_a_larger_cost_budget_never_turn_a_primary_away(each: Case):
    before = decide(*each)
    budget = each.request.budget
    wider = replaced(
        budget,
        deadline_us=budget.deadline_us + 10**9,
        max_cost_pico=None if budget.max_cost_pico is None else budget.max_cost_pico * 10,
    )
    request = replaced(each.request, budget=wider)
    after = decide(request, each.routes, each.context, each.policy)
    if before.status == "accepted" and before.degraded_from is None:
        assert after.status == "accepted"


@given(cases)
def test_a_policy_and_a_decision_survive_their_encoding(each: Case):
    decision = decide(*each)
    text = replay.encode_decision(decision)
    assert text.isascii()
    assert replay.decode_decision(text) == decision
    encoded = msgspec.json.encode(each.policy)
    assert msgspec.json.decode(encoded, type=RoutePolicy) == each.policy


def test_the_corpus_brings_up_every_code_of_decide_and_degraded_probing_and_canary_answers():
    decisions = [decide(*case(seed)) for seed in range(4_000)]
    codes = Counter(d.reason_code for d in decisions)
    assert set(codes) == FROM_DECIDE | {None}
    assert min(codes.values()) >= 5
    accepted = [d for d in decisions if d.status == "accepted"]
    assert len(accepted) > 600
    assert sum(d.degraded_from is not None for d in accepted) >= 40
    assert sum(d.probe for d in accepted) > 50
    assert {d.arm for d in accepted} == {None, "canary", "baseline"}


@pytest.mark.parametrize("code", sorted(REASONS))
def test_each_reason_says_in_one_sentence_what_to_do(code):
    reason = REASONS[code]
    assert reason.code == code
    assert reason.caller_action.endswith(".")
    assert reason.description.endswith(".")
    assert MODEL not in reason.caller_action
