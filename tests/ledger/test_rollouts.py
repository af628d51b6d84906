"""REL-3..6: what a window of a rollout leads to."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import rollouts
from ledger.rollouts import Condition, Plan, Window, after_window

MINUTE_US = 60_000_000


def plan(**changes) -> Plan:
    fields: dict[str, Any] = {
        "rollout_id": "r1",
        "release_id": "rel1",
        "logical_model": "assist",
        "baseline_routes": ("a",),
        "canary_routes": ("b",),
        "conditions": (
            Condition(metric="ttft_p99", limit_permille=100),
            Condition(metric="valid_completion", limit_permille=10),
        ),
        "steps_permille": (100, 500),
        "window_us": 10 * MINUTE_US,
    }
    return Plan(**(fields | changes))


def run(planned, *windows, frozen=False, **window_options):
    """The outcomes of windows given as (ttft, completion) verdicts, in order."""
    progress, outcomes = rollouts.started(0), []
    for ttft, completion in windows:
        _, end_us = rollouts.window_of(planned, progress)
        verdicts = {"ttft_p99": ttft, "valid_completion": completion}
        window = Window(end_us=end_us, verdicts=verdicts, **window_options)
        outcomes.append(after_window(planned, progress, window, frozen=frozen))
        progress = outcomes[-1].progress
    return outcomes


P, F, I = "PASS", "FAIL", "INCONCLUSIVE"  # noqa: E741 - I is the third of them


def decisions(*windows, planned=None, **options):
    return [one.decision for one in run(planned or plan(), *windows, **options)]


def test_two_failing_windows_in_a_row_roll_back():
    outcomes = run(plan(), (F, P), (F, P))
    assert [one.decision for one in outcomes] == ["continue", "roll_back"]
    assert outcomes[-1].reason == "FAILED:ttft_p99"
    assert outcomes[-1].progress.state == "rolled_back"


def test_a_fault_in_one_window_does_nothing():
    assert decisions((F, P), (P, P)) == ["continue", "raise"]


def test_two_windows_that_fail_for_different_metrics_are_no_streak():
    assert decisions((F, P), (P, F)) == ["continue", "continue"]


def test_an_inconclusive_window_neither_raises_nor_resets_the_streak():
    assert decisions((F, P), (I, P), (F, P)) == ["continue", "continue", "roll_back"]
    assert decisions((P, I)) == ["continue"]


def test_three_inconclusive_windows_hold_for_a_person():
    outcomes = run(plan(), (I, P), (I, P), (I, P), (P, P))
    assert [one.decision for one in outcomes] == ["continue", "continue", "hold", "continue"]
    assert outcomes[-1].reason == "HELD"


def test_passing_windows_raise_the_share_and_then_promote():
    outcomes = run(plan(), (P, P), (P, P))
    assert [one.decision for one in outcomes] == ["raise", "promote"]
    assert outcomes[0].progress.step == 1
    assert outcomes[-1].progress.state == "promoted"


def test_at_its_deadline_a_rollout_ends_without_promotion():
    short = plan(deadline_us=20 * MINUTE_US, passes_per_step=9)
    outcomes = run(short, (P, P), (P, P))
    assert [one.decision for one in outcomes] == ["continue", "end"]
    assert outcomes[-1].progress.state == "ended"


def test_a_frozen_rollout_goes_down_and_never_up():
    """REL-4."""
    assert decisions((P, P), (P, P), frozen=True) == ["continue", "continue"]
    assert decisions((F, P), (F, P), frozen=True) == ["continue", "roll_back"]


def test_traffic_that_strays_from_its_plan_holds():
    """REL-6."""
    outcomes = run(plan(), (P, P), share_off_plan=True)
    assert (outcomes[0].decision, outcomes[0].reason) == ("hold", "SHARE_OFF_PLAN")


def test_evidence_that_holds_under_peeking_stops_at_once():
    """REL-6."""
    outcomes = run(plan(), (P, P), evidence_stops=True)
    assert (outcomes[0].decision, outcomes[0].reason) == ("roll_back", "EVIDENCE")


def test_a_metric_that_was_not_measured_is_no_pass():
    window = Window(end_us=10 * MINUTE_US, verdicts={"ttft_p99": "PASS"})
    assert after_window(plan(), rollouts.started(0), window).verdict == "INCONCLUSIVE"
    assert rollouts.overall({}, ()) == "INCONCLUSIVE"


VERDICTS = st.sampled_from([P, F, I])


@given(st.lists(st.tuples(VERDICTS, VERDICTS), max_size=12), st.booleans())
def test_a_rollout_is_promoted_only_after_as_many_passes_as_it_has_steps(windows, frozen):
    for index, outcome in enumerate(run(plan(), *windows, frozen=frozen)):
        if outcome.decision == "promote":
            assert not frozen
            assert sum(w == (P, P) for w in windows[: index + 1]) >= 2
        if outcome.decision == "roll_back":
            assert any(sum(w[m] == F for w in windows[: index + 1]) >= 2 for m in (0, 1))
        if not outcome.progress.live:
            break


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"steps_permille": ()}, "steps_permille"),
        ({"steps_permille": (100, 1000)}, "steps_permille"),
        ({"steps_permille": (200, 100)}, "steps_permille"),
        ({"conditions": ()}, "conditions"),
        ({"conditions": (Condition(metric="speed", limit_permille=1),)}, "conditions"),
        ({"window_us": 1}, "window_us"),
        ({"deadline_us": 1}, "deadline_us"),
        ({"consecutive": 0}, "consecutive"),
        ({"canary_minimum": 2}, "canary_minimum"),
        ({"canary_routes": ("a",)}, "canary_routes"),
        ({"canary_routes": ("b", "b")}, "canary_routes"),
        ({"baseline_routes": tuple(map(str, range(65)))}, "baseline_routes"),
        ({"window_us": 60 * 10**24, "deadline_us": 60 * 10**25}, "window_us"),
        ({"deadline_us": 9 * 10**18}, "deadline_us"),
        ({"baseline_minimum": 10**30}, "baseline_minimum"),
        ({"passes_per_step": 10**30}, "passes_per_step"),
        ({"conditions": (Condition(metric="ttft_p99", limit_permille=10**400),)}, "conditions"),
    ],
)
def test_a_plan_that_can_not_hold_is_refused(changes, field):
    assert field in {problem.field for problem in rollouts.problems(plan(**changes))}


def test_the_hash_covers_every_declared_condition():
    """REL-3: a condition that was edited has another hash."""
    declared = rollouts.encode(plan())
    assert rollouts.problems(plan()) == ()
    assert msgspec.json.decode(declared, type=Plan) == plan()
    edited = plan(conditions=(Condition(metric="ttft_p99", limit_permille=101),))
    assert rollouts.plan_hash(declared) != rollouts.plan_hash(rollouts.encode(edited))
