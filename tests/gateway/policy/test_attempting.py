"""SPEC 6 as a pure function: what follows an attempt, its evidence, its bounds, its bytes."""

from hashlib import sha256
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.attempt_replay import CODE_REVISION
from gateway.policy.attempting import Story, next_step
from gateway.policy.replay import canonical
from gateway.policy.retrying import AttemptSeen, Cooldown
from gateway.policy.validation import problems
from gateway.policy.values import AttemptRules, BreakerRule, HedgeRule, RetryRule
from tests.policy_factories import (
    NOW_US,
    context,
    edge,
    evaluation,
    long_route,
    model,
    policy,
    rate,
    rates,
    replaced,
    request,
    route,
    state,
    tenant,
)

RULES = AttemptRules(limit=4, retry=RetryRule(), hedge=HedgeRule(delay_us=1_000))
ROUTES = (route("a"), route("b"), long_route("c"))
POLICY = policy(
    *ROUTES,
    models=(model("a", "b"),),
    edges=(edge("a", "c"), edge("b", "c")),
    attempts=RULES,
)
STATES = (state("a"), state("b"), state("c", free_kv_tokens=80_000))
EVIDENCE = (evaluation("c"),)
RATES = rates(rate("a"), rate("b"), rate("c", 4, 12))
ASKED = request(deadline_us=30_000_000, max_cost_pico=None)
CODES = {
    "not_run": ("PROVIDER_OVERLOADED", "PROVIDER_UNREACHABLE", "PROVIDER_REFUSED"),
    "failed": ("PROVIDER_INTERNAL_ERROR",),
    "unknown": ("PROVIDER_SILENT", "CANCEL_NOT_ACKNOWLEDGED"),
    "cancelled": ("CLIENT_GONE",),
    "running": (None,),
}
TWO = replaced(POLICY, attempts=replaced(RULES, limit=2))
OWN = replaced(TWO, models=(model("a"),))  # of two attempts, on one own route
GOLDEN = {"policy-2/attempts-2": "b58ecfaf92021a741459086eda38a90de69caa9b19b79e01acb26c49a226e1b2"}
"""Of every revision of the deciding code, what it answers on the corpus."""


def seen(ordinal=0, state="not_run", reason="PROVIDER_OVERLOADED", **more):
    fields = {"ordinal": ordinal, "kind": "primary", "route_id": "a", "state": state}
    return AttemptSeen(**fields | {"reason": reason} | more)


def story(*attempts, **changed):
    fields: dict[str, Any] = {
        "asked": "ended", "attempts": attempts or (seen(),), "deadline_left_us": 30_000_000,
        "committed_pico": 0, "requests_in_minute": 100,
    }  # fmt: skip
    return Story(**fields | changed)


def step(of=None, asked=ASKED, rules=POLICY, states=STATES, evidence=EVIDENCE, **changed):
    known = context(*states, evaluations=evidence, rates=RATES, **changed)
    return next_step(asked, known, rules, of or story())


def why(found, action):
    return next(each.reason for each in found.refusals if each.action == action)


def test_the_nearest_primary_is_retried_and_a_cooldown_makes_it_far():
    assert (step().action, step().route_id, step().wait_us) == ("retry", "b", 0)
    cooled = story(cooldowns=(Cooldown(route_id="b", until_us=NOW_US + 3_000_000),))
    assert (step(cooled).route_id, step(cooled).wait_us) == ("a", 50_000)


def test_a_fallback_has_to_keep_every_condition_of_its_edge():
    failed = story(seen(state="failed", reason="PROVIDER_INTERNAL_ERROR"))
    found = step(failed)
    assert (found.action, found.route_id, found.degraded_from) == ("fallback", "c", "a")
    assert why(found, "retry") == "MAY_HAVE_RUN"
    assert why(step(failed, evidence=()), "fallback") == "edge_evaluation"
    stale = (*STATES[:2], state("c", observed_at_us=NOW_US - 6_000_000))
    assert why(step(failed, states=stale), "fallback") == "edge_snapshot_age"
    none = replaced(POLICY, edges=())
    assert why(step(failed, rules=none), "fallback") == "NO_EDGE"
    lost = story(seen(state="unknown", reason="PROVIDER_SILENT"))
    assert step(lost).action == "fallback"
    risky = replaced(ASKED, side_effects=True)
    assert why(step(lost, asked=risky), "fallback") == "edge_unknown_outcome"


