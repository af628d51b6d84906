"""Evaluations, actions, rollouts and diagnosis as data, for keys that may see the fleet."""

import msgspec
import pytest

from gateway.api.control import actions_body, diagnosis_body, evaluations_body, rollouts_body
from gateway.api.errors import Failure
from gateway.operations.releases import DecideRollout, StartRollout
from ledger.reading import connect_read_only
from ledger.rollouts import Plan
from tests.gateway.api.client import Client, SmallGateway
from tests.gateway.control.ledger_of import (
    NOW_US,
    STEP_US,
    closed,
    evaluate,
    experiment_one,
    perform,
    pour,
)
from tests.gateway.control.rollout_of import RELEASE, ROLLOUT, plan, ready


@pytest.fixture
def connection(fleet):
    opened = connect_read_only(fleet.ledger)
    yield opened
    opened.close()


def test_evaluations_are_those_of_one_objective_the_newest_first(fleet, connection):
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    evaluate(fleet, closed(NOW_US))
    body = evaluations_body(connection, {"slo": ["interactive-queue"], "limit": ["2"]}, NOW_US)
    assert not isinstance(body, Failure)
    newest = body["evaluations"][0]
    assert (newest["state"], newest["revision"], newest["valid"]) == ("SHED", 0, 600)
    assert newest["episode"] == f"interactive-queue/{NOW_US}"
    assert {one["state"] for one in newest["rules"]} >= {"ALERT"}


def test_open_actions_are_the_episodes_that_have_not_ended(fleet, connection):
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    evaluate(fleet, closed(NOW_US))
    body = actions_body(connection, {"open": ["1"]}, NOW_US)
    assert not isinstance(body, Failure)
    found = {one["episode"]: one for one in body["actions"]}[f"interactive-queue/{NOW_US}"]
    assert (found["action"], found["subject"], found["phase"]) == (
        "slo.shed_priority", "batch", "applied",
    )  # fmt: skip
    assert body["overrides"] == []
    every = actions_body(connection, {"action": ["slo.shed_priority"], "limit": ["1"]}, NOW_US)
    assert not isinstance(every, Failure)
    assert [one["seq"] for one in every["actions"]] == [found["seq"]]


def test_a_rollout_is_shown_with_its_plan_its_hash_and_each_step(fleet, connection):
    """REL-3: the hash that was declared is the hash of the plan that is shown."""
    ready(fleet, NOW_US)
    perform(fleet, StartRollout(rollout=plan(), reason="the canary"), NOW_US)
    asked = DecideRollout(rollout_id=ROLLOUT, decision="hold", reason="a look")
    perform(fleet, asked, NOW_US + 1)
    listed = rollouts_body(connection, {}, NOW_US)
    one = rollouts_body(connection, {"rollout": [ROLLOUT]}, NOW_US)
    assert not isinstance(listed, Failure)
    assert not isinstance(one, Failure)
    assert [each["rollout_id"] for each in listed["rollouts"]] == [ROLLOUT]
    assert (one["release_id"], one["progress"]["state"]) == (RELEASE, "held")
    assert [(each["kind"], each["decision"]) for each in one["steps"]] == [
        ("start", "start"), ("person", "hold"),
    ]  # fmt: skip
    assert msgspec.convert(one["plan"], Plan) == plan()
    missing = rollouts_body(connection, {"rollout": ["none"]}, NOW_US)
    assert isinstance(missing, Failure)
    assert missing.status == 404


def test_a_diagnosis_of_too_few_requests_finds_and_clears_nothing(fleet, connection):
    body = diagnosis_body(connection, {"within": ["5m"]}, NOW_US)
    assert not isinstance(body, Failure)
    assert (body["findings"], body["now"]["requests"]) == ([], 0)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/slo/evaluations", 400),
        ("/api/v1/slo/evaluations?slo=none", 400),
        ("/api/v1/slo/evaluations?slo=capacity&limit=0", 400),
        ("/api/v1/slo/evaluations?slo=capacity", 200),
        ("/api/v1/actions?limit=1000", 200),
        ("/api/v1/actions?limit=1001", 400),
        ("/api/v1/actions?before=x", 400),
        ("/api/v1/actions?moon=1", 400),
        ("/api/v1/actions", 200),
        ("/api/v1/rollouts?rollout=none", 404),
        ("/api/v1/rollouts", 200),
        ("/api/v1/diagnosis?within=1y", 400),
        ("/api/v1/diagnosis?at=2026-01-01T00:00", 200),
    ],
)
def test_what_cant_be_asked_is_a_problem_and_the_rest_an_answer(ledger_path, path, status):
    client = Client(SmallGateway(ledger_path, scopes=frozenset({"reports"})))
    assert client.get(path).status == status


def test_a_key_of_one_tenant_alone_sees_none_of_it(ledger_path):
    client = Client(SmallGateway(ledger_path, scopes=frozenset({"inference", "receipts"})))
    for name in ("slo/evaluations?slo=capacity", "actions", "rollouts", "diagnosis"):
        assert client.get(f"/api/v1/{name}").status == 403
