"""What keeps a policy from being published, each problem with where it is and what to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission import decide
from gateway.policy.validation import problems, warnings
from gateway.policy.values import CanaryArm, CanaryPlan, FallbackEdge, LearningRule, PriorityShare
from tests.gateway.policy.corpus import Case, case
from tests.policy_factories import (
    course_policy,
    edge,
    evaluation,
    long_route,
    model,
    policy,
    prediction,
    replaced,
    route,
)

SOUND = policy(
    route(),
    long_route(),
    models=(model("fast-v2", max_output_tokens=1_024),),
    edges=(edge("fast-v2", "long-context-v4"),),
)
EVIDENCE = (evaluation("long-context-v4"),)


def arms(*shares: int, routes=("fast-v2", "long-context-v4"), names=("canary", "baseline")):
    plan = CanaryPlan(
        release_id="release-1",
        key="request",
        salt="s",
        arms=tuple(
            CanaryArm(arm=name, share_permille=share, route_ids=(each,) if each else ())
            for name, share, each in zip(names, shares, routes, strict=True)
        ),
    )
    return replaced(SOUND, models=(model("fast-v2", "long-context-v4", canary=plan),), edges=())


def with_model(*primary_routes: str, **changed):
    return replaced(SOUND, models=(model(*primary_routes, **changed),))


def with_edges(*edges: FallbackEdge, **changed):
    return replaced(SOUND, edges=edges, **changed)


def test_the_courses_policy_and_a_sound_one_have_no_problem():
    assert problems(course_policy()) == ()
    assert problems(SOUND) == ()
    assert problems(arms(100, 900)) == ()


@pytest.mark.parametrize(
    ("unsound", "where", "what"),
    [
        (with_model("fast-v3"), "model assistant primary_routes", "has no route fast-v3"),
        (with_model(), "model assistant primary_routes", "there is none"),
        (with_model("fast-v2", "fast-v2"), "model assistant primary_routes", "is there twice"),
        (
            replaced(SOUND, routes=(*SOUND.routes, route())),
            "route fast-v2",
            "it is there twice",
        ),
        (with_edges(edge("fast-v2", "x")), "edge fast-v2 -> x", "has no route x"),
        (
            with_edges(edge("fast-v2", "fast-v2")),
            "edges",
            "circle: fast-v2 -> fast-v2",
        ),
        (
            with_edges(edge("fast-v2", "long-context-v4"), edge("long-context-v4", "fast-v2")),
            "edges",
            "circle: fast-v2 -> long-context-v4 -> fast-v2",
        ),
        (
            with_edges(edge("fast-v2", "long-context-v4", allowed_reasons=())),
            "edge fast-v2 -> long-context-v4",
            "it allows no reason",
        ),
        (
            with_edges(edge("fast-v2", "long-context-v4", quality_floor_milli=1_001)),
            "edge fast-v2 -> long-context-v4",
            "no evaluation scores 1001",
        ),
        (
            replaced(SOUND, routes=(route(safety_policy_revision=2), long_route())),
            "edge fast-v2 -> long-context-v4",
            "safety policy revision 1 is older than 2",
        ),
        (
            with_edges(edge("long-context-v4", "fast-v2")),
            "edge long-context-v4 -> fast-v2",
            "no primary route and no edge leads to it",
        ),
        (
            with_edges(
                edge("fast-v2", "long-context-v4"), models=(model("fast-v2", "long-context-v4"),)
            ),
            "edge fast-v2 -> long-context-v4",
            "was judged already",
        ),
        (arms(100, 800), "model assistant canary release-1", "sum to 900 of 1000"),
        (arms(-100, 1_100), "model assistant canary release-1", "each to be 0 or more"),
        (
            arms(100, 900, routes=("fast-v2", "fast-v2")),
            "model assistant canary release-1",
            "in more than one arm",
        ),
        (
            arms(100, 900, names=("canary", "canary")),
            "model assistant canary release-1",
            "arm canary is there twice",
        ),
        (
            arms(100, 900, routes=("", "fast-v2")),
            "model assistant canary release-1 arm canary",
            "traffic and no route",
        ),
        (
            arms(100, 900, routes=("new", "fast-v2")),
            "model assistant canary release-1 arm canary",
            "new is no primary route",
        ),
        (
            policy(route(max_input_tokens=9_000)),
            "route fast-v2 max_input_tokens",
            "9000 is over max_total_tokens 8192",
        ),
        (
            with_model("fast-v2", max_total_tokens=3_000),
            "model assistant max_output_tokens",
            "4096 is over max_total_tokens 3000",
        ),
        (
            with_model("fast-v2", default_output_tokens=2_000),
            "model assistant default_output_tokens",
            "2000 is over 1024",
        ),
        (
            replaced(SOUND, ordering=("route_id", "cost")),
            "ordering",
            "what follows it never decides",
        ),
        (replaced(SOUND, ordering=("cost", "cost")), "ordering", "cost is there twice"),
        (
            replaced(SOUND, queue_shares=(PriorityShare(priority="batch", queue_permille=900),)),
            "queue share of normal queue_permille",
            "800 is under the 900 of batch",
        ),
        (
            replaced(SOUND, queue_shares=(PriorityShare(priority="batch", queue_permille=0),)),
            "queue share of batch queue_permille",
            "it is 0",
        ),
        (replaced(SOUND, snapshot_max_age_us=0), "snapshot_max_age_us", "it is 0"),
        (replaced(SOUND, retry_after_ms=0), "retry_after_ms", "it is 0"),
        (
            policy(route(prediction=prediction(inter_token_us=-1))),
            "route fast-v2 prediction inter_token_us",
            "it is -1",
        ),
    ],
)
def test_what_can_never_work_is_named_with_where_what_and_what_to_do(unsound, where, what):
    found = problems(unsound)
    assert any(each.where == where and what in each.what for each in found), [*map(str, found)]
    assert all(each.action for each in found)
    assert f"{where}: " in "\n".join(map(str, found))


@given(st.integers(0, 10**9).map(case))
def test_a_policy_without_problems_reaches_no_route_twice(each: Case):
    if problems(each.policy):
        return
    decision = decide(*each)
    judged = [c.route_id for c in decision.candidates if not (c.fell_at or "").startswith("edge_")]
    assert len(judged) == len(set(judged))


@pytest.mark.parametrize("name", ["a\r\nx-evil: 1", "", " ", "a\0", "a\x1b[2J", "\u202eb"])
def test_a_name_that_would_be_two_lines_of_a_log_or_none_is_refused(name):
    by_route = policy(route(name), models=(model(name),))
    assert {each.code for each in problems(by_route)} == {"NAME_UNREADABLE"}
    by_model = replaced(SOUND, models=(model("fast-v2", name=name, max_output_tokens=1_024),))
    assert {each.code for each in problems(by_model)} == {"NAME_UNREADABLE"}
    by_region = replaced(SOUND, routes=(route(region=name or "\n"), long_route()))
    assert "NAME_UNREADABLE" in {each.code for each in problems(by_region)}


def test_each_problem_has_a_stable_code():
    twice = replaced(SOUND, routes=(*SOUND.routes, route()))
    assert [each.code for each in problems(twice)] == ["NAMED_TWICE"]
    circle = with_edges(edge("fast-v2", "long-context-v4"), edge("long-context-v4", "fast-v2"))
    assert "EDGE_CIRCLE" in {each.code for each in problems(circle)}


def test_a_learning_rule_that_could_never_teach_is_refused():
    rule = LearningRule(window_requests=10, least_requests=50, quantile_permille=1_001)
    found = {each.where: each.code for each in problems(replaced(SOUND, learning=rule))}
    assert found == {
        "learning window_requests": "OUT_OF_RANGE",
        "learning quantile_permille": "OUT_OF_RANGE",
    }


def test_an_unreachable_route_and_an_edge_without_evidence_are_warnings():
    lonely = replaced(SOUND, routes=(*SOUND.routes, route("lonely")))
    assert problems(lonely) == ()
    assert [(each.code, each.where) for each in warnings(lonely, EVIDENCE)] == [
        ("ROUTE_UNREACHABLE", "route lonely")
    ]
    assert warnings(SOUND, EVIDENCE) == ()
    assert {each.code for each in warnings(SOUND)} == {"EDGE_WITHOUT_EVIDENCE"}
    low = tuple(replaced(each, score_milli=1) for each in EVIDENCE)
    assert "a score at its quality floor" in warnings(SOUND, low)[0].what
