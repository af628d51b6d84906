"""SLO-4: what each action does to the data plane's decisions, and that it can be undone."""

from itertools import product

import msgspec
import pytest

from gateway.control import canary_policy, overlay
from gateway.control.overlay import CHANGES, InForce, derived, same_rules
from gateway.demo.fleet import policy as demo_policy
from gateway.policy import replay
from gateway.policy.admission import decide
from gateway.policy.validation import problems
from ledger.rollouts import Condition, Plan
from tests.policy_factories import context, course_policy, request, snapshot, state

PLAN = Plan(
    rollout_id="fast-v3-rollout/1",
    release_id="fast-v3-rollout",
    logical_model="assist",
    baseline_routes=("fast-v2", "fast-us-v2"),
    canary_routes=("fast-v3",),
    conditions=(Condition(metric="ttft_p99", limit_permille=100),),
)
TARGETS = {
    "limit_prefill": ("", "fast-v2"),
    "reduce_batch": ("",),
    "shed_priority": ("batch", "normal"),
    "cut_route": ("fast-v2",),
    "tighten_tokens": ("", "assist"),
}


def action(kind, target=""):
    return InForce(episode=f"{kind}/1", kind=kind, target=target)


@pytest.mark.parametrize(
    ("kind", "target"), [(kind, target) for kind in CHANGES for target in TARGETS[kind]]
)
def test_an_action_changes_the_policy_and_leaves_it_one_that_may_be_published(kind, target):
    base = demo_policy()
    changed = derived(base, [action(kind, target)])
    assert not same_rules(base, changed)
    assert problems(changed) == ()
    assert derived(base, []) == base


@pytest.mark.parametrize(("first", "second"), list(product(CHANGES, CHANGES)))
def test_any_two_actions_together_can_be_published(first, second):
    both = [action(first, TARGETS[first][-1]), action(second, TARGETS[second][-1])]
    assert problems(derived(demo_policy(), both)) == ()


def test_what_changes_no_policy_changes_nothing():
    base = demo_policy()
    for kind in ("freeze_rollouts", "advise_scaling", "open_incident", "change_quota"):
        assert derived(base, [action(kind)]) == base


def decided(policy, **changed):
    return decide(request(**changed), policy.routes, context(), policy)


def test_a_shed_priority_is_refused_on_an_idle_fleet_and_interactive_requests_are_not():
    """ADM-8: batch is let in nowhere, the others where they were."""
    calm = course_policy()
    assert decided(calm, priority="batch").status == "accepted"
    shed = derived(calm, [action("shed_priority", "batch")])
    refused = decided(shed, priority="batch")
    assert (refused.status, refused.reason_code) == ("rejected", "CAPACITY_SHED")
    assert decided(shed, priority="interactive").status == "accepted"


def test_a_cut_route_gets_nothing():
    calm = course_policy()
    winner = decided(calm).route_id
    cut = derived(calm, [action("cut_route", winner)])
    after = decided(cut)
    assert after.route_id != winner


def test_half_as_many_may_wait_where_prefill_is_limited():
    """The queue in front of the prefill is full at half its length."""
    calm = course_policy()
    limited = derived(calm, [action("limit_prefill")])
    half = calm.routes[0].queue_limit // 2
    crowd = context(
        route_states=tuple(
            state(route.route_id, snapshot=snapshot(route.route_id, waiting_requests=half))
            for route in calm.routes
        )
    )
    asked = request(priority="interactive")
    assert decide(asked, calm.routes, crowd, calm).status == "accepted"
    assert decide(asked, limited.routes, crowd, limited).reason_code == "CAPACITY_SHED"


def test_a_route_is_cut_only_where_its_arm_has_another():
    policy = demo_policy()
    assert overlay.can_cut(policy, "fast-v2")
    assert not overlay.can_cut(policy, "fast-v3")  # the canary's only route
    assert overlay.can_cut(policy, "long-context-v4")
    alone = derived(policy, [action("cut_route", "long-context-v4")])
    assert not overlay.can_cut(alone, "long-context-us-v4")


@pytest.mark.parametrize("permille", [1, 50, 500, 999])
def test_each_step_of_a_rollout_can_be_published(permille):
    shared = canary_policy.with_share(demo_policy(), PLAN, permille)
    assert problems(shared) == ()
    (model, _) = shared.models
    assert [arm.share_permille for arm in model.canary.arms] == [1000 - permille, permille]


def test_after_a_rollback_no_primary_no_fallback_and_no_decision_reaches_the_canary():
    """REL-3."""
    back = canary_policy.restored(canary_policy.with_share(demo_policy(), PLAN, 200), PLAN)
    assert problems(back) == ()
    model = back.models[0]
    assert model.canary is None
    assert "fast-v3" not in model.primary_routes
    assert [route.enabled for route in back.routes if route.route_id == "fast-v3"] == [False]


def test_a_rollback_keeps_what_was_published_since_and_names_no_route_that_is_gone():
    """REL-3: a route that a person took out in between doesn't come back as a bare name."""
    shared = canary_policy.with_share(demo_policy(), PLAN, 200)
    model = shared.models[0]
    arms = tuple(
        msgspec.structs.replace(arm, route_ids=("fast-v2",)) if arm.arm == "baseline" else arm
        for arm in model.canary.arms
    )
    assert model.canary is not None
    fewer = msgspec.structs.replace(
        shared,
        models=(
            msgspec.structs.replace(
                model,
                primary_routes=("fast-v2", "fast-v3"),
                canary=msgspec.structs.replace(model.canary, arms=arms),
            ),
            *shared.models[1:],
        ),
        routes=tuple(one for one in shared.routes if one.route_id != "fast-us-v2"),
        edges=tuple(one for one in shared.edges if one.from_route != "fast-us-v2"),
    )
    assert problems(fewer) == ()
    assert canary_policy.overtaken(shared, PLAN) == ()
    assert canary_policy.overtaken(fewer, PLAN) == ("the policy has no route fast-us-v2",)
    back = canary_policy.restored(fewer, PLAN)
    assert problems(back) == ()
    assert back.models[0].primary_routes == ("fast-v2",)


def test_a_promoted_canary_is_the_model():
    up = canary_policy.promoted(canary_policy.with_share(demo_policy(), PLAN, 500), PLAN)
    assert problems(up) == ()
    assert up.models[0].primary_routes == ("fast-v3",)
    assert up.models[0].canary is None


def test_a_plan_that_does_not_fit_the_policy_says_where():
    stray = Plan(
        rollout_id="r", release_id="other", logical_model="assist", baseline_routes=("fast-v2",),
        canary_routes=("fast-v9",), conditions=PLAN.conditions,
    )  # fmt: skip
    found = canary_policy.problems_of(demo_policy(), stray)
    assert "the policy has no route fast-v9" in found
    assert any("canary of fast-v3-rollout already" in one for one in found)
    assert canary_policy.problems_of(demo_policy(), PLAN) == ()


def test_the_same_decision_bytes_follow_from_an_undone_action():
    calm = course_policy()
    undone = derived(derived(calm, [action("limit_prefill")]), [])
    assert replay.encode_decision(decided(derived(calm, []))) == replay.encode_decision(
        decided(calm)
    )
    assert not same_rules(undone, calm)