def test_the_last_attempt_goes_along_an_edge_and_not_to_the_route_that_failed():
    """FBK-1, RTY-1: retries of a full primary can't use up what the declared fallback needs."""
    found = step(rules=OWN)
    assert (found.action, found.route_id, found.reason) == ("fallback", "c", "FALLBACK_OVERLOADED")
    assert (found.degraded_from, why(found, "retry")) == ("a", "LAST_ATTEMPT")
    assert step(rules=replaced(OWN, attempts=RULES)).action == "retry"
    again = story(seen(), seen(1), seen(2))
    assert step(again, rules=replaced(OWN, attempts=RULES)).route_id == "c"


def test_the_last_attempt_is_retried_where_no_edge_may_be_taken_and_says_why():
    """FBK-1: with the condition that the edge breaks."""
    found = step(rules=OWN, evidence=())
    assert (found.action, found.route_id, found.wait_us) == ("retry", "a", 50_000)
    assert [each.action for each in found.refusals] == ["fallback"]
    assert why(found, "fallback") == "edge_evaluation"
    assert why(step(rules=replaced(OWN, edges=())), "fallback") == "NO_EDGE"
    unreachable = story(seen(reason="PROVIDER_UNREACHABLE"))
    only_full = replaced(OWN, edges=(edge("a", "c", allowed_reasons=("overloaded",)),))
    assert step(rules=only_full).route_id == "c"
    assert step(unreachable, rules=only_full).route_id == "a"


def test_the_last_attempt_goes_to_an_own_route_that_was_not_tried_before_any_fallback():
    """FBK-1: an answer of the main path is not given up while one of its routes is untried."""
    cooled = story(cooldowns=(Cooldown(route_id="b", until_us=NOW_US + 3_000_000),))
    assert (step(cooled).route_id, step(cooled, rules=TWO).route_id) == ("a", "b")
    down = (STATES[0], state("b", healthy=False), STATES[2])
    assert step(rules=TWO, states=down).route_id == "c"


def test_the_try_without_what_was_refused_is_not_counted_among_the_attempts():
    """RTY-2: it costs none, so the limit leaves room for what follows it."""
    without = seen(1, kind="retry", without=("seed",))
    first = seen(reason="PROVIDER_PARAMETER_REFUSED", refused_parameters=("seed",))
    assert step(story(first, without), rules=TWO).action == "retry"
    assert step(story(first, without, seen(2)), rules=TWO).reason == "ATTEMPTS_USED_UP"


def test_what_is_left_of_deadline_money_and_slots_bounds_every_step():
    assert step(story(deadline_left_us=0)).reason == "DEADLINE_PASSED"
    late = step(story(deadline_left_us=1_000))
    assert (late.action, why(late, "retry")) == ("none", "NO_ROUTE_LEFT")
    poor = replaced(ASKED, budget=replaced(ASKED.budget, max_cost_pico=4_000_000_000))
    assert step(asked=poor).action == "retry"
    assert step(story(committed_pico=3_000_000_000), asked=poor).action == "none"
    assert step(tenant=tenant(in_flight=4)).reason == "TENANT_CONCURRENCY_LIMIT"


