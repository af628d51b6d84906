"""Differences of two policies: each by its path, none where they are equal, the same every time."""

import msgspec
from hypothesis import given

from gateway.fleet_file.differences import Difference, differences, shown
from gateway.policy.values import CanaryArm, CanaryPlan
from ledger.rates import Tier
from tests.gateway.fleet_file.fleets import policies
from tests.policy_factories import course_policy, edge, long_route, model, rate, replaced, route


def lines(before: object, after: object) -> list[str]:
    return [str(each) for each in differences(before, after)]


def test_fields_elements_and_lists_are_told_by_path():
    before = course_policy(edges=(edge("fast-v2", "long-context-v4"),))
    after = replaced(
        before,
        revision="policy-2",
        routes=(route(queue_limit=128, capabilities=("tools",)), long_route("new-v1")),
        edges=(),
        models=(model("fast-v2", "new-v1"),),
        probe_allowance=0,
    )
    assert lines(before, after) == [
        "edges[fast-v2 -> long-context-v4]: removed",
        'models[assistant].primary_routes: ["fast-v2","long-context-v4"] -> ["fast-v2","new-v1"]',
        "probe_allowance: 1 -> 0",
        "revision: policy-1 -> policy-2",
        'routes[fast-v2].capabilities: ["json_schema","tools"] -> ["tools"]',
        "routes[fast-v2].queue_limit: 256 -> 128",
        "routes[long-context-v4]: removed",
        "routes[new-v1]: added",
    ]


def test_a_plan_that_begins_and_an_arm_that_grows():
    def plan(share: int) -> CanaryPlan:
        arms = (
            CanaryArm(arm="canary", share_permille=share, route_ids=("fast-v2",)),
            CanaryArm(arm="baseline", share_permille=1000 - share, route_ids=("long-context-v4",)),
        )
        return CanaryPlan(release_id="r", key="request", salt="s", arms=arms)

    none, small, more = (
        course_policy(models=(model("fast-v2", "long-context-v4", canary=canary),))
        for canary in (None, plan(10), plan(50))
    )
    (begun,) = differences(none, small)
    assert (begun.path, begun.kind) == ("models[assistant].canary", "added")
    assert begun.after["arms"][0]["share_permille"] == 10
    assert lines(small, more) == [
        "models[assistant].canary.arms[baseline].share_permille: 990 -> 950",
        "models[assistant].canary.arms[canary].share_permille: 10 -> 50",
    ]


def test_another_order_alone_is_a_difference():
    policy = course_policy()
    turned = replaced(policy, routes=tuple(reversed(policy.routes)))
    assert differences(policy, turned) == (
        Difference(
            path="routes (order)",
            kind="changed",
            before=["fast-v2", "long-context-v4"],
            after=["long-context-v4", "fast-v2"],
        ),
    )


def test_rates_go_by_what_they_are_for_and_tiers_by_their_threshold():
    tier = Tier(over_input_tokens=200_000, input_micro_per_mtok=6, output_micro_per_mtok=6,
                cached_input_micro_per_mtok=6)  # fmt: skip
    before = [rate("a", region="eu", tiers=(tier,)), rate("a", region="us")]
    after = [
        rate("a", region="eu", tiers=(replaced(tier, input_micro_per_mtok=7),)),
        rate("a", region="us", fixed_pico=1),
    ]
    assert lines(before, after) == [
        "[a eu].tiers[200000].input_micro_per_mtok: 6 -> 7",
        "[a us].fixed_pico: 0 -> 1",
    ]


def test_elements_of_one_name_stay_apart():
    twice = replaced(course_policy(), routes=(route(), route(queue_limit=1)))
    once = replaced(twice, routes=(route(),))
    assert lines(twice, once) == ["routes[fast-v2 #1]: removed"]
    assert shown("") == '""'


@given(policies(), policies())
def test_there_is_a_difference_if_and_only_if_two_policies_differ(one, other):
    assert differences(one, one) == ()
    assert bool(differences(one, other)) == (one != other)
    forth, back = differences(one, other), differences(other, one)
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    assert sorted((each.path, opposite[each.kind]) for each in forth) == sorted(
        (each.path, each.kind) for each in back
    )


def test_the_same_two_policies_give_the_same_bytes():
    policy = course_policy(edges=(edge("fast-v2", "long-context-v4"),))
    other = replaced(policy, revision="other", edges=(), retry_after_ms=7)
    first = msgspec.json.encode(differences(policy, other))
    assert first == msgspec.json.encode(differences(policy, other))
