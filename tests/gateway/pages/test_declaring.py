"""Objectives, releases and rollouts declared by the console's forms (SLO-5, REL-1, REL-3)."""

from dataclasses import replace

import msgspec
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from gateway.demo.fleet import FAST_V3
from gateway.pages.rollout_form import RolloutForm
from gateway.pages.slo_form import SloForm, fields_of, objective_of
from ledger.queries import objectives, rollouts
from ledger.reading import connect_read_only
from ledger.release_gate import CHECKS
from ledger.rollouts import DEFAULT_CONDITIONS, Plan, plan_hash
from ledger.slo import SloDefinition
from ledger.slo_defaults import DEFAULT_SLOS
from tests.console_pages import FORMS
from tests.gateway.control.rollout_of import RELEASE, evaluations
from tests.gateway.pages.conftest import LogIn
from tests.gateway.pages.test_odd_questions import ODD
from tests.gateway.pages.test_receipts import text_of


@pytest.fixture
def fleet_of(settings, fleet):
    settings.WEIGHBRIDGE_DB = fleet.ledger
    return fleet


@pytest.fixture
def admin(fleet_of, log_in: LogIn) -> Client:
    return log_in("admin")


def read(fleet, query, *values):
    connection = connect_read_only(fleet.ledger)
    found = query(connection, *values)
    connection.close()
    return found


OBJECTIVE = {
    "slo_id": "chat-first-token",
    "title": "Chat answers begin within 800 ms",
    "indicator": "ttft",
    "target": "99.5",
    "threshold_ms": "800",
    "period_days": "30",
    "priorities": ["interactive"],
    "tenants": "support-desk, back-office",
    "action": "shed_priority",
    "action_target": "batch",
    "automatic": "on",
    "reason": "the chat team's promise",
}


@pytest.mark.parametrize("definition", DEFAULT_SLOS, ids=lambda one: one.slo_id)
def test_an_objective_in_force_goes_through_the_form_unchanged(definition: SloDefinition):
    form = SloForm({**fields_of(definition), "reason": "again"})
    assert form.is_valid(), form.errors
    assert objective_of(form.cleaned_data, definition) == replace(definition, revision=0)


def test_an_objective_is_declared_by_the_form(fleet_of, admin: Client):
    """SLO-5: with the default rules that its target leaves."""
    answer = admin.post("/slo/declare", OBJECTIVE)
    assert (answer.status_code, answer["Location"]) == (302, "/slo/objective/chat-first-token")
    found = {one.slo_id: one for one in read(fleet_of, objectives.objectives)}["chat-first-token"]
    assert (found.target_ppm, found.threshold_us, found.revision) == (995_000, 800_000, 1)
    assert found.selector.tenants == ("support-desk", "back-office")
    assert [rule.name for rule in found.rules] == ["fast", "slow", "ticket"]
    form = text_of(admin.get("/slo/declare?slo=chat-first-token"))
    assert "Declare an objective" in form
    assert 'value="99.5"' in admin.get("/slo/declare?slo=chat-first-token").content.decode()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "100"}, "less than or equal to 99.9999"),
        ({"threshold_ms": ""}, "A latency needs one."),
        ({"indicator": "cost"}, "The cost needs one."),
        ({"slo_id": "No/Slash"}, "valid value"),
        ({"action_target": "bacth"}, "ACTION_TARGET"),
        ({"period_days": "1"}, "NO_RULES"),
        ({"reason": ""}, "required"),
    ],
)
def test_an_objective_that_can_not_hold_is_refused_on_the_form(fleet_of, admin, changes, said):
    answer = admin.post("/slo/declare", OBJECTIVE | changes)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert said in page
    assert "Chat answers begin within 800 ms" in page  # what was typed is still there
    names = {one.slo_id for one in read(fleet_of, objectives.objectives)}
    assert "chat-first-token" not in names


def test_an_operator_declares_no_objective(fleet_of, log_in: LogIn):
    assert log_in("operator").post("/slo/declare", OBJECTIVE).status_code == 403


RELEASE_FORM = {
    "release_id": RELEASE,
    "identity_id": FAST_V3.identity_id,
    "reason": "the quantized build",
    **{f"suite_{check}": f"suite-{check}" for check in CHECKS},
    **{f"floor_{check}": "900" for check in CHECKS},
}


