"""SLO-4, SLO-8 over a ledger: windows evaluated once, actions that act, undone when it is calm."""

from typing import Any

import msgspec
import pytest

from gateway.control.planning import plan_pass
from gateway.operations.base import Done, Refused
from gateway.operations.control import (
    ApproveAction,
    CorrectSlos,
    DeclineAction,
    EvaluateSlos,
    OverrideSlo,
    UndoAction,
)
from gateway.operations.routes import DrainRoute
from gateway.quota import Quota
from ledger.queries import objectives
from ledger.queries.diagnosis import diagnosis
from ledger.records import SloEvaluation, Tenant
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
    policies,
    policy_now,
    pour,
    rows,
)
from tests.ledger.seeded import Plans


def states(fleet, slo_id):
    return [one.state for one in rows(fleet, SloEvaluation, f"slo_id = '{slo_id}'")]


def test_experiment_one_sheds_batch_although_the_mean_is_comfortable(fleet):
    """SLO-2, ten times over: of 60 interactive requests 5 queue for 4 s; the mean is 219 ms."""
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    done = evaluate(fleet, closed(NOW_US))
    assert isinstance(done, Done)
    queue = [one for one in actions(fleet) if one.episode == f"interactive-queue/{NOW_US}"]
    assert [(one.action, one.subject, one.phase) for one in queue] == [
        ("slo.shed_priority", "batch", "applied")
    ]
    assert "slow 8.33 and 8.33 over 6" in queue[0].evidence
    assert states(fleet, "interactive-queue")[-1] == "SHED"
    assert states(fleet, "batch-queue")[-1] == "OK"
    shares = {one.priority: one.queue_permille for one in policy_now(fleet).queue_shares}
    assert shares["batch"] == 1
    before, after = (msgspec.json.decode(t) for t in (queue[0].before_json, queue[0].after_json))
    assert (before["policy"], after["policy"]) == (policies(fleet)[0], policies(fleet)[-1])


def test_experiment_one_alone_alerts_and_is_too_few_for_automation(fleet):
    """SLO-6: 5 of 60 where 6 % may be bad happens by chance in three of ten."""
    pour(fleet, experiment_one(NOW_US - STEP_US))
    evaluate(fleet, closed(NOW_US))
    assert states(fleet, "interactive-queue")[-1] == "FREEZE"
    assert actions(fleet) == []


def test_each_closed_window_is_evaluated_once_and_no_other(fleet):
    pour(fleet, experiment_one(NOW_US - 3 * STEP_US, slow=0))
    assert isinstance(evaluate(fleet, closed(NOW_US) - 1), Done)
    ends = [one.end_us for one in rows(fleet, SloEvaluation, "slo_id = 'capacity'")]
    assert ends == [NOW_US - 2 * STEP_US, NOW_US - STEP_US]
    again = evaluate(fleet, closed(NOW_US) - 1)
    assert isinstance(again, Refused)
    assert again.code == "NOTHING_DUE"
    evaluate(fleet, closed(NOW_US))
    ends = [one.end_us for one in rows(fleet, SloEvaluation, "slo_id = 'capacity'")]
    assert ends == [NOW_US - 2 * STEP_US, NOW_US - STEP_US, NOW_US]


def test_after_a_standstill_every_window_is_evaluated_and_only_the_newest_acts(fleet):
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    evaluate(fleet, closed(NOW_US - STEP_US))
    later_us = NOW_US + 3 * 12 * STEP_US
    evaluate(fleet, closed(later_us))
    ends = [one.end_us for one in rows(fleet, SloEvaluation, "slo_id = 'interactive-queue'")]
    assert ends == list(range(ends[0], later_us + 1, STEP_US))
    assert actions(fleet) == []
    assert "FREEZE" in states(fleet, "interactive-queue")


def test_calm_undoes_what_was_done_and_the_declared_policy_stands_again(fleet):
    declared = policy_now(fleet)
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    evaluate(fleet, closed(NOW_US))
    assert policy_now(fleet) != declared
    for step in range(1, 8):  # undone after the third
        start_us = NOW_US + (step - 1) * STEP_US
        pour(fleet, experiment_one(start_us, times=20, slow=0))
        evaluate(fleet, closed(start_us + STEP_US))
    phases = [one.phase for one in actions(fleet) if one.episode.startswith("interactive-queue")]
    assert phases == ["applied", "undone"]
    back = policy_now(fleet)
    assert msgspec.structs.replace(back, revision=declared.revision) == declared
    assert back.revision != declared.revision


