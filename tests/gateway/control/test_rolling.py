"""REL-1..6 over a ledger: gate, plan, windows, verdicts, and what the policy is after each."""

from statistics import fmean

import msgspec
import pytest

from gateway.demo.fleet import FAST_V3
from gateway.fleet_file.named import named
from gateway.operations.base import Done, Refused
from gateway.operations.policies import PublishPolicy
from gateway.operations.releases import (
    DecideRollout,
    DeclareRelease,
    ImportEvaluations,
    StartRollout,
)
from ledger import rollouts
from ledger.records import ControlAction, ReleaseRecord, RolloutEvaluation, RolloutRecord
from tests.gateway.control.ledger_of import (
    GRACE_US,
    LONGEST_DEADLINE_US,
    MINUTE_US,
    NOW_US,
    evaluate,
    experiment_one,
    perform,
    policy_now,
    pour,
    rows,
)
from tests.gateway.control.rollout_of import (
    RELEASE,
    ROLLOUT,
    WINDOW_US,
    arm_receipts,
    evaluations,
    plan,
    ready,
    release,
)


def shares(fleet) -> dict[str, int]:
    canary = policy_now(fleet).models[0].canary
    return {} if canary is None else {arm.arm: arm.share_permille for arm in canary.arms}


def start(fleet, **changes):
    ready(fleet, NOW_US)
    return perform(fleet, StartRollout(rollout=plan(**changes), reason="new build"), NOW_US)


def closed(number: int) -> int:
    """When the rollout's window of this number, from 1, is closed: one share all the while."""
    return NOW_US + number * WINDOW_US + LONGEST_DEADLINE_US + GRACE_US


def window(fleet, number, **traffic):
    """Pour the traffic of a window, evaluate it when it is closed, return its row."""
    pour(fleet, arm_receipts(NOW_US + (number - 1) * WINDOW_US, seed=number, **traffic))
    evaluate(fleet, closed(number))
    return rows(fleet, RolloutEvaluation, "kind = 'window'")[-1]


def test_a_release_without_all_of_its_evidence_has_a_closed_gate(fleet):
    """REL-1: missing or failed evidence starts nothing."""
    perform(fleet, ImportEvaluations(text=evaluations(missing="safety")), NOW_US)
    perform(fleet, release(), NOW_US)
    asked = StartRollout(rollout=plan(), reason="hurry")
    refused = perform(fleet, asked, NOW_US)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.problems) == (
        "GATE_CLOSED",
        ("safety: this exact identity was never measured with it",),
    )
    assert rows(fleet, RolloutRecord) == []
    failed = evaluations(failed="safety").replace('safety/1"', 'safety/2"')
    only = msgspec.json.encode(
        [one for one in msgspec.json.decode(failed) if one["evaluation_id"] == "safety/2"]
    ).decode()
    perform(fleet, ImportEvaluations(text=only), NOW_US)
    assert perform(fleet, asked, NOW_US).code == "GATE_CLOSED"


def test_evaluations_are_imported_once_and_never_changed(fleet):
    done = perform(fleet, ImportEvaluations(text=evaluations()), NOW_US)
    assert isinstance(done, Done)
    assert done.after == {"imported": 5, "known": 0}
    assert perform(fleet, ImportEvaluations(text=evaluations()), NOW_US).code == "NO_CHANGE"
    changed = ImportEvaluations(text=evaluations().replace("930", "940"))
    assert perform(fleet, changed, NOW_US).code == "EVALUATION_CHANGED"
    ahead = ImportEvaluations(text=evaluations().replace("2026-", "2036-").replace("/1", "/2"))
    refused = perform(fleet, ahead, NOW_US)  # it would be its suite's newest for ten years
    assert (refused.code, "future" in refused.message) == ("INVALID_EVALUATIONS", True)
    broken = ImportEvaluations(text='[{"suite": "core"}]')
    assert perform(fleet, broken, NOW_US).code == "INVALID_EVALUATIONS"