def plan_form(**changes) -> dict[str, object]:
    form = RolloutForm(policy=None, releases=[])
    initial = {name: field.initial for name, field in form.fields.items()}
    given = {
        "rollout_id": "fast-v3/2",
        "release_id": RELEASE,
        "logical_model": "assist",
        "baseline_routes": ["fast-v2", "fast-us-v2"],
        "canary_routes": ["fast-v3"],
        "key": "request",
        "reason": "new build",
    }
    return {name: value for name, value in (initial | given | changes).items() if value is not None}


def test_a_release_is_declared_its_gate_opened_and_its_rollout_started_by_forms(
    fleet_of, log_in: LogIn
):
    """REL-1, REL-3: a closed gate starts nothing; the hash that was shown is the one declared."""
    operator = log_in("operator")
    answer = operator.post("/releases/declare", RELEASE_FORM)
    assert (answer.status_code, answer["Location"]) == (302, "/releases")
    closed = operator.post("/releases/start", plan_form(do="start"))
    assert (closed.status_code, "GATE_CLOSED" in closed.content.decode()) == (422, True)
    file = SimpleUploadedFile("results.json", evaluations().encode())
    back = {"next": "/releases/declare"}
    assert operator.post("/releases/evaluations", back | {"file": file}).status_code == 302
    checked = operator.post("/releases/start", plan_form(do="check"))
    assert checked.status_code == 200
    assert "It could be started now. Nothing is written yet." in text_of(checked)
    assert read(fleet_of, rollouts.rollouts) == []
    started = operator.post("/releases/start", plan_form(do="start"))
    assert started["Location"] == "/releases/rollout/fast-v3/2"
    (declared,) = read(fleet_of, rollouts.rollouts)
    assert declared.plan_hash in text_of(checked)
    assert declared.plan_hash == plan_hash(declared.plan_json)
    plan = msgspec.json.decode(declared.plan_json, type=Plan)
    assert set(plan.conditions) == set(DEFAULT_CONDITIONS)
    assert plan.steps_permille == (50, 200, 500)
    again = operator.post("/releases/start", plan_form(do="start", limit_ttft_p99="90"))
    assert "ROLLOUT_EXISTS" in again.content.decode()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shares": "5, moon"}, "is no share"),
        ({"shares": "20, 5"}, "ascending"),
        ({"shares": "100"}, "is no share"),
        ({"window_minutes": "0"}, "greater than or equal to 1"),
        ({"canary_routes": ["fast-v9"]}, "not one of the available choices"),
        ({"canary_routes": ["fast-v2"]}, "a route is in one arm"),
        ({f"limit_{one.metric}": "" for one in DEFAULT_CONDITIONS}, "name at least one"),
        ({"reason": ""}, "REASON_MISSING"),
    ],
)
def test_a_plan_that_can_not_hold_is_refused_on_the_form(fleet_of, log_in: LogIn, changes, said):
    operator = log_in("operator")
    operator.post("/releases/declare", RELEASE_FORM)
    file = SimpleUploadedFile("results.json", evaluations().encode())
    operator.post("/releases/evaluations", {"file": file})
    answer = operator.post("/releases/start", plan_form(do="start", **changes))
    assert (answer.status_code, said in answer.content.decode()) == (422, True)
    assert read(fleet_of, rollouts.rollouts) == []


@pytest.mark.parametrize("path", FORMS)
def test_a_form_takes_any_question_without_a_fault(fleet_of, admin: Client, path: str):
    """SEC-3."""
    plain = path.partition("?")[0]
    for odd in (*ODD, "slo=%00", "slo=" + "x" * 9_000, "baseline_routes=x&shares=%00&alpha=1e999"):
        answer = admin.get(f"{plain}?{odd}")
        assert answer.status_code in (200, 400, 404), odd  # no such table to save
        assert "<script>alert" not in answer.content.decode()


def test_evaluations_that_can_not_be_read_import_nothing(fleet_of, log_in: LogIn):
    operator = log_in("operator")
    for form, code in (
        ({}, "FILES"),
        ({"text": "[{}"}, "INVALID_EVALUATIONS"),
        ({"file": SimpleUploadedFile("x", b"\xff\xfe")}, "INVALID_EVALUATIONS"),
    ):
        answer = operator.post("/releases/evaluations", form)
        assert (answer.status_code, code in answer.content.decode()) == (422, True)
