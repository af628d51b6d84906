"""FBK-1: a fallback happens only along a declared edge whose every condition holds."""

import pytest

from gateway.policy.admission import decide
from gateway.policy.caps import Caps
from gateway.policy.estimates import Scale
from gateway.policy.fallback import Origin, broken_condition
from gateway.policy.filters import Bounds
from tests.policy_factories import (
    NOW_US,
    context,
    edge,
    evaluation,
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

ASKED = request(deadline_us=9_000_000)
EDGE = edge("fast-v2", "long-context-v4")
EVIDENCE = (evaluation("long-context-v4"),)
DOWN = (state("fast-v2", healthy=False), state("long-context-v4", free_kv_tokens=80_000))


def rules_with(*edges, fast=None, long=None):
    return policy(
        fast or route(), long or long_route(), models=(model("fast-v2"),), edges=edges or (EDGE,)
    )


def decided(rules=None, asked=ASKED, states=DOWN, evidence=EVIDENCE, **changed):
    rules = rules or rules_with()
    return decide(asked, rules.routes, context(*states, evaluations=evidence, **changed), rules)


def last(decision) -> tuple[str, str | None, str | None]:
    candidate = decision.candidates[-1]
    return candidate.route_id, candidate.fell_at, candidate.via_route


def test_an_unhealthy_primary_is_replaced_along_its_edge_and_the_answer_is_degraded():
    decision = decided()
    assert (decision.status, decision.route_id) == ("accepted", "long-context-v4")
    assert decision.degraded_from == "fast-v2"
    assert decision.reasons[-1] == "FALLBACK_UNHEALTHY"
    assert [(c.route_id, c.role, c.fell_at) for c in decision.candidates] == [
        ("fast-v2", "primary", "health"),
        ("long-context-v4", "fallback", None),
    ]
    assert last(decision)[2] == "fast-v2"


@pytest.mark.parametrize(
    ("of_primary", "reason"),
    [
        ({"healthy": False}, "unhealthy"),
        ({"free_kv_tokens": 0}, "overloaded"),
        ({"waiting_requests": 256}, "overloaded"),
        ({"oldest_wait_us": 30_000_001}, "overloaded"),
        ({"snapshot": None, "probes_in_flight": 1}, "overloaded"),
        ({"waiting_input_tokens": 10**6}, "deadline_risk"),
    ],
)
def test_each_reason_opens_the_edges_that_allow_it_and_no_other(of_primary, reason):
    fast = route(prediction=prediction(prefill_us_per_ktok=33_000))
    states = (state("fast-v2", **of_primary), DOWN[1])
    allowing = rules_with(replaced(EDGE, allowed_reasons=(reason,)), fast=fast)
    accepted = decided(allowing, states=states)
    assert accepted.reasons[-1] == f"FALLBACK_{reason.upper()}"

    others = tuple(r for r in ("overloaded", "unhealthy", "deadline_risk") if r != reason)
    refused = decided(rules_with(replaced(EDGE, allowed_reasons=others), fast=fast), states=states)
    assert refused.status == "rejected"
    assert last(refused)[1] == "edge_reason"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (replaced(ASKED, required_capabilities=("vision",)), "CAPABILITY_UNAVAILABLE"),
        (replaced(ASKED, quality_floor_milli=1_001), "QUALITY_FLOOR_UNMET"),
        (replaced(ASKED, allowed_regions=("us",)), "POLICY_DENIED"),
        (request(tokens=9_000, deadline_us=9_000_000), "NO_CAPABLE_ROUTE"),
        (replaced(ASKED, budget=replaced(ASKED.budget, max_cost_pico=1)), "COST_BUDGET_EXCEEDED"),
    ],
)
def test_a_primary_that_fell_for_any_other_reason_opens_no_edge(asked, code):
    states = (state("fast-v2"), DOWN[1])
    decision = decided(asked=asked, states=states)
    assert decision.reason_code == code
    assert all(each.role == "primary" for each in decision.candidates)


def test_no_edge_is_used_while_a_primary_can_run():
    decision = decided(states=(state("fast-v2"), DOWN[1]))
    assert (decision.route_id, decision.degraded_from) == ("fast-v2", None)
    assert len(decision.candidates) == 1


def test_a_target_outside_the_data_boundary_is_refused():
    american = rules_with(long=long_route(region="us"))
    for changed in (
        {"asked": replaced(ASKED, allowed_regions=("eu",))},
        {"tenant": tenant(allowed_regions=("eu",))},
    ):
        decision = decided(american, **changed)
        assert decision.status == "rejected"
        assert last(decision)[1] == "edge_data_boundary"
    assert decided(american).status == "accepted"  # nobody drew a boundary


