"""The desk: decide and take in one step, and write down what the decision saw (ADM-7, RTE-2)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import replay
from gateway.quota import Quota
from ledger.records import Attempt, CapacitySnapshotRecord, Reservation, RouteDecision, TraceEvent
from tests.gateway.weighing import TENANT, desk, weigh
from tests.policy_factories import NOW_US, PICO, snapshot


def of_type(weighed, record_type):
    return [record for record in weighed.records if isinstance(record, record_type)]


def test_an_accepted_request_has_its_decision_reservation_and_attempt_in_one_commit():
    """The course's req-normal: 440 ms to the first token, 5,216 ms in all, 0.0036 units."""
    weighed = weigh(desk())
    (decision,), (reservation,) = of_type(weighed, RouteDecision), of_type(weighed, Reservation)
    (attempt,), (trace,) = of_type(weighed, Attempt), of_type(weighed, TraceEvent)
    assert (decision.status, decision.route_id, decision.reason_code) == (
        "accepted", "fast-v2", None,
    )  # fmt: skip
    assert (reservation.kv_tokens, reservation.input_tokens, reservation.output_tokens) == (
        1_200, 1_000, 200,
    )  # fmt: skip
    assert reservation.cost_pico == 3_600_000_000
    assert reservation.bound_at_us == NOW_US + 8_000_000 + 60_000_000
    assert (attempt.attempt_id, attempt.kind, attempt.route_id) == ("req_1.0", "primary", "fast-v2")
    assert trace.event == "inference.route.selected"
    assert decision.digest == replay.digest(decision.inputs_json, decision.decision_json)


def test_a_refused_request_takes_nothing_and_reserves_nothing():
    at = desk()
    weighed = weigh(at, tokens=60_000)
    assert weighed.hold is None and weighed.route is None
    assert Counter(type(record) for record in weighed.records) == {
        CapacitySnapshotRecord: 2, RouteDecision: 1, TraceEvent: 1,
    }  # fmt: skip
    assert (at.book.in_flight(), at.book.kv_held_tokens(), at.book.pending_pico()) == (0, 0, 0)


def test_each_snapshot_is_filed_with_the_first_decision_that_saw_it():
    at = desk()
    assert len(of_type(weigh(at, 1), CapacitySnapshotRecord)) == 2
    assert of_type(weigh(at, 2), CapacitySnapshotRecord) == []
    at.book.observe(snapshot("fast-v2", revision=2, observed_at_us=NOW_US + 1))
    (filed,) = of_type(weigh(at, 3, now_us=NOW_US + 2), CapacitySnapshotRecord)
    assert (filed.route_id, filed.revision) == ("fast-v2", 2)


def test_snapshots_whose_commit_failed_are_filed_again():
    at = desk()
    lost = weigh(at, 1)
    at.snapshots_lost(lost.records)
    again = weigh(at, 2)
    assert of_type(again, CapacitySnapshotRecord) == of_type(lost, CapacitySnapshotRecord)
    assert of_type(weigh(at, 3), CapacitySnapshotRecord) == []


def test_what_was_written_down_is_enough_to_decide_the_same_again():
    at = desk()
    for number in range(6):
        (record,) = of_type(weigh(at, number), RouteDecision)
        inputs = replay.decode_inputs(record.inputs_json)
        assert inputs.tenant.in_flight == min(number, 4)
        assert replay.decode_decision(record.decision_json).status == record.status


def test_a_tenant_at_its_limit_is_refused_until_a_slot_is_given_back():
    at = desk(quota=Quota(in_flight_limit=1))
    first = weigh(at, 1)
    assert weigh(at, 2).decision.reason_code == "TENANT_CONCURRENCY_LIMIT"
    assert first.hold is not None
    at.book.release(first.hold)
    assert weigh(at, 3).decision.status == "accepted"


@given(limit=st.integers(1, 12), racing=st.integers(1, 30))
def test_of_many_racing_for_slots_exactly_as_many_are_accepted_as_fit(limit, racing):
    at = desk(quota=Quota(in_flight_limit=limit), free_kv_tokens=10**9)
    accepted = [weigh(at, n) for n in range(racing)]
    assert sum(w.hold is not None for w in accepted) == min(limit, racing) == at.book.in_flight()


@given(free_kv_tokens=st.integers(0, 20_000), racing=st.integers(1, 30))
def test_of_many_racing_for_kv_exactly_as_many_are_accepted_as_fit(free_kv_tokens, racing):
    """1,200 tokens each; the slower route would miss the deadline by 24 ms."""
    at = desk(quota=Quota(in_flight_limit=1_000), free_kv_tokens=free_kv_tokens)
    accepted = [w for n in range(racing) if (w := weigh(at, n)).hold is not None]
    assert len(accepted) == min(racing, free_kv_tokens // 1_200)
    assert at.book.kv_held_tokens() == len(accepted) * 1_200
    assert {w.hold.route_id for w in accepted} <= {"fast-v2"}


@given(cents=st.integers(0, 40), racing=st.integers(1, 20))
def test_of_many_racing_for_money_exactly_as_many_are_accepted_as_fit(cents, racing):
    """0.0036 units each on the cheapest route; pending money counts like spent money."""
    budget_pico = cents * PICO // 1_000
    quota = Quota(in_flight_limit=1_000, budget_pico=budget_pico)
    at = desk(quota=quota, free_kv_tokens=10**9)
    accepted = sum(weigh(at, n).hold is not None for n in range(racing))
    assert accepted == min(racing, budget_pico // 3_600_000_000)
    assert at.book.pending_pico() == accepted * 3_600_000_000 <= budget_pico
    assert at.book.tenant_state(TENANT, NOW_US).pending_pico == at.book.pending_pico()
