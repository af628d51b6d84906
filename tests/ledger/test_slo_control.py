"""SLO-8: states, one action an episode, hysteresis, what holds and what blocks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.slo_burn import Tally, WindowBurn, burn_rate, evaluate_rule, status_of
from ledger.slo_control import (
    CALM_WINDOWS,
    GRACE_US,
    STEP_US,
    Circumstances,
    Memory,
    after_window,
    closed_until_us,
    state_now,
)
from ledger.slo_defaults import DEFAULT_SLOS

QUEUE = next(one for one in DEFAULT_SLOS if one.slo_id == "interactive-queue")


def status(bad: int, valid: int, at_us: int = STEP_US, definition=QUEUE):
    """A status in which every window holds these counts."""

    def window(length_us):
        tally = Tally(good=valid - bad, valid=valid)
        return WindowBurn(
            length_us=length_us, start_us=at_us - length_us, end_us=at_us, tally=tally,
            burn=burn_rate(tally, definition.budget),
        )  # fmt: skip

    rules = tuple(
        evaluate_rule(definition, rule, window(rule.long_us), window(rule.short_us))
        for rule in definition.rules
    )
    return status_of(definition, at_us, window(definition.period_us), rules)


def unevenly(*windows: tuple[int, int], at_us: int = STEP_US):
    """A status whose rules are the queue's page rule, each over its own long and short counts.

    The period has a thousand good requests.
    """

    def window(length_us, bad, valid):
        tally = Tally(good=valid - bad, valid=valid)
        return WindowBurn(
            length_us=length_us, start_us=at_us - length_us, end_us=at_us, tally=tally,
            burn=burn_rate(tally, QUEUE.budget),
        )  # fmt: skip

    page = QUEUE.rules[0]
    rules = tuple(
        evaluate_rule(QUEUE, page, window(page.long_us, *long), window(page.short_us, *short))
        for long, short in zip(windows[::2], windows[1::2], strict=True)
    )
    return status_of(QUEUE, at_us, window(QUEUE.period_us, 0, 1_000), rules)


ALERT, CALM, SILENT = (500, 1_000), (0, 1_000), (0, 0)


def run(windows, definition=QUEUE, **around):
    """The steps of windows given as (bad, valid), each with what the ones before have left."""
    memory, steps = Memory(), []
    for number, (bad, valid) in enumerate(windows, start=1):
        step = after_window(
            status(bad, valid, number * STEP_US, definition), memory, Circumstances(**around)
        )
        steps.append(step)
        if step.phase in ("proposed", "applied"):
            memory = replace(memory, phase=step.phase, begun_in_hour=memory.begun_in_hour + 1)
        ended = step.phase in ("undone", "lapsed")
        memory = replace(
            memory,
            calm_windows=step.calm_windows,
            episode=None if ended else step.episode,
            phase=None if ended else memory.phase,
        )
    return steps


def test_an_alert_begins_one_action_and_calm_windows_end_it():
    steps = run([ALERT, ALERT, *[CALM] * CALM_WINDOWS, CALM])
    assert [one.phase for one in steps] == ["applied", None, None, None, "undone", None]
    assert [one.state for one in steps[:2]] == ["SHED", "SHED"]
    assert {one.episode for one in steps[:5]} == {f"interactive-queue/{STEP_US}"}
    assert [one.state for one in steps[3:]] == ["SHED", "OK", "OK"]
    assert [one.reason for one in steps] == ["ALERT", "OPEN", "OPEN", "OPEN", "CALM", "QUIET"]


def test_no_data_holds_what_is_in_force_and_begins_nothing():
    steps = run([ALERT, *[SILENT] * 10])
    assert [one.phase for one in steps] == ["applied", *[None] * 10]
    assert steps[-1].calm_windows == 0
    assert [one.phase for one in run([SILENT] * 3)] == [None] * 3
    assert run([SILENT])[0].state == "NO_DATA"


def test_an_alert_between_calm_windows_starts_their_count_again():
    steps = run([ALERT, CALM, CALM, ALERT, CALM, CALM, CALM])
    assert [one.phase for one in steps] == ["applied", *[None] * 5, "undone"]


def test_more_episodes_than_an_hour_allows_are_flapping():
    episode = [ALERT, *[CALM] * CALM_WINDOWS]
    steps = run([*episode, *episode, ALERT])
    assert [one.phase for one in steps].count("applied") == 2
    assert steps[-1].reason == "LIMIT_PER_HOUR"


@pytest.mark.parametrize(
    ("around", "reason"),
    [
        ({"late": True}, "LATE"),
        ({"overridden": True}, "OVERRIDDEN"),
        ({"mode": "off"}, "SWITCHED_OFF"),
    ],
)
def test_what_blocks_an_action_leaves_the_alert_visible(around, reason):
    (step,) = run([ALERT], **around)
    assert (step.phase, step.reason, step.state) == (None, reason, "FREEZE")


def test_low_traffic_limits_automation_and_not_what_is_shown():
    """SLO-6: 1 bad of 6 burns at 16 times, and chance explains it."""
    (step,) = run([(1, 6)])
    assert (step.phase, step.reason, step.state) == (None, "LOW_TRAFFIC", "FREEZE")


def test_the_guard_has_to_let_both_windows_of_a_rule_act():
    """SLO-6: 1 bad of 6 in either window is what chance explains."""
    for windows in ((ALERT, (1, 6)), ((1, 6), ALERT)):
        status = unevenly(*windows)
        assert [(one.state, one.guard_passed) for one in status.rules] == [("ALERT", False)]
        assert after_window(status, Memory(), Circumstances()).reason == "LOW_TRAFFIC"
    (empty,) = unevenly(ALERT, SILENT).rules
    assert (empty.state, empty.guard_passed) == ("NO_DATA", False)


def test_one_rule_that_the_guard_lets_act_is_enough():
    step = after_window(unevenly((1, 6), (1, 6), ALERT, ALERT), Memory(), Circumstances())
    assert (step.reason, step.phase) == ("ALERT", "applied")


def test_a_window_counts_as_calm_where_one_rule_has_data_and_holds_where_none_has():
    before = Memory(calm_windows=1)
    calm = after_window(unevenly(CALM, SILENT, CALM, CALM), before, Circumstances())
    held = after_window(unevenly(CALM, SILENT, SILENT, CALM), before, Circumstances())
    assert (calm.calm_windows, held.calm_windows) == (2, 1)


def test_without_data_now_an_older_window_says_nothing():
    silent = status(*SILENT)
    assert state_now(silent, "SHED", silent.at_us) == "NO_DATA"


def test_an_action_waits_for_approval_by_setting_and_lapses_with_its_cause():
    steps = run([ALERT, *[CALM] * CALM_WINDOWS], mode="approve")
    assert [steps[0].phase, steps[-1].phase] == ["proposed", "lapsed"]
    assert steps[0].state == "FREEZE"
    asks = next(one for one in DEFAULT_SLOS if not one.action.automatic)
    assert run([ALERT], asks)[0].phase == "proposed"


def test_the_state_is_rollback_only_where_the_canary_differs():
    """SLO-8: else load is shed."""
    assert run([ALERT], canary_worse=True)[0].state == "ROLLBACK"
    assert run([ALERT], canary_worse=False)[0].state == "SHED"
    assert run([CALM], canary_worse=True)[0].state == "OK"


def test_a_window_closes_after_the_longest_deadline_and_a_grace():
    """SLO-7."""
    deadline_us = 30_000_000
    closes_us = 2 * STEP_US + deadline_us + GRACE_US
    assert closed_until_us(closes_us - 1, deadline_us) == STEP_US
    assert closed_until_us(closes_us, deadline_us) == 2 * STEP_US


@given(st.lists(st.sampled_from([ALERT, CALM, SILENT]), max_size=40))
def test_no_action_is_begun_while_one_is_open_or_ended_before_it_was_calm(windows):
    open_now, calm = False, 0
    for window, step in zip(windows, run(windows), strict=True):
        calm = 0 if window == ALERT else calm + (window == CALM)
        if step.phase == "applied":
            assert not open_now
            open_now = True
        if step.phase == "undone":
            assert open_now
            assert calm >= CALM_WINDOWS
            open_now = False


@pytest.mark.parametrize(
    ("last", "age_windows", "shown"),
    [
        ("SHED", 1, "SHED"),
        ("SHED", 0, "SHED"),
        ("SHED", 3, "SHED"),
        ("SHED", 4, "OK"),  # of another time
        ("SHED", -1, "OK"),  # of later
        ("ROLLBACK", 1, "OK"),  # it burns no more
        ("FREEZE", 1, "OK"),
    ],
)
def test_between_windows_the_state_knows_what_the_newest_one_found_in_force(
    last, age_windows, shown
):
    """SLO-8: an action stays in force for its calm windows."""
    calm = status(*CALM)
    assert state_now(calm, last, calm.at_us - age_windows * STEP_US) == shown
    burning = status(*ALERT)
    if last == "ROLLBACK":
        assert state_now(burning, last, burning.at_us - age_windows * STEP_US) == "ROLLBACK"
