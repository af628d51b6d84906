"""The source's fifth extension and its ninth acceptance line: releases (sections 11, 14, 15)."""

from dataclasses import dataclass
from statistics import fmean

from ledger.rollout_window import ArmRow, statistics
from ledger.rollouts import (
    DEFAULT_CONDITIONS,
    Condition,
    Plan,
    Window,
    after_window,
    started,
    window_of,
)

MS = 1_000


def plan(*conditions: Condition) -> Plan:
    return Plan(
        rollout_id="v3",
        release_id="v3",
        logical_model="assist",
        baseline_routes=("v2",),
        canary_routes=("v3",),
        steps_permille=(333,),
        conditions=conditions or DEFAULT_CONDITIONS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """So many requests, of which `slow` wait 3 s for the first token, and all take `e2e_ms`."""

    name: str
    count: int
    e2e_ms: int
    slow: int = 0
    schema_broken: int = 0
    cancelled: int = 0
    taken_over: int = 0


def requests(arm: Arm) -> list[ArmRow]:
    rows = []
    for number in range(arm.count):
        gone = number < arm.cancelled
        rows.append(
            ArmRow(
                arm=arm.name,
                priority="interactive",
                status="cancelled" if gone else "completed",
                degraded_from=None,
                first_token_us=(3_000 if number < arm.slow else 300 + number % 50) * MS,
                itl_mean_us=20 * MS,
                e2e_us=(arm.e2e_ms + number % 7) * MS,
                deadline_us=30_000 * MS,
                schema_valid=0 if number < arm.schema_broken else 1,
                terminal_error_code="CLIENT_GONE" if gone else None,
                input_tokens=400,
                output_tokens=120,
                cost_total_pico=1_000_000,
                taken_over=int(number < arm.taken_over),
            )
        )
    return rows


BASELINE = Arm(name="baseline", count=2_000, e2e_ms=4_000, slow=4)


def windows(planned: Plan, *canaries: Arm) -> list[str]:
    """The decision after each window in which the canary was as given."""
    progress, decisions = started(0), list[str]()
    for canary in canaries:
        found = statistics(planned, 333, [*requests(BASELINE), *requests(canary)])
        _, end_us = window_of(planned, progress)
        outcome = after_window(planned, progress, Window(end_us=end_us, verdicts=found.verdicts))
        decisions.append(outcome.decision)
        progress = outcome.progress
    return decisions


def test_extension_five_a_better_mean_does_not_hide_a_worse_tail():
    worse = Arm(name="canary", count=1_000, e2e_ms=3_000, slow=40)
    means = [fmean(row.e2e_us for row in requests(arm)) for arm in (BASELINE, worse)]
    assert means[1] < 0.8 * means[0]
    assert windows(plan(), worse, worse) == ["continue", "roll_back"]


def test_acceptance_nine_a_release_is_compared_stopped_and_promoted():
    same = Arm(name="canary", count=1_000, e2e_ms=4_000, slow=2)
    assert windows(plan(), same) == ["promote"]
    for worse in (
        Arm(name="canary", count=1_000, e2e_ms=4_000, schema_broken=60),
        Arm(name="canary", count=1_000, e2e_ms=4_000, cancelled=60),
    ):
        assert windows(plan(), worse, worse) == ["continue", "roll_back"]


def test_answers_that_people_take_over_stop_a_release_that_says_so():
    declared = plan(Condition(metric="taken_over", limit_permille=10))
    worse = Arm(name="canary", count=1_000, e2e_ms=4_000, taken_over=60)
    assert windows(declared, worse, worse) == ["continue", "roll_back"]
    same = Arm(name="canary", count=1_000, e2e_ms=4_000)
    assert windows(declared, same) == ["promote"]


def test_two_windows_with_fewer_requests_than_the_minimum_roll_nothing_back():
    few = Arm(name="canary", count=100, e2e_ms=3_000, slow=40)
    assert "roll_back" not in windows(plan(), few, few)
