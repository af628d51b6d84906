"""ADM-5: predictions learned from receipts, per route and bucket, conservative and revisioned."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission import decide
from gateway.policy.learning import BUCKETS_TOKENS, Learned, Observed, differs, learn, with_learned
from gateway.policy.values import LearningRule, PredictionBucket
from tests.gateway.policy.corpus import Case, Draw, case
from tests.policy_factories import context, course_policy, replaced, request

RULE = LearningRule(window_requests=100, least_requests=10, change_permille=100)


def observed(seq: int, tokens: int = 500, prefill_us: int = 0, gap_us: int | None = 0) -> Observed:
    return Observed(seq=seq, input_tokens=tokens, prefill_us=prefill_us, inter_token_us=gap_us)


def bucket(prefill_us: int, gap_us: int = 9_000, over: int = 256) -> PredictionBucket:
    upto = BUCKETS_TOKENS[BUCKETS_TOKENS.index(over) + 1]
    return PredictionBucket(
        over_tokens=over,
        upto_tokens=upto,
        prefill_us=prefill_us,
        inter_token_us=gap_us,
        requests=10,
    )


def test_a_bucket_learns_the_nearest_rank_p90_of_its_last_requests():
    rows = [observed(n, prefill_us=n * 1_000, gap_us=n * 10) for n in range(1, 201)]
    (learned,) = learn(rows, RULE)
    # Of the last hundred, 101..200, the 90th: 190.
    assert learned == PredictionBucket(
        over_tokens=256, upto_tokens=1_024, prefill_us=190_000, inter_token_us=1_900, requests=100
    )


def test_too_few_requests_in_a_bucket_teach_nothing():
    assert learn([observed(n) for n in range(9)], RULE) == ()
    assert len(learn([observed(n) for n in range(10)], RULE)) == 1
    single_tokens = [observed(n, gap_us=None) for n in range(50)]
    assert learn(single_tokens, RULE) == ()


rows = st.lists(
    st.tuples(st.integers(1, 300_000), st.integers(0, 10**7), st.integers(0, 10**6)),
    max_size=80,
)


@given(rows, st.randoms())
def test_the_same_receipts_teach_the_same_in_any_order(made, random):
    every = [observed(seq, *values) for seq, values in enumerate(made)]
    shuffled = random.sample(every, len(every))
    assert learn(shuffled, RULE) == learn(every, RULE)
    for each in learn(every, RULE):
        inside = [o for o in every if each.over_tokens < o.input_tokens <= each.upto_tokens]
        within = sum(o.prefill_us <= each.prefill_us for o in inside)
        assert within * 10 >= 9 * len(inside)  # conservative: nine in ten were as fast


def test_a_revision_is_worth_it_only_where_something_moved_by_the_threshold():
    old = (bucket(100_000),)
    assert not differs(old, (bucket(110_000),), RULE)
    assert differs(old, (bucket(110_001),), RULE)
    assert differs(old, (bucket(89_999),), RULE)
    assert differs(old, (bucket(100_000, 9_901),), RULE)
    assert differs(old, (*old, bucket(1, over=1_024)), RULE)
    assert differs((), old, RULE)
    assert not differs(old, (replaced(old[0], requests=99),), RULE)


def taught(*buckets: PredictionBucket, identity_id: str = "identity-of-fast-v2", **changed):
    rules = course_policy(learning=RULE, **changed)
    learned = Learned(
        route_id="fast-v2", revision="learned-7", identity_id=identity_id, buckets=buckets
    )
    return rules, with_learned(rules, {"fast-v2": learned})


def test_an_estimate_takes_the_bucket_of_its_tokens_and_else_what_was_declared():
    rules, routes = taught(bucket(300_000, 30_000))
    inside = decide(request(tokens=1_000), routes, context(), rules)
    assert inside.ttft_us == 120_000 + 300_000 + 60_000  # the declared prefill is 260,000
    assert inside.e2e_us == inside.ttft_us + 199 * 30_000
    outside = decide(request(tokens=200), routes, context(), rules)
    assert outside.e2e_us == 440_000 + 199 * 24_000
    assert routes[0].prediction.revision == "learned-7"
    assert routes[1] is rules.routes[1]


def test_nothing_is_taken_over_from_another_model_identity_or_where_learning_is_off():
    rules, routes = taught(bucket(300_000), identity_id="identity-of-another")
    assert routes == rules.routes
    rules, _ = taught(bucket(300_000))
    off = replaced(rules, learning=None)
    learned = Learned(
        route_id="fast-v2", revision="r", identity_id="identity-of-fast-v2", buckets=(bucket(1),)
    )
    assert with_learned(off, {"fast-v2": learned}) is off.routes


@given(st.integers(0, 10**9).map(case), st.integers(0, 10**9))
def test_learning_moves_estimates_and_removes_no_hard_limit(each: Case, seed: int):
    draw = Draw(seed)
    policy = replaced(each.policy, learning=LearningRule())
    learned = {
        route.route_id: Learned(
            route_id=route.route_id,
            revision="learned-1",
            identity_id=route.identity_id,
            buckets=tuple(
                bucket(draw.between(0, 400_000), draw.between(1, 50_000), over)
                for over in BUCKETS_TOKENS[:-1]
            ),
        )
        for route in each.routes
    }
    routes = with_learned(replaced(policy, routes=each.routes), learned)
    decision = decide(each.request, routes, each.context, policy)
    declared = decide(*each)
    if decision.status == "accepted":
        winner = next(r for r in each.routes if r.route_id == decision.route_id)
        budget = each.request.budget
        assert (decision.e2e_us or 0) <= budget.deadline_us
        assert decision.input_tokens + budget.max_output_tokens <= winner.max_total_tokens
        assert budget.max_cost_pico is None or (decision.cost_pico or 0) <= budget.max_cost_pico
    early = {"TOKEN_BUDGET_EXCEEDED", "TENANT_CONCURRENCY_LIMIT", "TENANT_RATE_LIMIT",
             "INVALID_TOKEN_BUDGET", "CAPABILITY_UNAVAILABLE", "POLICY_DENIED",
             "QUALITY_FLOOR_UNMET"}  # fmt: skip
    if declared.reason_code in early:
        assert (decision.reason_code, decision.limits) == (declared.reason_code, declared.limits)


def test_a_learned_prediction_is_encoded_and_read_back():
    text = msgspec.json.encode((bucket(5),))
    assert msgspec.json.decode(text, type=tuple[PredictionBucket, ...]) == (bucket(5),)