def test_the_plan_is_hashed_into_the_ledger_before_the_policy_that_follows_it(fleet):
    """REL-3: and an edited plan can't take its place."""
    assert isinstance(start(fleet), Done)
    (declared,) = rows(fleet, RolloutRecord)
    assert declared.plan_hash == rollouts.plan_hash(rollouts.encode(plan()))
    connection = fleet.reader()
    declared_seq = connection.execute("SELECT max(seq) FROM rollout").fetchone()[0]
    policy_seq = connection.execute("SELECT max(seq) FROM route_policy").fetchone()[0]
    connection.close()
    assert declared_seq < policy_seq
    assert shares(fleet) == {"baseline": 700, "canary": 300}
    eased = StartRollout(rollout=plan(consecutive=9), reason="it would fail")
    assert perform(fleet, eased, NOW_US).code == "ROLLOUT_EXISTS"
    (bundle,) = rows(fleet, ReleaseRecord)
    assert msgspec.json.decode(bundle.body_json)["quantization"] == "fp8"


def test_a_better_mean_with_a_worse_tail_is_stopped_in_two_windows(fleet):
    """REL-3: the canary is a third faster end to end, and two of a hundred wait thrice as long."""
    start(fleet)
    traffic = {"slow": 0.06, "speed": 0.6}
    sample = arm_receipts(0, seed=1, **traffic)
    means = [
        fmean(one.e2e_us for one in sample if one.arm == arm) for arm in ("baseline", "canary")
    ]
    assert means[1] < 0.7 * means[0]
    first = window(fleet, 1, **traffic)
    assert (first.verdict, first.decision, first.reason) == ("FAIL", "continue", "FAILED_ONCE")
    second = window(fleet, 2, **traffic)
    assert (second.decision, second.reason) == ("roll_back", "FAILED:ttft_p99")
    assert shares(fleet) == {}
    model = policy_now(fleet).models[0]
    assert model.primary_routes == ("fast-v2", "fast-us-v2")
    tail = msgspec.json.decode(second.statistics_json)["tested"][0]["statistics"]
    assert tail["p_value"] <= 0.01
    assert second.policy_revision == policy_now(fleet).revision


def test_a_fault_in_only_one_window_does_nothing(fleet):
    start(fleet)
    assert window(fleet, 1, slow=0.06).verdict == "FAIL"
    second = window(fleet, 2)
    assert (second.verdict, second.decision) == ("PASS", "raise")
    assert shares(fleet) == {"baseline": 500, "canary": 500}


def test_fewer_samples_than_the_minimum_hold_and_never_promote(fleet):
    start(fleet)
    decisions = [
        window(fleet, number, baseline=700, canary=200, slow=0.06).decision for number in (1, 2, 3)
    ]
    # 200 of 900 is a fifth where three tenths were planned: the share is off, too.
    assert decisions[0] == "hold"
    assert shares(fleet) == {"baseline": 700, "canary": 300}


def test_three_windows_with_too_few_samples_hold_for_a_person_who_lets_it_go_on(fleet):
    start(fleet)
    few = {"baseline": 350, "canary": 150, "slow": 0.06}
    found = [window(fleet, number, **few) for number in (1, 2, 3)]
    assert [one.verdict for one in found] == ["INCONCLUSIVE"] * 3
    assert [one.decision for one in found] == ["continue", "continue", "hold"]
    at_us = closed(3) + 1
    resume = DecideRollout(rollout_id=ROLLOUT, decision="resume", reason="traffic is back")
    assert isinstance(perform(fleet, resume, at_us), Done)
    last = rows(fleet, RolloutEvaluation)[-1]
    assert (last.kind, last.decision) == ("person", "resume")
    assert msgspec.json.decode(last.progress_json)["state"] == "running"