def test_an_action_that_needs_approval_waits_for_it(fleet):
    """The capacity objective proposes; a person approves, and later undoes."""
    pour(fleet, experiment_one(NOW_US - STEP_US, slow=0, **SHED))
    evaluate(fleet, closed(NOW_US))
    (proposed,) = [one for one in actions(fleet) if one.action == "slo.change_quota"]
    assert (proposed.phase, proposed.subject) == ("proposed", "back-office")
    at_us = closed(NOW_US) + 1
    asked = ApproveAction(episode=str(proposed.episode), reason="they send a backlog")
    assert isinstance(perform(fleet, asked, at_us), Done)
    assert slots(fleet, "back-office") == 6
    refused = perform(fleet, asked, at_us + 1)
    assert isinstance(refused, Refused)
    assert refused.code == "NO_SUCH_EPISODE"
    undo = UndoAction(episode=str(proposed.episode), reason="the backlog is done")
    assert isinstance(perform(fleet, undo, at_us + 2), Done)
    assert slots(fleet, "back-office") == 12


def slots(fleet, tenant_id):
    newest = rows(fleet, Tenant, f"tenant_id = '{tenant_id}'")[-1]
    return msgspec.json.decode(newest.body_json, type=Quota).in_flight_limit


def test_a_proposal_to_cut_a_route_is_refused_once_it_is_the_last_one(fleet):
    """SLO-4: between the proposal and the word a person disabled the other routes."""
    failed: dict[str, Any] = {"status": "failed", "terminal_error_code": "PROVIDER_FAILED"}
    pour(fleet, experiment_one(NOW_US - STEP_US, slow=0, **failed))
    evaluate(fleet, closed(NOW_US))
    (proposed,) = [one for one in actions(fleet) if one.action == "slo.cut_route"]
    assert (proposed.phase, proposed.subject) == ("proposed", "fast-v2")
    at_us = closed(NOW_US) + 1
    others = set(policy_now(fleet).models[0].primary_routes) - {"fast-v2"}
    for route_id in sorted(others):
        drained = DrainRoute(route_id=route_id, reason="maintenance")
        assert isinstance(perform(fleet, drained, at_us), Done)
    approved = ApproveAction(episode=str(proposed.episode), reason="cut it")
    refused = perform(fleet, approved, at_us + 1)
    assert isinstance(refused, Refused)
    assert refused.code == "NO_TARGET"
    assert "fast-v2" in {one.route_id for one in policy_now(fleet).routes if one.enabled}


def test_a_declined_action_does_nothing(fleet):
    pour(fleet, experiment_one(NOW_US - STEP_US, slow=0, **SHED))
    evaluate(fleet, closed(NOW_US))
    (proposed,) = [one for one in actions(fleet) if one.action == "slo.change_quota"]
    perform(fleet, DeclineAction(episode=str(proposed.episode), reason="no"), closed(NOW_US) + 1)
    assert slots(fleet, "back-office") == 12
    assert [one.phase for one in actions(fleet) if one.action == "slo.change_quota"] == [
        "proposed",
        "declined",
    ]


def test_an_overridden_objective_is_shown_and_acts_on_nothing_until_it_expires(fleet):
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    until_us = closed(NOW_US) + MINUTE_US
    override = OverrideSlo(
        slo_id="interactive-queue", expires_at_us=until_us, reason="a load test until noon"
    )
    assert isinstance(perform(fleet, override, NOW_US), Done)
    evaluate(fleet, closed(NOW_US))
    assert not [one for one in actions(fleet) if one.episode.startswith("interactive-queue")]
    assert states(fleet, "interactive-queue")[-1] == "FREEZE"
    connection = fleet.reader()
    assert objectives.override_of(connection, "interactive-queue", until_us) is None
    connection.close()
    pour(fleet, experiment_one(NOW_US, times=10))
    evaluate(fleet, closed(NOW_US + STEP_US))
    assert [one for one in actions(fleet) if one.episode.startswith("interactive-queue")]