def test_an_edge_that_keeps_no_boundary_serves_no_request_that_draws_one():
    loose = rules_with(replaced(EDGE, preserves_data_boundary=False))
    decision = decided(loose, asked=replaced(ASKED, allowed_regions=("eu",)))
    assert last(decision)[1] == "edge_data_boundary"
    assert decided(loose).status == "accepted"


def test_a_target_without_a_required_capability_is_refused_as_is_an_edge_that_keeps_none():
    lacking = rules_with(long=long_route(capabilities=("tools",)))
    assert last(decided(lacking))[1] == "edge_capabilities"
    loose = rules_with(replaced(EDGE, preserves_required_capabilities=False))
    assert last(decided(loose))[1] == "edge_capabilities"
    assert decided(loose, asked=replaced(ASKED, required_capabilities=())).status == "accepted"


@pytest.mark.parametrize(
    ("evidence", "condition"),
    [
        ((), "edge_evaluation"),
        ((evaluation("long-context-v4", identity_id="another"),), "edge_evaluation"),
        ((evaluation("long-context-v4", suite="suite-2"),), "edge_evaluation"),
        ((evaluation("long-context-v4", passed=False),), "edge_evaluation"),
        ((*EVIDENCE, evaluation("long-context-v4", passed=False)), "edge_evaluation"),
        ((evaluation("long-context-v4", score_milli=799),), "edge_quality_floor"),
        ((evaluation("long-context-v4", score_milli=800),), None),
        ((evaluation("long-context-v4", passed=False), *EVIDENCE), None),
    ],
)
def test_evidence_is_the_newest_result_of_the_suite_for_the_exact_identity(evidence, condition):
    decision = decided(evidence=evidence)
    assert (decision.status == "accepted") is (condition is None)
    assert last(decision)[1] == condition


def test_a_target_with_an_older_safety_policy_is_refused():
    older = rules_with(
        fast=route(safety_policy_revision=3), long=long_route(safety_policy_revision=2)
    )
    assert last(decided(older))[1] == "edge_safety_policy"


def test_a_route_without_a_fresh_snapshot_is_no_fallback_target():
    """ADM-6, even with a probe to spare."""
    for snapshotless in (
        state("long-context-v4", snapshot=None),
        state("long-context-v4", observed_at_us=NOW_US - 5_000_001),
    ):
        assert last(decided(states=(DOWN[0], snapshotless)))[1] == "edge_snapshot_age"


def test_a_target_passes_every_hard_filter_or_falls_like_any_candidate():
    full = decided(states=(DOWN[0], state("long-context-v4", free_kv_tokens=0)))
    assert (full.reason_code, full.http_status) == ("NO_CAPABLE_ROUTE", 503)
    assert last(full) == ("long-context-v4", "kv_capacity", "fast-v2")


def test_edges_lead_on_from_a_target_that_fell_and_never_in_a_circle():
    routes = [route(each) for each in ("a", "b", "c")]
    rules = policy(
        *routes,
        models=(model("a"),),
        edges=(edge("a", "b"), edge("b", "a"), edge("b", "c"), edge("c", "a"), edge("a", "a")),
    )
    about = context(
        state("a", healthy=False),
        state("b", free_kv_tokens=0),
        state("c"),
        rates=rates(*(rate(each) for each in "abc")),
        evaluations=tuple(evaluation(each) for each in "abc"),
    )
    decision = decide(request(), rules.routes, about, rules)
    assert (decision.route_id, decision.degraded_from) == ("c", "a")
    assert decision.reasons[-1] == "FALLBACK_OVERLOADED"
    assert [(c.route_id, c.fell_at, c.via_route) for c in decision.candidates] == [
        ("a", "health", None),
        ("b", "kv_capacity", "a"),
        ("c", None, "b"),
    ]
    all_down = replaced(about, route_states=tuple(state(e, healthy=False) for e in "abc"))
    refused = decide(request(), rules.routes, all_down, rules)
    assert refused.status == "rejected"
    assert len(refused.candidates) == 3


def test_an_unknown_outcome_with_side_effects_is_not_tried_elsewhere():
    rules = rules_with()
    about = context(*DOWN, evaluations=EVIDENCE)

    def broken(side_effects: bool, outcome_unknown: bool) -> str | None:
        asked = replaced(ASKED, side_effects=side_effects)
        scale = Scale(asked, about, rules)
        bounds = Bounds(scale, Caps(asked, about.tenant, rules.models[0]))
        target = scale.weigh(rules.routes[1:])[0]
        origin = Origin(rules.routes[0], "unhealthy", "fast-v2")
        return broken_condition(
            EDGE, origin, target, scale, bounds, frozenset(), outcome_unknown=outcome_unknown
        )

    assert broken(side_effects=True, outcome_unknown=True) == "edge_unknown_outcome"
    assert broken(side_effects=True, outcome_unknown=False) is None
    assert broken(side_effects=False, outcome_unknown=True) is None
