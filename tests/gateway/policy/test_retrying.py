"""RTY-1, RTY-2: what may be tried again, when, and how often."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.retrying import (
    MISCONFIGURED,
    NOT_REACHED,
    OVERLOADED,
    AttemptSeen,
    Cooldown,
    backoff_us,
    fault_of,
    longer,
    may_retry,
    stripped,
    waits_us,
    within_budget,
)
from gateway.policy.values import RetryRule

RULE = RetryRule(backoff_us=100, backoff_most_us=1_000)


def seen(state="not_run", reason="PROVIDER_OVERLOADED", **more):
    return AttemptSeen(
        **{"ordinal": 0, "kind": "primary", "route_id": "a", "state": state, "reason": reason}
        | more
    )


@pytest.mark.parametrize("reason", sorted(OVERLOADED | NOT_REACHED))
def test_only_what_is_known_not_to_have_run_may_be_retried(reason):
    assert may_retry(seen(reason=reason)) is None
    for state in ("failed", "unknown"):
        assert may_retry(seen(state, reason)) == "MAY_HAVE_RUN"
    assert may_retry(seen("cancelled", reason)) == "CANCELLED"


def test_no_error_of_the_client_or_of_the_configuration_is_retried():
    assert may_retry(seen(reason="PROVIDER_REFUSED")) == "CLIENT_ERROR"
    assert may_retry(seen(reason="PROVIDER_REQUEST_TOO_LARGE")) == "CLIENT_ERROR"
    assert {may_retry(seen(reason=reason)) for reason in MISCONFIGURED} == {"ROUTE_MISCONFIGURED"}


def test_which_edges_an_end_opens():
    assert fault_of(seen()) == "overloaded"
    assert fault_of(seen(reason="PROVIDER_UNREACHABLE")) == "unhealthy"
    assert fault_of(seen("unknown", "PROVIDER_SILENT")) == "unhealthy"
    assert fault_of(seen("failed", "PROVIDER_INTERNAL_ERROR")) == "unhealthy"
    assert fault_of(seen(reason="PROVIDER_REFUSED")) is None
    assert fault_of(seen("unknown", "CANCEL_NOT_ACKNOWLEDGED")) is None


def test_optional_parameters_are_left_out_once():
    refused = seen(reason="PROVIDER_REFUSED", refused_parameters=("seed", "logprobs"))
    assert stripped((refused,)) == ("logprobs", "seed")
    assert (
        stripped((refused, seen(ordinal=1, without=("seed",), refused_parameters=("stop",)))) == ()
    )
    assert stripped((seen(reason="PROVIDER_REFUSED"),)) == ()


def test_a_budget_is_a_share_of_the_minute_or_the_least():
    assert within_budget(0, 0, 200, 10) and within_budget(9, 0, 200, 10)
    assert not within_budget(10, 50, 200, 10)
    assert within_budget(19, 100, 200, 10) and not within_budget(20, 100, 200, 10)
    assert not within_budget(0, 1_000_000, 0, 0)


def test_of_two_cooldowns_the_longer_wins():
    assert longer({"a": 500}, "a", 400) == 500
    assert longer({"a": 500}, "a", 600) == 600
    assert longer({}, "a", 600) == 600


@given(st.integers(1, 100), st.integers(0, 1_000))
def test_a_backoff_is_half_to_all_of_its_step_and_has_a_most(tries, jitter):
    step = min(100 * 2 ** (tries - 1), 1_000)
    assert step // 2 <= backoff_us(RULE, tries, jitter) <= step
    assert backoff_us(RULE, tries, 1_000) == step


def test_a_route_waits_for_the_longer_of_backoff_and_cooldown_and_another_not_at_all():
    """Retry-After: from now, in the past and longer than the backoff."""
    waits = waits_us(RULE, (seen(),), (Cooldown(route_id="a", until_us=9_000),), 5_000, 1_000)
    assert waits == {"a": 4_000}
    past = waits_us(RULE, (seen(),), (Cooldown(route_id="a", until_us=10),), 5_000, 1_000)
    assert past == {"a": 100}
    other = waits_us(RULE, (seen(),), (Cooldown(route_id="b", until_us=6_000),), 5_000, 0)
    assert other == {"a": 50, "b": 1_000}
