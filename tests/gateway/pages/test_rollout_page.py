"""Rollouts, one objective, slices; and a receipt replayed, compared and proved, as pages."""

import json
import re

import msgspec
import pytest
from django.test import Client

from gateway.clock import SystemClock
from gateway.demo.scenario_run import run
from gateway.demo.scenarios import SCENARIOS
from gateway.operations.releases import StartRollout
from gateway.pages.rollout_view import condition_words
from ledger.offline_proof import problems
from ledger.queries.rollouts import last_step
from ledger.reading import connect_read_only
from ledger.rollouts import Condition
from tests.gateway.control.ledger_of import NOW_US, perform
from tests.gateway.control.rollout_of import ROLLOUT, plan, ready
from tests.gateway.pages.conftest import LogIn
from tests.gateway.pages.test_receipts import text_of
from tests.sample_console import fill

PAGE = f"/releases/rollout/{ROLLOUT}"


@pytest.fixture
def started(settings, fleet):
    settings.WEIGHBRIDGE_DB = fleet.ledger
    ready(fleet, NOW_US)
    perform(fleet, StartRollout(rollout=plan(), reason="the canary"), NOW_US)
    return fleet


@pytest.fixture
def sample(ledger_path) -> None:
    fill(ledger_path, count=60, end_us=SystemClock().now_us(), span_us=1_800_000_000)


def decided(fleet) -> str:
    connection = connect_read_only(fleet.ledger)
    found = last_step(connection, ROLLOUT)
    connection.close()
    return found.decision if found else ""


def test_a_rollout_shows_its_plan_its_hash_and_its_gate(started, viewer: Client):
    """REL-3: what was declared before the first request, and that it is still that."""
    said = text_of(viewer.get(PAGE))
    assert "Hashed again: the plan is the one that was declared." in said
    assert "Rolled back after2 failing windows in a row" in said.replace("  ", " ") or (
        "2 failing windows in a row" in said
    )
    assert "open" in said
    assert "What a window can see" in said
    assert ROLLOUT in text_of(viewer.get("/releases"))


def test_a_rollout_is_held_resumed_and_rolled_back_by_its_forms(started, log_in: LogIn):
    operator = log_in("operator")
    for decision, label in (("hold", "Hold"), ("resume", "Let it go on"), ("roll_back", "Roll")):
        page = operator.get(PAGE).content.decode()
        assert f'value="{decision}"' in page
        assert label in page
        form = {"rollout_id": ROLLOUT, "decision": decision, "reason": "a look", "next": PAGE}
        assert operator.post("/act/decide_rollout", form)["Location"] == PAGE
        assert decided(started) == decision
    assert "/act/decide_rollout" not in operator.get(PAGE).content.decode()


def test_a_promotion_asks_for_the_rollouts_name(started, log_in: LogIn):
    operator = log_in("operator")
    assert f"Type {ROLLOUT} to confirm" in operator.get(PAGE).content.decode()
    form = {"rollout_id": ROLLOUT, "decision": "promote", "reason": "good", "next": PAGE}
    answer = operator.post("/act/decide_rollout", form)
    assert (answer.status_code, "CONFIRMATION_MISSING" in answer.content.decode()) == (422, True)
    answer = operator.post("/act/decide_rollout", form | {"confirm": ROLLOUT})
    assert (answer.status_code, "NOTHING_JUDGED" in answer.content.decode()) == (422, True)
    assert decided(started) == "start"


def test_a_decision_without_a_reason_changes_nothing(started, log_in: LogIn):
    form = {"rollout_id": ROLLOUT, "decision": "hold"}
    answer = log_in("operator").post("/act/decide_rollout", form)
    assert (answer.status_code, "REASON_MISSING" in answer.content.decode()) == (422, True)
    assert decided(started) == "start"


def test_a_viewer_may_decide_nothing(started, viewer: Client):
    assert "/act/" not in viewer.get(PAGE).content.decode()
    form = {"rollout_id": ROLLOUT, "decision": "hold", "reason": "r"}
    assert viewer.post("/act/decide_rollout", form).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/releases/rollout/none", "/slo/objective/none", "/receipts/none/proof.json"],
)
def test_what_there_is_not_says_so(viewer: Client, path: str):
    assert viewer.get(path).status_code == 404


def test_each_kind_of_condition_is_said_in_words():
    words = [
        condition_words(Condition(metric=name, limit_permille=100))
        for name in ("ttft_p99", "degraded", "cost_per_valid")
    ]
    assert words[0].endswith("than chance gives at alpha 0.01")
    assert words[1] == "Degraded answers: fails when worse by more than 10 points"
    assert words[2].endswith("fails when more than 10 % above the baseline's")


def test_an_objective_shows_each_closed_window_its_actions_and_its_revisions(
    sample, viewer: Client
):
    said = text_of(viewer.get("/slo/objective/interactive-queue"))
    assert "48 windows" in said
    assert "Shed priority" in said
    assert "shipped" in said


@pytest.mark.parametrize("by", ["route", "tenant", "priority", "input_tokens", "degraded"])
def test_slices_are_shown_side_by_side(sample, viewer: Client, by: str):
    said = text_of(viewer.get(f"/slo/slices?by={by}&within=1h"))
    assert "First token" in said
    assert {"route": "fast-v2", "tenant": "acme", "priority": "interactive",
            "input_tokens": "1024", "degraded": "normal"}[by] in said  # fmt: skip
    assert re.search(r"[\d.]+ to [\d.]+ %", said)  # a valid share has its interval


@pytest.mark.parametrize("query", ["by=moon", "within=2y", "moon=1"])
def test_slices_that_cant_be_asked_for_are_a_400(viewer: Client, query: str):
    assert viewer.get(f"/slo/slices?{query}").status_code == 400


def test_a_receipt_is_replayed_compared_with_another_policy_and_proved(
    ledger_template, tmp_path, settings, viewer: Client
):
    """RTE-3, RTE-4, LED-7 on the page, over a ledger of real decisions."""
    path = tmp_path / "replay.sqlite3"
    path.write_bytes(ledger_template.read_bytes())
    run(path, SCENARIOS["slow-decode"] if "slow-decode" in SCENARIOS else SCENARIOS["healthy"], 4)
    settings.WEIGHBRIDGE_DB = path
    connection = connect_read_only(path)
    sql = "SELECT request_id FROM receipt WHERE status = 'completed' LIMIT 1"
    request_id = connection.execute(sql).fetchone()[0]
    connection.close()
    plain = text_of(viewer.get(f"/receipts/{request_id}"))
    assert "Replay now" in plain
    assert "byte for byte" not in plain
    assert "Identical: the same inputs" in text_of(viewer.get(f"/receipts/{request_id}?replay=1"))
    other = text_of(viewer.get(f"/receipts/{request_id}?under=scenario-1"))
    assert "By scenario-1 the decision" in other
    missing = text_of(viewer.get(f"/receipts/{request_id}?under=none"))
    assert "the ledger has no route policy" in missing
    file = viewer.get(f"/receipts/{request_id}/proof.json")
    assert file["Content-Disposition"].startswith("attachment")
    proof = json.loads(file.content)
    assert problems(proof) == []
    assert msgspec.json.decode(file.content)["request_id"] == request_id
