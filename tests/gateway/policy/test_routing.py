"""RTE-1 and RTE-2: candidates, canary arms, the order among those left, and what is recorded."""

from collections import Counter
from typing import Any

import pytest

from gateway.policy import canary
from gateway.policy.admission import decide
from gateway.policy.values import CanaryArm, CanaryPlan
from tests.policy_factories import (
    context,
    course_policy,
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
)


def plan(canary_permille: int = 100, **changed) -> CanaryPlan:
    fields = {
        "release_id": "release-7",
        "key": "request",
        "salt": "salt-7",
        "arms": (
            CanaryArm(arm="canary", share_permille=canary_permille, route_ids=("new",)),
            CanaryArm(arm="baseline", share_permille=1_000 - canary_permille, route_ids=("old",)),
        ),
    }
    return CanaryPlan(**fields | changed)


def two_arms(of: CanaryPlan, **changed):
    return policy(route("new"), route("old"), models=(model("new", "old", canary=of),), **changed)


IDLE = context(state("new"), state("old"), rates=rates(rate("new"), rate("old")))


def test_a_route_that_is_no_primary_of_the_model_is_no_candidate():
    rules = course_policy(models=(model("long-context-v4"),))
    decision = decide(request(deadline_us=9_000_000), rules.routes, context(), rules)
    assert [each.route_id for each in decision.candidates] == ["long-context-v4"]
    assert decision.route_id == "long-context-v4"


@pytest.mark.parametrize(
    ("ordering", "winner", "reason"),
    [
        (("e2e", "cost", "route_id"), "fast", "FIRST_BY_E2E"),
        (("cost", "e2e", "route_id"), "cheap", "FIRST_BY_COST"),
        (("quality", "route_id"), "good", "FIRST_BY_QUALITY"),
        (("route_id",), "cheap", "FIRST_BY_ROUTE_ID"),
    ],
)
def test_the_order_among_those_left_is_data_of_the_policy(ordering, winner, reason):
    slow = prediction(inter_token_us=30_000)
    rules = policy(
        route("fast", quality_milli=900),
        route("good", quality_milli=950, prediction=slow),
        route("cheap", quality_milli=900, prediction=slow),
        ordering=ordering,
    )
    about = context(
        *(state(each) for each in ("fast", "good", "cheap")),
        rates=rates(rate("fast"), rate("good"), rate("cheap", 1, 4)),
    )
    decision = decide(request(), rules.routes, about, rules)
    assert decision.route_id == winner
    assert reason in decision.reasons


def test_equal_finish_times_are_told_apart_by_cost_and_equal_costs_by_route_id():
    rules = policy(route("b"), route("a"), route("c"))
    about = context(
        *(state(each) for each in "abc"), rates=rates(rate("a", 2, 9), rate("b"), rate("c"))
    )
    decision = decide(request(), rules.routes, about, rules)
    assert decision.route_id == "b"
    assert decision.reasons[-1] == "FIRST_BY_ROUTE_ID"


def test_an_unpriced_candidate_comes_after_a_priced_one_in_an_order_by_cost():
    rules = policy(route("a"), route("b"), ordering=("cost", "route_id"))
    about = context(state("a"), state("b"), rates=rates(rate("b", 900, 900)))
    decision = decide(request(max_cost_pico=None), rules.routes, about, rules)
    assert decision.route_id == "b"


def test_a_decision_names_every_candidate_with_its_estimates_and_why_it_fell():
    rules = policy(route("a", region="us"), route("b"), long_route("c"))
    about = context(*(state(each) for each in "abc"), rates=rates(*(rate(each) for each in "abc")))
    decision = decide(request(allowed_regions=("eu",)), rules.routes, about, rules)
    assert [(c.route_id, c.role, c.fell_at) for c in decision.candidates] == [
        ("a", "primary", "region"),
        ("b", "primary", None),
        ("c", "primary", "deadline"),
    ]
    assert [c.e2e_us for c in decision.candidates] == [5_216_000, 5_216_000, 8_024_000]
    assert [c.cost_pico for c in decision.candidates] == [3_600_000_000] * 3
    assert decision.reasons[:2] == ("CAPABILITY_MATCH", "REGION_ALLOWED")


