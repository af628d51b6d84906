"""RTY-2: a circuit breaker over what is known of a route, and what happens when all look bad."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.breaking import Breaker, at, ended, let_through, lets_through, sent
from gateway.policy.retrying import AttemptState, verdict_of
from gateway.policy.values import BreakerRule

RULE = BreakerRule(failures=3, failed_permille=500, window_us=1_000, open_us=100)
T = 1_000_000


def after(*verdicts, rule=RULE, breaker=None, now_us=T):
    breaker = breaker or Breaker()
    for verdict in verdicts:
        breaker = ended(breaker, verdict, rule, now_us)
    return breaker


def test_it_opens_at_so_many_bad_ends_that_are_such_a_share_of_the_window():
    assert after("bad", "bad").state == "closed"
    assert after("bad", "bad", "bad").state == "open"
    assert after("good", "good", "good", "good", "bad", "bad", "bad").state == "closed"
    assert after("good", "good", "good", "bad", "bad", "bad").state == "open"


def test_clients_errors_full_queues_and_cancels_are_neutral():
    assert after(*["neutral"] * 50) == Breaker()
    told: tuple[tuple[AttemptState, str], ...] = (
        ("not_run", "PROVIDER_REFUSED"),
        ("not_run", "PROVIDER_RATE_LIMITED"),
        ("not_run", "PROVIDER_OVERLOADED"),
        ("not_run", "PROVIDER_CREDENTIAL_REFUSED"),
        ("cancelled", "CLIENT_GONE"),
        ("unknown", "CANCEL_NOT_ACKNOWLEDGED"),
        ("unknown", "SHUTDOWN"),
    )
    for state, reason in told:
        assert verdict_of(state, reason) == "neutral", reason
    assert verdict_of("not_run", "PROVIDER_UNREACHABLE") == "bad"
    assert verdict_of("unknown", "PROVIDER_CONNECTION_LOST") == "bad"
    assert verdict_of("failed", "PROVIDER_INTERNAL_ERROR") == "bad"
    assert verdict_of("completed", None) == "good"


def test_bad_ends_of_an_earlier_window_are_forgotten():
    breaker = after("bad", "bad")
    breaker = ended(breaker, "bad", RULE, T + RULE.window_us)
    assert (breaker.state, breaker.bad) == ("closed", 1)


def test_a_window_ends_when_its_time_has_passed_and_not_before():
    breaker = after("good", "bad", "bad")
    within = ended(breaker, "bad", RULE, T + RULE.window_us - 1)
    assert (within.state, within.until_us) == ("open", T + RULE.window_us - 1 + RULE.open_us)
    later = ended(breaker, "good", RULE, T + RULE.window_us)
    assert later == Breaker(window_at_us=T + RULE.window_us, good=1)
    assert ended(breaker, "good", RULE, T + 1) == Breaker(window_at_us=T, good=2, bad=2)


def test_what_ends_while_it_is_open_changes_nothing():
    opened = after("bad", "bad", "bad")
    assert all(after(verdict, breaker=opened) == opened for verdict in ("good", "bad", "neutral"))


def test_a_good_probe_makes_the_next_pause_short_again_and_begins_a_window():
    half_open = at(after("bad", "bad", "bad"), T + 100)
    closed = ended(sent(half_open), "good", RULE, T + 150)
    assert closed == Breaker(window_at_us=T + 150)
    assert sent(closed) == closed
    assert after("bad", "bad", "bad", breaker=closed, now_us=T + 200).until_us == T + 300


def test_a_route_whose_probe_is_out_is_sent_nothing_while_another_may_be():
    probing = sent(at(after("bad", "bad", "bad"), T + 100))
    assert let_through({"a": probing, "b": Breaker()}, (), RULE) == {"b"}
    assert let_through({"a": probing}, (), BreakerRule(when_all_unhealthy="refuse")) == set()


def test_after_its_pause_one_request_may_try_and_its_end_decides():
    opened = after("bad", "bad", "bad")
    assert not lets_through(at(opened, T + 99))
    half_open = at(opened, T + 100)
    assert lets_through(half_open)
    probing = sent(half_open)
    assert not lets_through(probing)
    assert lets_through(ended(probing, "neutral", RULE, T + 150))  # it said nothing: another one
    assert ended(probing, "good", RULE, T + 150).state == "closed"
    again = ended(probing, "bad", RULE, T + 150)
    assert (again.state, again.until_us) == ("open", T + 150 + 200)  # twice as long


def test_the_pause_grows_to_eight_times_and_no_further():
    breaker, now_us = after("bad", "bad", "bad"), T
    pauses = []
    for _ in range(6):
        pauses.append(breaker.until_us - now_us)
        now_us = breaker.until_us
        breaker = ended(sent(at(breaker, now_us)), "bad", RULE, now_us)
    assert pauses == [100, 200, 400, 800, 800, 800]


@pytest.mark.parametrize(
    ("when_all_unhealthy", "passing"), [("refuse", set()), ("try_all", {"a", "b"})]
)
def test_what_happens_when_all_look_unhealthy_is_declared(when_all_unhealthy, passing):
    rule = BreakerRule(failures=3, when_all_unhealthy=when_all_unhealthy)
    opened = after("bad", "bad", "bad")
    assert let_through({"a": opened, "b": opened}, (), rule) == passing
    assert let_through({"a": opened, "b": Breaker()}, (), rule) == {"b"}
    assert let_through({"a": opened, "b": Breaker()}, ("b",), rule) == passing - {"b"}


verdicts = st.sampled_from(["good", "bad", "neutral"])


@given(st.lists(st.tuples(verdicts, st.integers(0, 300)), max_size=60))
def test_an_open_breaker_always_gets_its_probe_and_never_two_at_once(ends):
    breaker, now_us = Breaker(), T
    for verdict, passed_us in ends:
        now_us += passed_us
        breaker = at(breaker, now_us)
        if lets_through(breaker):
            breaker = sent(breaker)
            assert breaker.state != "half_open" or not lets_through(breaker)
            breaker = ended(breaker, verdict, RULE, now_us)
        assert breaker.until_us <= now_us + 8 * RULE.open_us
    later = at(breaker, now_us + 8 * RULE.open_us)
    assert lets_through(later)