def test_a_hedge_is_another_fresh_primary_of_a_request_without_side_effects():
    silent = story(seen(state="running", reason=None), asked="hedge_due")
    assert (step(silent).action, step(silent).route_id) == ("hedge", "b")
    risky = replaced(ASKED, side_effects=True)
    assert step(silent, asked=risky).reason == "SIDE_EFFECTS"
    spent = msgspec.structs.replace(silent, hedges_in_minute=5)
    assert step(spent).reason == "HEDGE_BUDGET_SPENT"
    stale = (STATES[0], state("b", observed_at_us=NOW_US - 6_000_000), STATES[2])
    assert step(silent, states=stale).reason == "NO_ROUTE_LEFT"


def drawn(seed: int):
    """A question drawn from a seed: the same for ever, as the golden digest needs it."""
    random = Random(seed)
    attempts = []
    for ordinal in range(random.randint(1, 4)):
        kind = random.choice(list(CODES))
        attempts.append(
            seen(
                ordinal, kind, random.choice(CODES[kind]), route_id=random.choice("abc"),
                delivered=random.random() < 0.1,
                refused_parameters=("seed",) if random.random() < 0.1 else (),
            )
        )  # fmt: skip
    asked = replaced(ASKED, side_effects=random.random() < 0.3)
    states = tuple(
        state(each, healthy=random.random() < 0.8, free_kv_tokens=random.choice((0, 30_000)))
        for each in "abc"
    )
    of = story(
        *attempts,
        asked=random.choice(("ended", "hedge_due")),
        deadline_left_us=random.choice((0, 4_000_000, 30_000_000)),
        again_in_minute=random.choice((0, 19, 20)),
        jitter_permille=random.randint(0, 1_000),
        cooldowns=(Cooldown(route_id="a", until_us=NOW_US + random.randint(-10, 10_000_000)),),
    )
    return of, asked, states


def test_this_code_revision_answers_the_corpus_as_it_always_did():
    digest = sha256()
    for seed in range(1_000):
        of, asked, states = drawn(seed)
        last_one = step(msgspec.structs.replace(of, attempts=(seen(),)), asked, OWN)
        for found in (step(of, asked, states=states), last_one):
            digest.update(canonical(found).encode() + b"\n")
    assert digest.hexdigest() == GOLDEN.get(CODE_REVISION), (
        f"`next_step` answers otherwise than {CODE_REVISION} did. If that is meant, raise its "
        f"revision in attempt_replay.py and pin the new digest here: {digest.hexdigest()}"
    )


@given(st.integers(0, 10**9).map(drawn))
def test_no_answer_breaks_a_bound(question):
    of, asked, states = question
    found = step(of, asked, states=states)
    assert canonical(found) == canonical(step(of, asked, states=states))
    if found.action == "none":
        assert (found.route_id, found.ordinal) == (None, None)
        return
    assert found.ordinal == len(of.attempts)
    assert not any(each.delivered for each in of.attempts)
    assert found.e2e_us is not None and found.e2e_us <= of.deadline_left_us
    assert next(each for each in states if each.route_id == found.route_id).healthy
    if found.reason != "OPTIONAL_PARAMETERS_REFUSED":
        assert len(of.attempts) < RULES.limit
    if found.action == "retry":
        assert of.attempts[-1].state == "not_run"
    if found.action == "hedge":
        assert not asked.side_effects
    if found.action == "fallback":
        assert found.degraded_from is not None
        assert not (asked.side_effects and any(a.state == "unknown" for a in of.attempts))


def test_rules_that_are_out_of_range_or_never_act_cant_be_published():
    assert problems(POLICY) == ()
    for rules, where in (
        (AttemptRules(limit=0), "attempts limit"),
        (AttemptRules(limit=9), "attempts limit"),
        (
            AttemptRules(retry=RetryRule(backoff_us=9, backoff_most_us=1)),
            "attempts retry.backoff_us",
        ),
        (AttemptRules(hedge=HedgeRule(delay_us=1)), "attempts hedge"),
        (AttemptRules(breaker=BreakerRule(failures=0)), "attempts breaker.failures"),
    ):
        found = problems(replaced(POLICY, attempts=rules))
        assert [each.where for each in found] == [where]
