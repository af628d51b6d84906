"""Rollouts: each closed window judged once, a look between two, and the policy that follows.

Reads the ledger and returns what is to be appended; the operation that asked commits it whole.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from gateway.control import canary_policy
from gateway.policy.values import RoutePolicy
from ledger import rollouts
from ledger.peeking import BadCounts, Evidence, evidence
from ledger.queries import rollouts as stored
from ledger.records import RolloutEvaluation
from ledger.rollout_window import ArmRow, WindowStatistics, bad_counts, statistics
from ledger.rollouts import PERMILLE, Decision, Plan, Progress, Window

WINDOWS_PER_PASS = 50
EVALUATOR = "evaluator"
MINUTE_US = rollouts.WINDOW_LEAST_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A declared plan, how far it has come, and the number of its last recorded step."""

    plan: Plan
    progress: Progress
    number: int

    @property
    def permille(self) -> int:
        return self.plan.steps_permille[self.progress.step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step to record; `policy_revision` is filled in once that is known."""

    rollout: Rollout  # as it is after the step
    row: RolloutEvaluation

    @property
    def decision(self) -> str:
        return self.row.decision


def live(connection: sqlite3.Connection) -> list[Rollout]:
    """The rollouts that have begun and not come to their end, the oldest first."""
    found = [of(connection, one.rollout_id) for one in reversed(stored.rollouts(connection))]
    return [one for one in found if one is not None and one.progress.live]


def of(connection: sqlite3.Connection, rollout_id: str) -> Rollout | None:
    """A rollout that has begun; None where it has not, or is not declared."""
    declared, last = (
        stored.rollout(connection, rollout_id),
        stored.last_step(connection, rollout_id),
    )
    if declared is None or last is None:
        return None
    return Rollout(
        plan=msgspec.json.decode(declared.plan_json, type=Plan),
        progress=msgspec.json.decode(last.progress_json, type=Progress),
        number=last.number,
    )


def policy_after(policy: RoutePolicy, rollout: Rollout, decision: str) -> RoutePolicy:
    """The base policy once the decision is in force."""
    if decision in ("roll_back", "end"):
        return canary_policy.restored(policy, rollout.plan)
    if decision == "promote":
        return canary_policy.promoted(policy, rollout.plan)
    if decision in ("start", "raise"):
        return canary_policy.with_share(policy, rollout.plan, rollout.permille)
    return policy


def windows_due(
    connection: sqlite3.Connection,
    rollout: Rollout,
    *,
    now_us: int,
    closed_us: int,
    frozen: bool,
    overtaken: bool = False,
) -> Iterable[Step]:
    """The steps of every window of the rollout that is closed and not judged yet, in order.

    `overtaken`: a policy published since no longer fits the plan; it goes no further up.
    """
    for _ in range(WINDOWS_PER_PASS):
        start_us, end_us = rollouts.window_of(rollout.plan, rollout.progress)
        if end_us > closed_us or not rollout.progress.live:
            return
        step = _judged(
            connection,
            rollout,
            start_us,
            end_us,
            now_us=now_us,
            frozen=frozen,
            overtaken=overtaken,
        )
        yield step
        rollout = step.rollout


def look(connection: sqlite3.Connection, rollout: Rollout, *, now_us: int) -> Step | None:
    """A roll-back between two windows where the evidence holds under peeking; None: none does."""
    start_us, _ = rollouts.window_of(rollout.plan, rollout.progress)
    rows = _rows(connection, rollout, start_us, now_us)
    if rows is None:
        return None
    found = weigh(rollout, bad_counts(Fraction(rollout.permille, PERMILLE), rows))
    if not found.stops:
        return None
    return stopped(
        rollout, kind="look", decision="roll_back", reason="EVIDENCE", actor=EVALUATOR,
        now_us=now_us, start_us=start_us,
        statistics_json=msgspec.json.encode({"log_e": round(found.log_e, 6)}).decode(),
    )  # fmt: skip


def weigh(rollout: Rollout, more: BadCounts | None = None) -> Evidence:
    """The evidence of the rollout's closed windows, and of what came since."""
    if rollout.plan.key != "request":
        return evidence([])  # other keys put many requests into one arm: no fair bet
    counted = [
        BadCounts(share=Fraction(share, PERMILLE), baseline_bad=baseline, canary_bad=canary)
        for share, baseline, canary in rollout.progress.bad
    ]
    return evidence([*counted, *([] if more is None else [more])])


def stopped(
    rollout: Rollout, *, kind: str, decision: Decision, reason: str, actor: str, now_us: int,
    start_us: int = 0, statistics_json: str = "{}",
) -> Step:  # fmt: skip
    """The step by which a look, a person or an objective changes the rollout's state."""
    after = Rollout(
        plan=rollout.plan,
        progress=rollouts.follow(rollout.progress, decision),
        number=rollout.number + 1,
    )
    return Step(
        rollout=after,
        row=_row(
            after, kind=kind, start_us=start_us or now_us, end_us=now_us, verdict="",
            decision=decision, reason=reason, statistics_json=statistics_json, now_us=now_us,
            actor=actor,
        ),
    )  # fmt: skip


def started(plan: Plan, *, now_us: int, actor: str, reason: str) -> Step:
    """The first step: the canary's first share, from the next whole minute on."""
    rollout = Rollout(plan=plan, progress=rollouts.started(now_us), number=1)
    return Step(
        rollout=rollout,
        row=_row(
            rollout, kind="start", start_us=now_us, end_us=now_us, verdict="", decision="start",
            reason=reason, statistics_json="{}", now_us=now_us, actor=actor,
        ),
    )  # fmt: skip


def _judged(
    connection: sqlite3.Connection,
    rollout: Rollout,
    start_us: int,
    end_us: int,
    *,
    now_us: int,
    frozen: bool,
    overtaken: bool,
) -> Step:
    rows = _rows(connection, rollout, start_us, end_us)
    found = statistics(rollout.plan, rollout.permille, rows or ())
    outcome = rollouts.after_window(
        rollout.plan,
        rollout.progress,
        Window(
            end_us=end_us,
            verdicts=found.verdicts,
            share_off_plan=found.share_off_plan,
            evidence_stops=weigh(rollout, found.bad).stops,
        ),
        frozen=frozen or overtaken,
    )
    reason = "OVERTAKEN" if overtaken and outcome.reason == "FROZEN" else outcome.reason
    progress = _with_bad(outcome.progress, rollout.permille, found)
    if outcome.decision == "raise":
        # The new share is in force from now on: what came between has the old one.
        progress = msgspec.structs.replace(
            progress, step_since_us=-(-now_us // MINUTE_US) * MINUTE_US
        )
    after = Rollout(plan=rollout.plan, progress=progress, number=rollout.number + 1)
    return Step(
        rollout=after,
        row=_row(
            after, kind="window", start_us=start_us, end_us=end_us, verdict=outcome.verdict,
            decision=outcome.decision, reason=reason, now_us=now_us, actor=EVALUATOR,
            statistics_json=msgspec.json.encode(found, enc_hook=str).decode(),
        ),
    )  # fmt: skip


def _with_bad(progress: Progress, permille: int, found: WindowStatistics) -> Progress:
    """The progress with the window's bad requests added to those of its share."""
    counts = {share: (baseline, canary) for share, baseline, canary in progress.bad}
    baseline, canary = counts.get(permille, (0, 0))
    counts[permille] = (baseline + found.bad.baseline_bad, canary + found.bad.canary_bad)
    return msgspec.structs.replace(
        progress, bad=tuple((share, *pair) for share, pair in sorted(counts.items()))
    )


def _rows(
    connection: sqlite3.Connection, rollout: Rollout, start_us: int, end_us: int
) -> list[ArmRow] | None:
    plan = rollout.plan
    return stored.arm_rows(connection, plan.logical_model, plan.release_id, start_us, end_us)


def _row(
    rollout: Rollout, *, kind: str, start_us: int, end_us: int, verdict: str, decision: str,
    reason: str, statistics_json: str, now_us: int, actor: str,
) -> RolloutEvaluation:  # fmt: skip
    return RolloutEvaluation(
        rollout_id=rollout.plan.rollout_id,
        number=rollout.number,
        kind=kind,
        start_us=start_us,
        end_us=end_us,
        verdict=verdict,
        decision=decision,
        reason=reason,
        statistics_json=statistics_json,
        progress_json=msgspec.json.encode(rollout.progress).decode(),
        policy_revision="",
        evaluated_at_us=now_us,
        actor=actor,
    )