PINNED_PLACES = [117, 55, 173, 142, 237]


def test_an_arm_is_fixed_by_a_stable_hash_and_named_on_every_decision():
    """The places are pinned: another hash would move every session of a running release."""
    places = [canary.place_permille("salt-7", f"req-{n}") for n in range(5)]
    assert places == PINNED_PLACES
    rules = two_arms(plan(150))
    for n, place in enumerate(places):
        arm, chosen = ("canary", "new") if place < 150 else ("baseline", "old")
        decision = decide(request(request_id=f"req-{n}"), rules.routes, IDLE, rules)
        assert (decision.release_id, decision.arm, decision.route_id) == ("release-7", arm, chosen)
    refused = decide(request(tokens=10**6), rules.routes, IDLE, rules)
    assert refused.reason_code == "TOKEN_BUDGET_EXCEEDED"
    assert (refused.release_id, refused.arm is not None) == ("release-7", True)


@pytest.mark.parametrize(("n", "place"), list(enumerate(PINNED_PLACES)))
def test_an_arm_holds_the_places_below_its_share_and_not_the_next_one(n: int, place: int):
    asked = request(request_id=f"req-{n}")
    for share, expected in ((place, "baseline"), (place + 1, "canary")):
        arm = canary.arm_of(plan(share), asked)
        assert arm is not None
        assert arm.arm == expected
    only = CanaryArm(arm="canary", share_permille=place, route_ids=("new",))
    assert canary.arm_of(plan(arms=(only,)), asked) is None
    wider = CanaryArm(arm="canary", share_permille=place + 1, route_ids=("new",))
    assert canary.arm_of(plan(arms=(wider,)), asked) == wider


def test_the_key_of_a_plan_alone_places_a_request():
    """Fifty tenants, or sessions, spread over both arms; what else differs moves none of them."""
    for key, field in (("tenant", "tenant_id"), ("session", "session_id")):
        spread = set()
        for n in range(50):
            changes: dict[str, Any] = {field: f"each-{n}"}
            arms = {
                canary.arm_of(plan(500, key=key), request(request_id=each, **changes))
                for each in ("req-1", "req-2", "req-3")
            }
            assert len(arms) == 1
            spread |= arms
        assert len(spread) == 2


def test_shares_are_met_within_three_standard_deviations():
    counted = Counter(
        arm.arm
        for n in range(10_000)
        if (arm := canary.arm_of(plan(100), request(request_id=f"req-{n}")))
    )
    assert abs(counted["canary"] - 1_000) <= 90
    assert counted["canary"] + counted["baseline"] == 10_000


def test_a_session_or_a_tenant_stays_in_one_arm_and_a_sessionless_request_goes_by_its_id():
    for key, session_id in (("session", "s-1"), ("tenant", "")):
        of = plan(500, key=key)
        arms = {
            canary.arm_of(of, request(request_id=f"req-{n}", session_id=session_id))
            for n in range(50)
        }
        assert len(arms) == 1
    arms = {
        canary.arm_of(plan(500, key="session"), request(request_id=f"r-{n}")) for n in range(50)
    }
    assert len(arms) == 2


def test_an_arm_never_spills_over_neither_by_order_nor_by_a_fallback_edge():
    rules = two_arms(plan(1_000), edges=(edge("new", "old"),))
    down = replaced(
        IDLE,
        route_states=(state("new", healthy=False), state("old")),
        evaluations=(evaluation("old"),),
    )
    decision = decide(request(), rules.routes, down, rules)
    assert (decision.status, decision.arm) == ("rejected", "canary")
    assert [(c.route_id, c.fell_at) for c in decision.candidates] == [
        ("new", "health"),
        ("old", "edge_canary_arm"),
    ]


def test_traffic_that_no_arm_covers_uses_the_primaries_that_no_arm_names():
    of = plan(0, arms=(CanaryArm(arm="canary", share_permille=0, route_ids=("new",)),))
    rules = two_arms(of)
    decision = decide(request(), rules.routes, IDLE, rules)
    assert (decision.route_id, decision.arm, decision.release_id) == ("old", None, "release-7")
