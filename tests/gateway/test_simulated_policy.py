"""SIM-1: the gateway's own admission and order as a policy of a simulation."""

from dataclasses import replace

import numpy as np

from gateway.simulated_policy import NAME, admission, prediction_of
from simulator.profiles import profile
from simulator.replay import Scenario, replay
from simulator.timing import TimeModel
from simulator.traces import NONE
from simulator.workload import generate_conversation_hour, scaled

TRACE = scaled(generate_conversation_hour(3, 300), 400.0)
PROFILE = profile("llama-3.1-8b-rtx4090")


def run(trace, routing=admission, replicas=2):
    return replay(
        Scenario(trace=trace, profile=PROFILE, replicas=replicas, policy=NAME, routing=routing)
    ).summary


def test_a_prediction_is_read_off_the_time_model():
    # f(1) = 10 us and f(1,001) = 1,010 us; 1,001 tokens have 1,001 x 1,000 / 2 = 500,500 pairs of
    # 2 ps, 1.001 us more. A decode step over 1,000 tokens: 10 us + 3 us + 1,000 x 1 ns.
    time = TimeModel(
        name="hand",
        breakpoints=((1, 10_000_000), (1_001, 1_010_000_000)),
        per_decode_ps=3_000_000,
        per_context_token_ps=1_000,
        per_attention_pair_ps=2,
        mixed_ps=0,
        calibrated=False,
    )
    found = prediction_of(time)
    assert found.prefill_base_us == 10
    assert found.prefill_us_per_ktok == 1_002  # 1,000 + 1.001, rounded up
    assert found.inter_token_us == 14


def test_what_no_deadline_could_meet_is_shed_and_the_rest_is_served():
    calm = generate_conversation_hour(3, 300)
    deadline = np.where(np.arange(len(calm)) % 3 == 0, calm.arrival_us + 1, NONE)
    found = run(replace(calm, deadline_us=deadline))
    assert (found.shed, found.completed) == (100, 200)
    assert found.shed_reasons == (("DEADLINE_INSUFFICIENT", 100),)
    assert "shed: 100 DEADLINE_INSUFFICIENT" in found.notes


def test_what_is_accepted_spreads_over_the_replicas_as_behind_a_live_route():
    """SIM-1: with nothing to reject, each replica more helps as much as least-loaded does."""
    steady = scaled(generate_conversation_hour(3, 150), 60.0)
    for replicas in (2, 3):
        ours = run(steady, replicas=replicas)
        theirs = replay(Scenario(trace=steady, profile=PROFILE, replicas=replicas)).summary
        assert ours.shed == 0
        assert (ours.e2e, ours.busy_shares) == (theirs.e2e, theirs.busy_shares)


def test_under_overload_those_accepted_meet_their_deadline_more_often():
    """ADM-8: the finish that admission predicts is what keeps the late ones out."""
    hurried = replace(TRACE, deadline_us=TRACE.arrival_us + 30_000_000)
    admitted = run(hurried, replicas=1)
    everyone = replay(Scenario(trace=hurried, profile=PROFILE)).summary
    assert admitted.shed > 0 and everyone.shed == 0
    in_time = round(admitted.goodput_share * admitted.requests) / admitted.completed
    assert in_time > everyone.goodput_share


def test_the_same_scenario_gives_the_same_run():
    assert run(TRACE) == run(TRACE)
