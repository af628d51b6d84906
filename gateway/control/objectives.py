"""Objectives: each closed window evaluated once, in order, and the phase that each action enters.

Reads the ledger and returns what is to be appended. A window is known as evaluated by its row, and
the row stands in one transaction with its actions: a kill at any point leaves both or neither.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec

from gateway.control.overlay import can_cut, cut_route
from gateway.control.publication import PREFIX
from gateway.control.rolling import Rollout
from gateway.policy.values import RoutePolicy
from ledger import slo_control
from ledger.peeking import BadCounts, evidence
from ledger.queries import objectives as stored
from ledger.queries import worst
from ledger.queries.actions import drained_routes
from ledger.queries.slo import slo_status
from ledger.records import ControlAction, SloEvaluation
from ledger.rollouts import PERMILLE, window_of
from ledger.rollups.projection import read_state
from ledger.slo import DAY_US, HOUR_US, ActionKind, SloDefinition
from ledger.slo_burn import SloStatus, WindowBurn
from ledger.slo_control import STEP_US, Circumstances, Memory, Mode, Phase, Step, after_window

WINDOWS_PER_PASS = 96
FIRST_LOOK_BACK_US = DAY_US
"""How far before its first evaluation an objective's windows begin: its rules look no further."""

_COLUMN: dict[ActionKind, str] = {
    "cut_route": "route_id",
    "change_quota": "tenant_id",
    "tighten_tokens": "logical_model",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """A phase that an action enters; what it changes is known when the policy is published."""

    definition: SloDefinition
    episode: str
    phase: Phase
    kind: ActionKind
    target: str
    reason: str
    at_us: int
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """One evaluated window: its row, the phase that it began, whether a rollout has to go."""

    row: SloEvaluation
    entered: Entered | None
    rolls_back: str | None  # the rollout whose canary is the one that is worse


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What all windows of a pass share."""

    now_us: int
    closed_us: int
    mode: Mode
    policy: RoutePolicy | None
    rollouts: Sequence[Rollout]


def due(connection: sqlite3.Connection, around: Around) -> Iterator[Evaluated]:
    """Every window of every objective in force that is closed and not evaluated, in order."""
    open_now = [one.record for one in stored.open_episodes(connection)]
    for definition, last, end_us in _next_ends(connection, around.closed_us):
        prefix = f"{definition.slo_id}/"
        mine = [one for one in open_now if (one.episode or "").startswith(prefix)]
        memory = Memory(
            calm_windows=last.calm_windows if last else 0,
            episode=mine[-1].episode if mine else None,
            phase=_phase(mine[-1]) if mine else None,
            begun_in_hour=stored.begun_since(connection, prefix, around.now_us - HOUR_US),
        )
        for _ in range(WINDOWS_PER_PASS):
            if end_us > around.closed_us:
                break
            target = mine[-1].subject if mine else ""
            found, memory = _window(connection, definition, end_us, memory, target, around)
            around = _after(around, found.entered)
            yield found
            end_us += STEP_US


def _after(around: Around, entered: Entered | None) -> Around:
    """What the next objective of the pass sees: a route that was cut just now is gone for it."""
    if entered is None or around.policy is None:
        return around
    if entered.kind != "cut_route" or entered.phase != "applied":
        return around
    return replace(around, policy=cut_route(around.policy, entered.target))


def any_due(connection: sqlite3.Connection, closed_us: int) -> bool:
    """Whether a window of an objective in force is closed and not evaluated."""
    return any(end_us <= closed_us for _, _, end_us in _next_ends(connection, closed_us))


def _next_ends(
    connection: sqlite3.Connection, closed_us: int
) -> Iterator[tuple[SloDefinition, SloEvaluation | None, int]]:
    """Each objective in force, its newest evaluation, and where its next window ends."""
    first_us = stored.first_acceptance_us(connection)
    if first_us is None:
        return  # nobody has ever asked for anything: there is no window yet
    for definition in stored.objectives(connection):
        last = stored.last_evaluation(connection, definition.slo_id)
        before_us = last.end_us if last else _before_first(closed_us, first_us)
        yield definition, last, before_us + STEP_US


def evaluated_until_us(connection: sqlite3.Connection) -> int:
    """The end of the newest window that any objective in force was evaluated at; 0 of none."""
    last = [stored.last_evaluation(connection, one.slo_id) for one in stored.objectives(connection)]
    return max((one.end_us for one in last if one is not None), default=0)


def _before_first(closed_us: int, first_us: int) -> int:
    """The end before the first window: no further back than the ledger and the look back go."""
    start_us = max(closed_us - FIRST_LOOK_BACK_US, first_us)
    return min(start_us - start_us % STEP_US, closed_us)


def _window(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    end_us: int,
    memory: Memory,
    target: str,
    around: Around,
) -> tuple[Evaluated, Memory]:
    counted_to_seq = read_state(connection).position  # before the counts: none is passed over
    status = slo_status(connection, definition, end_us)
    alerts = slo_control.page_alerts(status.rules)
    late = end_us < around.closed_us
    worse = _canary_worse(connection, definition, around, end_us) if alerts and not late else None
    step = after_window(
        status,
        memory,
        Circumstances(
            mode=around.mode,
            late=late,
            overridden=stored.override_of(connection, definition.slo_id, around.now_us) is not None,
            canary_worse=worse is not None,
        ),
    )
    if step.phase in ("proposed", "applied"):
        found = _resolved(connection, definition, status, around.policy)
        if found is None:  # nothing that the action could be done to: it begins nothing
            step = replace(step, phase=None, episode=None, reason="NO_TARGET", state=status.state)
        else:
            target = found
    entered = None
    if step.phase is not None and step.episode is not None:
        entered = Entered(
            definition=definition,
            episode=step.episode,
            phase=step.phase,
            kind=definition.action.kind,
            target=target,
            reason=step.reason,
            at_us=around.now_us,
            evidence=_evidence(definition, status),
        )
    row = _row(definition, status, step, around.now_us, counted_to_seq)
    evaluated = Evaluated(row=row, entered=entered, rolls_back=worse)
    return evaluated, _remembered(memory, step)


def _remembered(memory: Memory, step: Step) -> Memory:
    ended = step.phase in ("undone", "lapsed")
    begun = step.phase in ("proposed", "applied")
    return Memory(
        calm_windows=step.calm_windows,
        episode=None if ended else step.episode,
        phase=None if ended else (step.phase or memory.phase),
        begun_in_hour=memory.begun_in_hour + begun,
    )


def _resolved(
    connection: sqlite3.Connection,
    definition: SloDefinition,
    status: SloStatus,
    policy: RoutePolicy | None,
) -> str | None:
    """What the action is done to: what the objective names, or the worst; None where nothing is."""
    kind, target = definition.action.kind, definition.action.target
    column = _COLUMN.get(kind)
    if column is None or target:
        return target if _may(connection, kind, target, policy) else None
    start_us = min(one.long.start_us for one in slo_control.page_alerts(status.rules))
    for name in worst.by_bad(connection, definition, start_us, status.at_us, column):
        if _may(connection, kind, name, policy):
            return name
    return None


def _may(
    connection: sqlite3.Connection, kind: ActionKind, target: str, policy: RoutePolicy | None
) -> bool:
    """Whether it may be done to the target: the last route of a model is never cut."""
    if kind != "cut_route":
        return True
    return policy is not None and can_cut(policy, target, drained_routes(connection))


def possible(connection: sqlite3.Connection, entered: Entered, policy: RoutePolicy) -> bool:
    """Whether an action that was proposed can still be applied, as things are now."""
    return _may(connection, entered.kind, entered.target, policy)


def _canary_worse(
    connection: sqlite3.Connection, definition: SloDefinition, around: Around, end_us: int
) -> str | None:
    """The rollout whose canary differs from the baseline of the same time (SLO-8); None: none.

    An e-value of the bad requests by arm since the step began: it holds at any time (REL-6).
    """
    for rollout in around.rollouts:
        start_us, _ = window_of(rollout.plan, rollout.progress)
        if rollout.plan.key != "request" or start_us >= end_us:
            continue
        baseline, canary = worst.bad_by_arm(
            connection, definition, rollout.plan.release_id, start_us, end_us
        )
        share = Fraction(rollout.permille, PERMILLE)
        counted = BadCounts(share=share, baseline_bad=baseline, canary_bad=canary)
        if evidence([counted]).stops:
            return rollout.plan.rollout_id
    return None


def _phase(record: ControlAction) -> Phase:
    phase: Phase = msgspec.convert(record.phase, type=Phase)
    return phase


def _evidence(definition: SloDefinition, status: SloStatus) -> str:
    """Where to read why: the evaluation's key, and the burn rates that decided."""
    burns = ", ".join(
        f"{one.rule.name} {_burn(one.long)} and {_burn(one.short)} over {float(one.rule.factor):g}"
        for one in slo_control.page_alerts(status.rules)
    )
    return f"slo_evaluation {definition.slo_id} {status.at_us}{': ' + burns if burns else ''}"


def _burn(window: WindowBurn) -> str:
    return "no data" if window.burn is None else f"{float(window.burn):.2f}"


def rules_json(status: SloStatus) -> str:
    """Each rule with its state and its windows' counts, as an evaluation's row holds them."""
    rules = [
        {
            "rule": one.rule.name,
            "state": one.state,
            "guard": one.guard_passed,
            "long": [one.long.start_us, one.long.tally.good, one.long.tally.valid],
            "short": [one.short.start_us, one.short.tally.good, one.short.tally.valid],
        }
        for one in status.rules
    ]
    return msgspec.json.encode(rules).decode()


def _row(
    definition: SloDefinition, status: SloStatus, step: Step, now_us: int, counted_to_seq: int
) -> SloEvaluation:
    return SloEvaluation(
        slo_id=definition.slo_id,
        end_us=status.at_us,
        revision=0,
        slo_revision=definition.revision,
        start_us=status.at_us - STEP_US,
        state=step.state,
        good=status.period.tally.good,
        valid=status.period.tally.valid,
        rules_json=rules_json(status),
        calm_windows=step.calm_windows,
        evaluated_at_us=now_us,
        episode=step.episode,
        counted_to_seq=counted_to_seq,
    )


def action_row(
    entered: Entered, before: str, after: str, more: dict[str, object] | None = None
) -> ControlAction:
    """The row of a phase, with the policy revisions before and after it."""
    return ControlAction(
        action=f"{PREFIX}{entered.kind}",
        subject=entered.target,
        actor=f"slo:{entered.definition.slo_id}",
        acted_at_us=entered.at_us,
        reason=entered.reason,
        before_json=msgspec.json.encode({"policy": before}).decode(),
        after_json=msgspec.json.encode({"policy": after, **(more or {})}).decode(),
        evidence=entered.evidence,
        episode=entered.episode,
        phase=entered.phase,
    )