def test_windows_that_pass_raise_and_promote(fleet):
    start(fleet)
    assert window(fleet, 1).decision == "raise"
    raised = rows(fleet, RolloutEvaluation)[-1]
    since_us = msgspec.json.decode(raised.progress_json)["step_since_us"]
    assert since_us == -(-closed(1) // MINUTE_US) * MINUTE_US
    pour(fleet, arm_receipts(since_us, baseline=1_000, canary=1_000, seed=9))
    evaluate(fleet, since_us + WINDOW_US + LONGEST_DEADLINE_US + GRACE_US)
    assert rows(fleet, RolloutEvaluation)[-1].decision == "promote"
    model = policy_now(fleet).models[0]
    assert (model.primary_routes, model.canary) == (("fast-v3",), None)
    told = [one.action for one in rows(fleet, ControlAction) if one.subject == ROLLOUT]
    assert told == ["rollout.start", "start_rollout", "rollout.raise", "rollout.promote"]


def test_between_windows_only_evidence_that_holds_under_peeking_stops(fleet):
    """REL-6: half of the canary's requests fail; the window is far from closed."""
    start(fleet)
    half = [
        msgspec.structs.replace(one, status="failed", terminal_error_code="PROVIDER_FAILED")
        if one.arm == "canary" and number % 2
        else one
        for number, one in enumerate(arm_receipts(NOW_US, baseline=140, canary=60))
    ]
    pour(fleet, half)
    evaluate(fleet, NOW_US + WINDOW_US)
    last = rows(fleet, RolloutEvaluation)[-1]
    assert (last.kind, last.decision, last.reason) == ("look", "roll_back", "EVIDENCE")
    assert shares(fleet) == {}


def test_a_burning_error_budget_freezes_all_rollouts(fleet):
    """REL-4: a window that passes raises nothing while interactive requests queue."""
    start(fleet)
    pour(fleet, experiment_one(NOW_US + WINDOW_US - 5 * MINUTE_US, times=10, slow=40))
    row = window(fleet, 1)
    assert (row.verdict, row.decision, row.reason) == ("PASS", "continue", "FROZEN")
    other = plan(rollout_id="other", logical_model="assist-long")
    refused = perform(fleet, StartRollout(rollout=other, reason="now"), closed(1) + 1)
    assert isinstance(refused, Refused)


def test_a_person_takes_a_rollout_back(fleet):
    start(fleet)
    asked = DecideRollout(rollout_id=ROLLOUT, decision="roll_back", reason="complaints")
    assert isinstance(perform(fleet, asked, NOW_US + 1), Done)
    assert shares(fleet) == {}
    again = perform(fleet, asked, NOW_US + 2)
    assert isinstance(again, Refused)
    assert again.code == "ROLLOUT_OVER"


def promote(**changes) -> DecideRollout:
    fields = {"rollout_id": ROLLOUT, "decision": "promote", "reason": "seen enough"}
    return DecideRollout(**(fields | {"confirm": ROLLOUT} | changes))


def test_a_person_promotes_what_too_few_samples_left_open(fleet):
    """REL-5: the rollout holds for a person, who gives its name once more and a reason."""
    start(fleet)
    few = {"baseline": 350, "canary": 150}
    assert [window(fleet, number, **few).decision for number in (1, 2, 3)][-1] == "hold"
    at_us = closed(3) + 1
    unsure = perform(fleet, promote(confirm="fast"), at_us)
    assert (unsure.code, shares(fleet)) == (
        "CONFIRMATION_MISSING",
        {"baseline": 700, "canary": 300},
    )
    assert isinstance(perform(fleet, promote(), at_us), Done)
    model = policy_now(fleet).models[0]
    assert (model.primary_routes, model.canary) == (("fast-v3",), None)
    last = rows(fleet, RolloutEvaluation)[-1]
    assert (last.kind, last.decision, last.reason) == ("person", "promote", "seen enough")


def test_a_person_promotes_nothing_that_was_never_judged_or_that_has_failed(fleet):
    """REL-3: nobody's word outvotes a worse tail; no data is no pass."""
    start(fleet)
    assert perform(fleet, promote(), NOW_US + 1).code == "NOTHING_JUDGED"
    assert window(fleet, 1, slow=0.06).verdict == "FAIL"
    refused = perform(fleet, promote(), closed(1) + 1)
    assert (refused.code, "ttft_p99" in refused.message) == ("ROLLOUT_FAILING", True)
    assert shares(fleet) == {"baseline": 700, "canary": 300}


def test_a_person_promotes_nothing_while_an_error_budget_burns(fleet):
    """REL-4."""
    start(fleet)
    pour(fleet, experiment_one(NOW_US + WINDOW_US - 5 * MINUTE_US, times=10, slow=40))
    assert window(fleet, 1).reason == "FROZEN"
    assert perform(fleet, promote(), closed(1) + 1).code == "ROLLOUTS_FROZEN"


def test_a_rollout_whose_canary_someone_published_away_goes_no_further_up(fleet):
    """REL-3: what passes is not raised against the policy in force, and nobody promotes it."""
    start(fleet)
    declared = policy_now(fleet)
    plain = msgspec.structs.replace(declared.models[0], canary=None)
    without = msgspec.structs.replace(declared, models=(plain, *declared.models[1:]))
    tree = {name: value for name, value in named(without).items() if name != "revision"}
    published = PublishPolicy(
        revision="without", policy=tree, based_on=declared.revision, reason="by hand"
    )
    done = perform(fleet, published, NOW_US + WINDOW_US)
    assert isinstance(done, Done)
    assert f"the rollout {ROLLOUT} is under way, and" in done.summary
    judged = window(fleet, 1)
    assert (judged.verdict, judged.decision, judged.reason) == ("PASS", "continue", "OVERTAKEN")
    refused = perform(fleet, promote(), closed(1) + 1)
    assert (refused.code, "no canary any more" in refused.message) == ("PLAN_MISFITS", True)
    back = DecideRollout(rollout_id=ROLLOUT, decision="roll_back", reason="published away")
    assert isinstance(perform(fleet, back, closed(1) + 2), Done)
    assert policy_now(fleet).models[0].primary_routes == ("fast-v2", "fast-us-v2")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "-a", "a" * 81])
