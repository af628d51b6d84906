"""Several objectives act in one pass: each sees what those before it have changed (SLO-4)."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.operations.base import Done
from gateway.operations.control import DeclareSlo, UndoAction
from gateway.operations.tenants import SetTenant
from gateway.quota import Quota
from ledger.records import Tenant
from ledger.slo import Action
from ledger.slo_defaults import DEFAULT_SLOS
from ledger.slo_text import to_json
from tests.gateway.control.ledger_of import (
    MINUTE_US,
    NOW_US,
    SHED,
    STEP_US,
    actions,
    closed,
    evaluate,
    experiment_one,
    perform,
    policy_now,
    pour,
    rows,
)

CAPACITY = next(one for one in DEFAULT_SLOS if one.indicator == "capacity")
VALID = next(one for one in DEFAULT_SLOS if one.indicator == "valid_completion")
FAILED: Any = {"status": "failed", "terminal_error_code": "PROVIDER_FAILED"}


def declared(fleet, of, slo_id, action):
    """An objective like one that ships, with another action, counted from the last quarter hour."""
    asked = DeclareSlo(
        slo_id=slo_id, body_json=to_json(replace(of, action=action)), reason="a second promise"
    )
    assert isinstance(perform(fleet, asked, NOW_US - 16 * MINUTE_US), Done)


def slots(fleet):
    newest = rows(fleet, Tenant, "tenant_id = 'back-office'")[-1]
    return msgspec.json.decode(newest.body_json, type=Quota).in_flight_limit


def of_quotas(fleet):
    found = {}
    for one in actions(fleet):
        if one.action == "slo.change_quota":
            found[one.episode.partition("/")[0]] = one
    return found


@pytest.fixture
def halved_twice(fleet):
    """Two objectives that halve one tenant's slots by themselves, and alert in one window."""
    for slo_id in ("quota-a", "quota-b"):
        action = Action(kind="change_quota", target="back-office", automatic=True)
        declared(fleet, CAPACITY, slo_id, action)
    pour(fleet, experiment_one(NOW_US - STEP_US, slow=0, **SHED))
    assert isinstance(evaluate(fleet, closed(NOW_US)), Done)
    return fleet


def test_two_objectives_halve_one_quota_in_one_pass(halved_twice):
    assert slots(halved_twice) == 3
    phases = {name: one.phase for name, one in of_quotas(halved_twice).items()}
    assert (phases["quota-a"], phases["quota-b"]) == ("applied", "applied")


@pytest.mark.parametrize("order", [("quota-a", "quota-b"), ("quota-b", "quota-a")])
def test_a_quota_is_as_it_was_once_both_are_undone_in_whatever_order(halved_twice, order):
    left = []
    for turn, slo_id in enumerate(order):
        undo = UndoAction(episode=str(of_quotas(halved_twice)[slo_id].episode), reason="over")
        assert isinstance(perform(halved_twice, undo, closed(NOW_US) + 1 + turn), Done)
        left.append(slots(halved_twice))
    assert left == [6, 12]


def test_calm_undoes_both_in_one_pass(halved_twice):
    for step in range(1, 10):  # undone after the sixth
        start_us = NOW_US + (step - 1) * STEP_US
        pour(halved_twice, experiment_one(start_us, times=5, slow=0))
        assert isinstance(evaluate(halved_twice, closed(start_us + STEP_US)), Done)
    phases = {name: one.phase for name, one in of_quotas(halved_twice).items()}
    assert (phases["quota-a"], phases["quota-b"]) == ("undone", "undone")
    assert slots(halved_twice) == 12


def test_a_quota_that_a_person_has_set_in_between_stays_as_they_set_it(halved_twice):
    quota = SetTenant(tenant_id="back-office", quota=Quota(in_flight_limit=8), reason="agreed")
    assert isinstance(perform(halved_twice, quota, closed(NOW_US) + 1), Done)
    for turn, one in enumerate(of_quotas(halved_twice).values()):
        if one.phase == "applied":
            undo = UndoAction(episode=str(one.episode), reason="over")
            assert isinstance(perform(halved_twice, undo, closed(NOW_US) + 2 + turn), Done)
    assert slots(halved_twice) == 8


def test_two_cuts_in_one_pass_leave_a_model_its_last_route(fleet):
    """Each alone may be cut; both together would leave the baseline's arm none."""
    for route_id in ("fast-v2", "fast-us-v2"):
        action = Action(kind="cut_route", target=route_id, automatic=True)
        declared(fleet, VALID, f"cut-{route_id}", action)
    pour(fleet, experiment_one(NOW_US - STEP_US, slow=0, **FAILED))
    assert isinstance(evaluate(fleet, closed(NOW_US)), Done)
    enabled = {one.route_id for one in policy_now(fleet).routes if one.enabled}
    assert len(enabled & {"fast-v2", "fast-us-v2"}) == 1
