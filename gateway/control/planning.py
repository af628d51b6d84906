"""One pass of the control plane: what is due is evaluated, and everything that follows is planned.

The pass reads and returns rows; whoever asked appends them in one commit. What it does follows
from the ledger and the time alone, so that a pass after a crash is the pass that was cut short.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gateway.control import canary_policy, correcting, objectives, publication, rolling
from gateway.control.objectives import Around, Entered, action_row
from gateway.control.overlay import InForce
from gateway.control.quotas import Quotas
from gateway.control.rolling import Rollout, Step
from gateway.policy.values import RoutePolicy
from gateway.quota import Quota
from ledger.queries import configuration
from ledger.queries import objectives as stored
from ledger.queries.diagnosis import diagnosis
from ledger.records import ControlAction, Record, RoutePolicyRecord
from ledger.slo_control import GRACE_US, Mode, closed_until_us

LEAST_DEADLINE_US = 30_000_000
DIAGNOSED_US = 1_800_000_000
TOLD_WITH_DIAGNOSIS = ("open_incident", "advise_scaling")
BURNING = ("FREEZE", "SHED", "ROLLBACK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What a pass came to: rows in their order, and what they are."""

    records: tuple[Record, ...]
    windows: int
    corrected: int  # windows of before that count otherwise now
    actions: int
    rollout_steps: int


def longest_deadline_us(connection: sqlite3.Connection, policy: RoutePolicy | None) -> int:
    """The longest deadline that a model or a tenant gives where a request names none."""
    deadlines = [LEAST_DEADLINE_US]
    deadlines += [model.default_deadline_us for model in (policy.models if policy else ())]
    for tenant in configuration.tenants(connection):
        quota = msgspec.json.decode(tenant.body_json, type=Quota)
        deadlines.append(quota.default_deadline_us or 0)
    return max(deadlines)


def plan_pass(connection: sqlite3.Connection, now_us: int, *, mode: Mode = "automatic") -> Pass:
    """What is due at a time. A freeze is that of the newest states, this pass's included."""
    standing = publication.standing(connection)
    policy = standing.current if standing else None
    deadline_us = longest_deadline_us(connection, policy)
    live = rolling.live(connection)
    around = Around(
        now_us=now_us,
        closed_us=closed_until_us(now_us, deadline_us),
        mode=mode,
        policy=policy,
        rollouts=live,
    )
    evaluated = list(objectives.due(connection, around))
    corrected = correcting.late(connection, now_us=now_us) if evaluated else []
    frozen = is_frozen(connection, {one.row.slo_id: one.row.state for one in evaluated})
    worse = {one.rolls_back for one in evaluated} if mode == "automatic" else set()
    steps = [
        step
        for rollout in live
        for step in _rollout_steps(
            connection,
            rollout,
            now_us=now_us,
            closed_us=now_us - deadline_us - GRACE_US,
            frozen=frozen,
            canary_worse=rollout.plan.rollout_id in worse,
            overtaken=standing is None
            or bool(canary_policy.overtaken(standing.base, rollout.plan)),
        )
    ]
    entered = [one.entered for one in evaluated if one.entered is not None]
    records: list[Record] = [*corrected, *(one.row for one in evaluated)]
    records += changes(connection, standing, entered, steps, now_us=now_us)
    return Pass(
        records=tuple(records),
        windows=len(evaluated),
        corrected=len(corrected),
        actions=len(entered),
        rollout_steps=len(steps),
    )


def anything_due(connection: sqlite3.Connection, now_us: int) -> bool:
    """Whether a pass would look at receipts: for a closed window, or for a rollout under way."""
    standing = publication.standing(connection)
    deadline_us = longest_deadline_us(connection, standing.current if standing else None)
    closed_us = closed_until_us(now_us, deadline_us)
    return bool(rolling.live(connection)) or objectives.any_due(connection, closed_us)