def test_a_rollout_and_a_release_have_names_that_a_page_can_show(fleet, name):
    asked = DeclareRelease(release_id=name, identity_id=FAST_V3.identity_id, reason="r")
    assert perform(fleet, asked, NOW_US).code == "INVALID_RELEASE"
    assert start(fleet, rollout_id=name).code == "INVALID_PLAN"


def test_a_person_ends_a_rollout_unpromoted(fleet):
    start(fleet)
    asked = DecideRollout(rollout_id=ROLLOUT, decision="end", reason="another build comes")
    assert isinstance(perform(fleet, asked, NOW_US + 1), Done)
    last = rows(fleet, RolloutEvaluation)[-1]
    assert msgspec.json.decode(last.progress_json)["state"] == "ended"
    assert policy_now(fleet).models[0].primary_routes == ("fast-v2", "fast-us-v2")
    assert shares(fleet) == {}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"conditions": ()}, "INVALID_PLAN"),
        ({"priority": "interactve"}, "INVALID_PLAN"),
        ({"release_id": "unheard-of"}, "NO_SUCH_RELEASE"),
        ({"canary_routes": ("fast-v9",)}, "PLAN_MISFITS"),
        ({"baseline_routes": ("fast-v2",)}, "PLAN_MISFITS"),
        (
            {"baseline_routes": ("fast-v3",), "canary_routes": ("fast-v2", "fast-us-v2")},
            "PLAN_MISFITS",
        ),
    ],
)
def test_a_plan_that_can_not_hold_starts_nothing(fleet, changes, code):
    refused = start(fleet, **changes)
    assert isinstance(refused, Refused)
    assert refused.code == code
    assert rows(fleet, RolloutRecord) == []
    assert RELEASE in {one.release_id for one in rows(fleet, ReleaseRecord)}
