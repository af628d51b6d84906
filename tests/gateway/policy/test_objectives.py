"""RTE-1: a caller's own latency objectives come before the policy's order, and refuse nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import objectives
from gateway.policy.admission import decide
from tests.policy_factories import context, policy, prediction, rate, rates, request, route, state

# quick: TTFT 120 + 100 + 40 + 20 = 280 ms, 30 ms a token. steady: 120 + 400 + 60 = 580 ms, 10 ms.
QUICK = route("quick", prediction=prediction(prefill_base_us=100_000, inter_token_us=30_000))
STEADY = route("steady", prediction=prediction(prefill_base_us=400_000, inter_token_us=10_000))
RULES = policy(QUICK, STEADY)
IDLE = context(state("quick"), state("steady"), rates=rates(rate("quick"), rate("steady")))


def decided(**asked):
    return decide(request(**asked), RULES.routes, IDLE, RULES)


def test_without_an_objective_the_policys_order_decides():
    decision = decided()
    assert (decision.route_id, decision.ttft_us) == ("steady", 580_000)
    assert not {objectives.MET, objectives.MISSED} & set(decision.reasons)


@pytest.mark.parametrize(
    ("asked", "winner", "reason"),
    [
        ({"ttft_objective_us": 280_000}, "quick", objectives.MET),
        ({"ttft_objective_us": 279_999}, "steady", objectives.MISSED),  # none: the order decides
        ({"ttft_objective_us": 580_000}, "steady", objectives.MET),
        ({"tpot_objective_us": 10_000}, "steady", objectives.MET),
        ({"tpot_objective_us": 9_999}, "steady", objectives.MISSED),
        ({"tpot_objective_us": 30_000, "ttft_objective_us": 300_000}, "quick", objectives.MET),
        ({"tpot_objective_us": 20_000, "ttft_objective_us": 300_000}, "steady", objectives.MISSED),
        # There is no token after the first.
        ({"tpot_objective_us": 1, "max_output_tokens": 1}, "quick", objectives.MET),
    ],
)
def test_routes_that_are_predicted_to_meet_it_come_first(asked, winner, reason):
    decision = decided(**asked)
    assert (decision.status, decision.route_id) == ("accepted", winner)
    assert reason in decision.reasons


def test_all_candidates_stay_on_record_whichever_is_preferred():
    decision = decided(ttft_objective_us=280_000)
    assert [each.route_id for each in decision.candidates] == ["quick", "steady"]
    assert decision.reasons[-1] == "ONLY_CANDIDATE"  # of those that meet it


@given(st.one_of(st.none(), st.integers(1, 10**6)), st.one_of(st.none(), st.integers(1, 10**5)))
def test_an_objective_changes_the_route_and_never_the_verdict(ttft_us, tpot_us):
    plain = decided()
    wished = decided(ttft_objective_us=ttft_us, tpot_objective_us=tpot_us)
    assert wished.status == plain.status
    assert wished.candidates == plain.candidates
    if objectives.MISSED in wished.reasons:
        assert wished.route_id == plain.route_id