def test_a_ledger_without_requests_has_no_window_and_one_that_fell_silent_has_no_data(fleet):
    assert evaluate(fleet, closed(NOW_US)).code == "NOTHING_DUE"
    assert rows(fleet, SloEvaluation) == []
    pour(fleet, experiment_one(NOW_US - STEP_US, slow=0))
    days_us = 40 * 86_400_000_000
    for pass_us in range(STEP_US, days_us, days_us // 4):
        evaluate(fleet, closed(NOW_US + pass_us))
    newest = {one.slo_id: one for one in rows(fleet, SloEvaluation)}
    assert len(newest) == 9
    assert actions(fleet) == []
    assert len(policies(fleet)) == 1


def test_a_clock_that_was_ahead_is_told_and_no_window_is_evaluated_twice(fleet):
    """SLO-8."""
    pour(fleet, experiment_one(NOW_US - STEP_US))
    evaluate(fleet, closed(NOW_US))
    before = rows(fleet, SloEvaluation)
    back = perform(fleet, EvaluateSlos(), NOW_US - 1)
    assert isinstance(back, Refused)
    assert (back.code, "the clock was ahead" in back.message) == ("CLOCK_BEHIND", True)
    assert rows(fleet, SloEvaluation) == before


@pytest.mark.parametrize("mode", ["approve", "off"])
def test_by_setting_nothing_acts_by_itself(fleet, settings, mode):
    settings.CONTROL_MODE = mode
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    evaluate(fleet, closed(NOW_US))
    assert {one.phase for one in actions(fleet)} == ({"proposed"} if mode == "approve" else set())
    assert len(policies(fleet)) == 1


def test_no_query_of_a_pass_scans_a_large_table(fleet):
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    connection = fleet.reader()
    with Plans(connection) as plans:
        plan_pass(connection, closed(NOW_US))
        diagnosis(connection, NOW_US - STEP_US, NOW_US)
        objectives.windows_of_late(connection, 1, NOW_US, STEP_US, 9)
    large = ("receipt", "found", "c", "a", "control_action", "slo_evaluation", "rollup_sli")
    found = {one for one in plans.scans_of_large_tables() if one.split()[1] in large}
    connection.close()
    # The episodes of objectives, by an index that holds no other action.
    assert found <= {"SCAN a USING INDEX control_action_episode"}


def test_a_pass_reads_and_never_writes(fleet):
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    connection = fleet.reader()
    first = plan_pass(connection, closed(NOW_US))
    assert plan_pass(connection, closed(NOW_US)) == first
    connection.close()
    assert rows(fleet, SloEvaluation) == []


def test_a_window_that_counts_otherwise_later_is_corrected_by_a_record_that_acts_on_nothing(fleet):
    """SLO-3: an unknown that turns out to have completed was bad and is good."""
    lost = experiment_one(NOW_US - STEP_US, slow=0, status="unknown")
    pour(fleet, lost)
    evaluate(fleet, closed(NOW_US))
    before = rows(fleet, SloEvaluation, "slo_id = 'valid-completion'")[-1]
    assert (before.good, before.valid, before.revision) == (0, 100, 0)
    known = actions(fleet)
    pour(
        fleet,
        [msgspec.structs.replace(one, revision=1, status="completed") for one in lost],
    )
    at_us = closed(NOW_US) + 1
    assert isinstance(perform(fleet, CorrectSlos(reason="unknowns resolved"), at_us), Done)
    after = rows(fleet, SloEvaluation, "slo_id = 'valid-completion'")[-1]
    assert (after.end_us, after.good, after.valid, after.revision) == (before.end_us, 100, 100, 1)
    assert actions(fleet) == known
    again = perform(fleet, CorrectSlos(reason="again"), at_us + 1)
    assert isinstance(again, Refused)
    assert again.code == "NO_CHANGE"


def test_the_evaluator_itself_corrects_the_window_of_a_request_that_ended_late(fleet):
    """SLO-7, SLO-8: the window it was accepted in, once; windows after it keep their rows."""
    lost = experiment_one(NOW_US - STEP_US, slow=0, status="unknown")
    pour(fleet, lost)
    evaluate(fleet, closed(NOW_US))
    pour(fleet, experiment_one(NOW_US, slow=0))
    evaluate(fleet, closed(NOW_US + STEP_US))
    pour(fleet, [msgspec.structs.replace(one, revision=1, status="completed") for one in lost])
    pour(fleet, experiment_one(NOW_US + STEP_US, slow=0))
    known = [one for one in actions(fleet) if one.phase != "lapsed"]
    done = evaluate(fleet, closed(NOW_US + 2 * STEP_US))
    assert isinstance(done, Done)
    found = rows(fleet, SloEvaluation, "slo_id = 'valid-completion' AND revision > 0")
    assert [(one.end_us, one.revision, one.good, one.valid) for one in found] == [
        (NOW_US, 1, 100, 100)
    ]
    assert done.after["corrected"] == len(rows(fleet, SloEvaluation, "revision > 0"))
    assert [one for one in actions(fleet) if one.phase != "lapsed"] == known
    pour(fleet, experiment_one(NOW_US + 2 * STEP_US, slow=0))
    again = evaluate(fleet, closed(NOW_US + 3 * STEP_US))
    assert isinstance(again, Done)
    assert again.after["corrected"] == 0


def test_an_incident_tells_what_is_diagnosed(fleet):
    """SLO-4: a rising degraded share is an incident of the main path."""
    start_us = NOW_US - STEP_US
    pour(fleet, experiment_one(start_us, times=3, slow=0, degraded_from="fast-v2"))
    evaluate(fleet, closed(NOW_US))
    (opened,) = [one for one in actions(fleet) if one.action == "slo.open_incident"]
    assert opened.episode == f"main-path/{NOW_US}"
    assert "diagnosis" in msgspec.json.decode(opened.after_json)
