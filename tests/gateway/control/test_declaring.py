"""Objectives declared, imported, retired; the commands of the control plane."""

from dataclasses import replace
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from gateway.operations.base import Done, Refused
from gateway.operations.control import DeclareSlo, EvaluateSlos, ImportSlos, RetireSlo
from ledger import openslo
from ledger.queries.objectives import objectives
from ledger.queries.slo import tally_windows
from ledger.records import EvaluationResult, SloDefinitionRecord, SloEvaluation
from ledger.rollups.rebuild import first_difference
from ledger.slo import HOUR_US, Action, Selector
from ledger.slo_defaults import DEFAULT_SLOS
from ledger.slo_text import to_json
from tests.gateway.control.ledger_of import (
    MINUTE_US,
    NOW_US,
    STEP_US,
    closed,
    evaluate,
    experiment_one,
    perform,
    pour,
    rows,
)
from tests.gateway.control.rollout_of import evaluations

QUEUE = next(one for one in DEFAULT_SLOS if one.slo_id == "interactive-queue")
QUARTER_US = 15 * MINUTE_US


def tightened(fleet, at_us, **changes):
    asked = DeclareSlo(
        slo_id="interactive-queue",
        body_json=to_json(replace(QUEUE, **{"threshold_us": 10_000, **changes})),
        reason="a promise was made",
    )
    return perform(fleet, asked, at_us)


def counts(fleet, key, end_us):
    connection = fleet.reader()
    (tally,) = tally_windows(connection, key, end_us, [HOUR_US])
    connection.close()
    return tally.good, tally.valid


def test_a_new_revision_counts_from_the_next_quarter_hour_and_the_old_one_until_then(fleet):
    """SLO-9, and the counts kept equal those made again."""
    pour(fleet, experiment_one(NOW_US, slow=0))
    assert isinstance(tightened(fleet, NOW_US + 1), Done)
    (declared,) = rows(fleet, SloDefinitionRecord)
    assert declared.revision == 2
    pour(fleet, experiment_one(NOW_US + 2 * MINUTE_US, slow=0))
    pour(fleet, experiment_one(NOW_US + QUARTER_US, slow=0))
    end_us = NOW_US + HOUR_US
    assert counts(fleet, "interactive-queue@1", end_us) == (120, 120)
    assert counts(fleet, "interactive-queue@2", end_us) == (0, 60)
    connection = fleet.reader()
    assert first_difference(connection) is None
    (queue,) = [one for one in objectives(connection) if one.slo_id == "interactive-queue"]
    connection.close()
    assert (queue.revision, queue.threshold_us) == (2, 10_000)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"target_ppm": 1_000_000}, "TARGET_IMPOSSIBLE"), ({"threshold_us": 0}, "THRESHOLD_MISSING")],
)
def test_an_objective_that_can_not_hold_is_refused_and_nothing_is_written(fleet, changes, code):
    """SLO-5."""
    refused = tightened(fleet, NOW_US, **changes)
    assert isinstance(refused, Refused)
    assert refused.code == code
    assert rows(fleet, SloDefinitionRecord) == []


@pytest.mark.parametrize(
    ("kind", "target"),
    [("shed_priority", "bacth"), ("cut_route", "fast-v9"), ("open_incident", "the-phone")],
)
def test_an_action_that_could_be_done_to_nothing_is_refused(fleet, kind, target):
    """SLO-4."""
    refused = tightened(fleet, NOW_US, action=Action(kind=kind, target=target))
    assert isinstance(refused, Refused)
    assert refused.code == "ACTION_TARGET"
    assert rows(fleet, SloDefinitionRecord) == []


def test_what_is_declared_already_is_not_declared_again(fleet):
    """SLO-9: a new revision is counted anew, so a second click must make none."""
    assert isinstance(tightened(fleet, NOW_US), Done)
    assert tightened(fleet, NOW_US + 1).code == "NO_CHANGE"
    assert len(rows(fleet, SloDefinitionRecord)) == 1


@pytest.mark.parametrize("slo_id", ["", " ", "a\nb", "a/b", "a@1", "-a", "a" * 65])
def test_an_objective_has_a_name_that_every_place_can_show(fleet, slo_id):
    asked = DeclareSlo(slo_id=slo_id, body_json=to_json(QUEUE), reason="r")
    assert perform(fleet, asked, NOW_US).code == "INVALID_SLO"


def test_a_slice_of_a_priority_that_is_none_is_refused(fleet):
    refused = tightened(fleet, NOW_US, selector=Selector(priorities=("interactve",)))
    assert (refused.code, "interactive" in refused.message) == ("SELECTOR_INVALID", True)


@pytest.mark.parametrize("at_us", [-1, -(10**30), 10**30])
def test_a_pass_at_no_time_is_refused(fleet, at_us):
    assert perform(fleet, EvaluateSlos(at_us=at_us), NOW_US).code == "INVALID_REQUEST"


def test_a_retired_objective_is_evaluated_no_more(fleet):
    asked = RetireSlo(slo_id="batch-queue", reason="nobody waits for it")
    assert isinstance(perform(fleet, asked, NOW_US), Done)
    assert perform(fleet, asked, NOW_US + 1).code == "NO_SUCH_SLO"
    pour(fleet, experiment_one(NOW_US + QUARTER_US, slow=0))
    evaluate(fleet, closed(NOW_US + QUARTER_US + STEP_US))
    assert "batch-queue" not in {one.slo_id for one in rows(fleet, SloEvaluation)}


def test_an_import_declares_what_is_new_and_nothing_twice(fleet):
    same = ImportSlos(text=openslo.dump(DEFAULT_SLOS), reason="as they are")
    assert perform(fleet, same, NOW_US).code == "NO_CHANGE"
    changed = [replace(QUEUE, threshold_us=500_000), *DEFAULT_SLOS[:2]]
    done = perform(fleet, ImportSlos(text=openslo.dump(changed), reason="tighter"), NOW_US)
    assert isinstance(done, Done)
    assert done.after == {"declared": 1, "in_force": 2}
    broken = ImportSlos(text="kind: SLO", reason="no")
    assert perform(fleet, broken, NOW_US).code == "INVALID_SLO"


def said(*arguments):
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_the_commands_do_the_same(fleet, settings, tmp_path):
    settings.WEIGHBRIDGE_DB = fleet.ledger
    pour(fleet, experiment_one(NOW_US - STEP_US, times=10))
    assert openslo.load(said("slos", "export")).problems == ()
    file = tmp_path / "evaluations.json"
    file.write_text(evaluations())
    before = len(rows(fleet, EvaluationResult))
    assert said("import_evaluations", str(file)) == "Imported 5 of 5 evaluation results.\n"
    assert len(rows(fleet, EvaluationResult)) == before + 5
    with pytest.raises(CommandError, match="a time with its zone"):
        said("evaluate_slos", "--at", "noon")
    with pytest.raises(CommandError, match="lies in the future"):
        said("evaluate_slos", "--at", "2999-01-01T00:00:00Z")
    assert "impatient-users" in said("scenario")
