"""HDG-1: each reason against a hedge by itself, and each debt of its loser by itself."""

import pytest

from gateway.policy.hedging import Loser, gate, may_hedge
from gateway.policy.retrying import AttemptSeen
from gateway.policy.values import AttemptRules, HedgeRule
from tests.policy_factories import policy, replaced, request, route

HEDGED = policy(route("a"), attempts=AttemptRules(hedge=HedgeRule(delay_us=1_000)))
SILENT = AttemptSeen(ordinal=0, kind="primary", route_id="a", state="running")
REFUSED = replaced(SILENT, state="not_run", reason="PROVIDER_OVERLOADED")
LOST = Loser(attempt_id="x.0", cancel_sent=True, acknowledged=True, slots_held=0, cost_pico=7)


@pytest.mark.parametrize(
    ("attempts", "reason"),
    [
        ((SILENT,), None),
        ((REFUSED, replaced(SILENT, ordinal=1, kind="retry")), None),
        ((REFUSED,), "NOT_ONE_RUNNING"),
        ((SILENT, replaced(SILENT, ordinal=1, kind="retry")), "NOT_ONE_RUNNING"),
        ((replaced(SILENT, delivered=True),), "ALREADY_DELIVERED"),
        ((SILENT, replaced(REFUSED, ordinal=1, kind="hedge")), "HEDGED_BEFORE"),
    ],
)
def test_only_beside_one_silent_attempt_a_request_may_be_hedged(
    attempts: tuple[AttemptSeen, ...], reason: str | None
):
    assert may_hedge(request(), HEDGED, attempts) == reason


def test_side_effects_or_a_policy_without_a_rule_allow_no_hedge():
    assert may_hedge(request(side_effects=True), HEDGED, (SILENT,)) == "SIDE_EFFECTS"
    without = policy(route("a"), attempts=AttemptRules())
    assert may_hedge(request(), without, (SILENT,)) == "NO_HEDGE_RULE"


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({}, ()),
        ({"cancel_sent": False}, ()),  # its end is known: there was nothing left to cancel
        ({"acknowledged": False}, ("x.0: its cost of 7 pico is still open",)),
        (
            {"acknowledged": False, "cancel_sent": False},
            ("x.0: it was never cancelled", "x.0: its cost of 7 pico is still open"),
        ),
        ({"slots_held": 1}, ("x.0: it still holds 1 slot",)),
    ],
)
def test_a_losers_debts_are_named_one_by_one(changed: dict[str, object], problems: tuple[str, ...]):
    assert gate((replaced(LOST, **changed),)) == problems
    assert gate((LOST, replaced(LOST, **changed))) == problems