def is_frozen(connection: sqlite3.Connection, newer: Mapping[str, str] | None = None) -> bool:
    """Whether an objective burns too fast, or a freeze is in force: rollouts go no further up.

    `newer`: states by objective that are not in the ledger yet (REL-4).
    """
    states = {**_states(connection), **(newer or {})}
    return any(state in BURNING for state in states.values()) or any(
        one.kind == "freeze_rollouts" for one in publication.in_force(connection)
    )


def changes(
    connection: sqlite3.Connection,
    standing: publication.Standing | None,
    entered: Sequence[Entered],
    steps: Sequence[Step],
    *,
    now_us: int,
) -> list[Record]:
    """The rows by which actions and rollouts come into force, the policy's revisions first."""
    published: list[RoutePolicyRecord] = []
    before = after = standing.current.revision if standing else ""
    if standing is not None:
        base = standing.base
        for step in steps:
            base = rolling.policy_after(base, step.rollout, step.decision)
        author = f"rollout:{steps[-1].rollout.plan.rollout_id}" if steps else ""
        actions = _actions_after(publication.in_force(connection), entered)
        published, current = publication.publish(
            standing, base, actions, now_us=now_us, author=author
        )
        after = current.revision
    rows: list[Record] = [*published]
    quotas = Quotas(connection)
    for one in entered:
        tenants, told = quotas.rows(one)
        rows += tenants
        if one.phase == "applied" and one.kind in TOLD_WITH_DIAGNOSIS:
            told = {**told, "diagnosis": _diagnosed(connection, now_us)}
        rows.append(action_row(one, before, after, told))
    for step in steps:
        rows.append(msgspec.structs.replace(step.row, policy_revision=after))
        if step.decision != "continue":
            rows.append(_rollout_action(step, before, after))
    return rows


def _rollout_steps(
    connection: sqlite3.Connection,
    rollout: Rollout,
    *,
    now_us: int,
    closed_us: int,
    frozen: bool,
    canary_worse: bool,
    overtaken: bool,
) -> list[Step]:
    steps = list(
        rolling.windows_due(
            connection,
            rollout,
            now_us=now_us,
            closed_us=closed_us,
            frozen=frozen,
            overtaken=overtaken,
        )
    )
    last = steps[-1].rollout if steps else rollout
    if not last.progress.live:
        return steps
    if canary_worse:
        return [
            *steps,
            rolling.stopped(
                last, kind="look", decision="roll_back", reason="OBJECTIVE",
                actor=rolling.EVALUATOR, now_us=now_us,
            ),
        ]  # fmt: skip
    looked = rolling.look(connection, last, now_us=now_us)
    return steps if looked is None else [*steps, looked]


def _states(connection: sqlite3.Connection) -> dict[str, str]:
    """The newest state of each objective in force."""
    found = {}
    for definition in stored.objectives(connection):
        last = stored.last_evaluation(connection, definition.slo_id)
        if last is not None:
            found[definition.slo_id] = last.state
    return found


def _actions_after(before: list[InForce], entered: Sequence[Entered]) -> list[InForce]:
    actions = list(before)
    for one in entered:
        if one.phase == "applied":
            actions.append(InForce(episode=one.episode, kind=one.kind, target=one.target))
        else:
            actions = [each for each in actions if each.episode != one.episode]
    return actions


def _diagnosed(connection: sqlite3.Connection, now_us: int) -> list[str]:
    """What is wrong in the last half hour, for whoever is told of it; the likeliest first."""
    _, _, findings = diagnosis(connection, now_us - DIAGNOSED_US, now_us)
    return [f"{one.row}: {one.symptom}" for one in findings]


def _rollout_action(step: Step, before: str, after: str) -> ControlAction:
    row = step.row
    permille = step.rollout.permille if step.rollout.progress.live else 0
    return ControlAction(
        action=f"rollout.{row.decision}",
        subject=row.rollout_id,
        actor=row.actor,
        acted_at_us=row.evaluated_at_us,
        reason=row.reason,
        before_json=msgspec.json.encode({"policy": before}).decode(),
        after_json=msgspec.json.encode(
            {"policy": after, "canary_permille": permille, "state": step.rollout.progress.state}
        ).decode(),
        evidence=f"rollout_evaluation {row.rollout_id} {row.number}",
    )
