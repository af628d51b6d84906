"""Objectives and their actions: evaluated, declared, approved, undone, overridden (SPEC 12)."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

import msgspec
from django.conf import settings

from gateway.auth_roles import Role
from gateway.control import correcting, objectives, planning, publication
from gateway.control.objectives import Entered, possible
from gateway.operations.base import Operation, Plan, Refused, Seen
from gateway.policy.values import PRIORITIES
from ledger import openslo
from ledger.queries import configuration
from ledger.queries import objectives as stored
from ledger.records import ActionOverride, Record, SloDefinitionRecord
from ledger.rollups.tables import QUARTER, grain_us
from ledger.slo import Action, ActionKind, SloDefinition
from ledger.slo_book import OBJECTIVES_LIMIT, REVISIONS_LIMIT
from ledger.slo_control import Mode, Phase
from ledger.slo_rules import problems
from ledger.slo_text import from_json, to_json

OVERRIDE_LIMIT_US = 30 * 86_400_000_000
QUARTER_US = grain_us(QUARTER)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class EvaluateSlos(Operation, frozen=True, kw_only=True):
    """Evaluate every window that is closed and was not evaluated, with what follows from it."""

    NAME: ClassVar[str] = "evaluate_slos"
    ROLE: ClassVar[Role] = "operator"
    NEEDS_REASON: ClassVar[bool] = False
    AUDITED: ClassVar[bool] = False  # each evaluation is a record, each action has its own row

    at_us: int | None = None  # as if it were then: a time that has passed

    def takes_long(self, seen: Seen) -> bool:
        at_us = seen.now_us if self.at_us is None else self.at_us
        return 0 <= at_us <= seen.now_us and planning.anything_due(seen.connection, at_us)

    def plan(self, seen: Seen) -> Plan | Refused:
        at_us = seen.now_us if self.at_us is None else self.at_us
        if not 0 <= at_us <= seen.now_us:
            message = "--at lies in the future, or before 1970; name a time that has passed"
            return Refused(code="INVALID_REQUEST", message=message)
        mode: Mode = msgspec.convert(settings.CONTROL_MODE, type=Mode)
        found = planning.plan_pass(seen.connection, at_us, mode=mode)
        if not found.records and self.at_us is None:
            ahead_us = objectives.evaluated_until_us(seen.connection)
            if ahead_us > seen.now_us:
                message = (
                    f"The newest evaluated window ends at {ahead_us} µs, and now it is "
                    f"{seen.now_us} µs: the clock was ahead. Nothing is evaluated until it is "
                    "later; set the clock, and watch weighbridge_slo_window_end_timestamp_seconds."
                )
                return Refused(code="CLOCK_BEHIND", message=message)
        if not found.records:
            return Refused(code="NOTHING_DUE", message="No window is closed and not evaluated.")
        return Plan(
            records=found.records,
            summary=f"Evaluated {found.windows} windows; {found.actions} phases of actions, "
            f"{found.rollout_steps} steps of rollouts; {found.corrected} windows corrected.",
            subject="objectives",
            after={
                "windows": found.windows,
                "actions": found.actions,
                "rollout_steps": found.rollout_steps,
                "corrected": found.corrected,
            },
        )


class CorrectSlos(Operation, frozen=True, kw_only=True):
    """Record what the last day's windows count now, where it is another number; acts on nothing."""

    NAME: ClassVar[str] = "correct_slos"
    ROLE: ClassVar[Role] = "operator"
    LONG: ClassVar[bool] = True

    def plan(self, seen: Seen) -> Plan | Refused:
        definitions = stored.objectives(seen.connection)
        rows = correcting.all_of_the_day(seen.connection, definitions, now_us=seen.now_us)
        if not rows:
            return Refused(code="NO_CHANGE", message="Every window counts what it counted.")
        return Plan(
            records=tuple(rows),
            summary=f"Corrected {len(rows)} windows.",
            subject="objectives",
            after={"corrected": len(rows)},
        )


class DeclareSlo(Operation, frozen=True, kw_only=True):
    """Declare an objective, or the next revision of one; it counts from the next quarter hour."""

    NAME: ClassVar[str] = "declare_slo"
    ROLE: ClassVar[Role] = "admin"

    slo_id: str
    body_json: str  # as `ledger.slo_text` writes it

    def plan(self, seen: Seen) -> Plan | Refused:
        if _NAME.fullmatch(self.slo_id) is None:
            message = "slo_id has 1 to 64 letters, digits and . _ -, and begins with no sign"
            return Refused(code="INVALID_SLO", message=message)
        known = stored.revisions(seen.connection)
        mine = [one for one in known if one.slo_id == self.slo_id]
        revision = 1 + max((one.revision for one in mine), default=0)
        try:
            definition = from_json(self.slo_id, revision, self.body_json)
        except (msgspec.DecodeError, ValueError, ZeroDivisionError) as problem:
            return Refused(code="INVALID_SLO", message=f"{self.slo_id} can't be read: {problem}")
        newest = max(mine, key=lambda one: one.revision, default=None)
        if newest is not None and _same(newest, definition):
            message = f"{newest.key} says the same; it counts on."  # another would count anew
            return Refused(code="NO_CHANGE", message=message)
        return declare(definition, seen, mine, len(known))


def declare(
    definition: SloDefinition, seen: Seen, mine: list[SloDefinition], revisions: int
) -> Plan | Refused:
    """The plan that declares a definition, counted from the next quarter hour on."""
    found = () if definition.retired else problems(definition)
    if found:
        return Refused(
            code=found[0].code,
            message=f"{definition.slo_id} can't be declared: {found[0].detail}.",
            problems=tuple(f"{one.code}: {one.detail}" for one in found),
        )
    if not definition.rules and not definition.retired:
        message = (
            f"{definition.slo_id} can't be declared: no burn rule is left for its target and "
            "period, so it could never alert. Take a longer period or a higher target, or give "
            "rules of its own as OpenSLO."
        )
        return Refused(code="NO_RULES", message=message, problems=definition.left_out)
    strange = sorted(set(definition.selector.priorities) - set(PRIORITIES))
    if strange and not definition.retired:
        message = (
            f"{definition.slo_id} can't be declared: there is no priority {strange[0][:80]!r}; "
            f"there are {', '.join(PRIORITIES)}."
        )
        return Refused(code="SELECTOR_INVALID", message=message)
    stray = None if definition.retired else _stray_target(definition.action, seen)
    if stray is not None:
        message = f"{definition.slo_id} can't be declared: {stray}"
        return Refused(code="ACTION_TARGET", message=message)
    in_force = stored.objectives(seen.connection)
    if revisions >= REVISIONS_LIMIT or (not mine and len(in_force) >= OBJECTIVES_LIMIT):
        message = f"at most {OBJECTIVES_LIMIT} objectives and {REVISIONS_LIMIT} revisions"
        return Refused(code="TOO_MANY_SLOS", message=message)
    definition = replace(definition, counted_from_us=-(-seen.now_us // QUARTER_US) * QUARTER_US)
    return Plan(
        records=(
            SloDefinitionRecord(
                slo_id=definition.slo_id,
                revision=definition.revision,
                body_json=to_json(definition),
                declared_at_us=seen.now_us,
                declared_by=seen.actor.label,
            ),
        ),
        summary=f"Declared {definition.key}.",
        subject=definition.slo_id,
        before=msgspec.json.decode(to_json(mine[-1])) if mine else {},
        after=msgspec.json.decode(to_json(definition)),
    )


def _stray_target(action: Action, seen: Seen) -> str | None:
    """Why nothing would come of the action, whatever burns: there is no such target."""
    standing = publication.standing(seen.connection)
    if action.target == "" or standing is None:
        return None
    known: dict[ActionKind, tuple[str, ...]] = {
        "shed_priority": PRIORITIES,
        "limit_prefill": tuple(one.route_id for one in standing.base.routes),
        "cut_route": tuple(one.route_id for one in standing.base.routes),
        "tighten_tokens": tuple(one.name for one in standing.base.models),
        "change_quota": tuple(one.tenant_id for one in configuration.tenants(seen.connection)),
    }
    names = known.get(action.kind)
    if names is None:
        return f"{action.kind} has no target; leave it empty."
    if action.target not in names:
        return f"{action.kind} has no target {action.target[:80]!r}; there are {', '.join(names)}."
    return None


class ImportSlos(Operation, frozen=True, kw_only=True):
    """Declare the objectives of OpenSLO YAML, each as its next revision; all of them or none."""

    NAME: ClassVar[str] = "import_slos"
    ROLE: ClassVar[Role] = "admin"

    text: str  # `ledger.openslo`

    def plan(self, seen: Seen) -> Plan | Refused:
        parsed = openslo.load(self.text)
        if parsed.problems:
            return Refused(
                code="INVALID_SLO",
                message=f"Nothing was imported: {parsed.problems[0]}.",
                problems=parsed.problems,
            )
        known = stored.revisions(seen.connection)
        newest = {one.slo_id: one for one in sorted(known, key=lambda one: one.revision)}
        records: list[Record] = []
        for read in parsed.definitions:
            before = newest.get(read.slo_id)
            if before is not None and not before.retired and _same(before, read):
                continue
            fresh = replace(read, revision=1 if before is None else before.revision + 1)
            planned = declare(fresh, seen, [before] if before else [], len(known) + len(records))
            if isinstance(planned, Refused):
                return planned
            records += planned.records
        if not records:
            return Refused(code="NO_CHANGE", message="Every objective is in force as it is there.")
        return Plan(
            records=tuple(records),
            summary=f"Declared {len(records)} of {len(parsed.definitions)} objectives.",
            subject="objectives",
            after={"declared": len(records), "in_force": len(parsed.definitions) - len(records)},
        )


def _same(one: SloDefinition, other: SloDefinition) -> bool:
    return to_json(replace(one, counted_from_us=0)) == to_json(replace(other, counted_from_us=0))


class RetireSlo(Operation, frozen=True, kw_only=True):
    """Take an objective out of force; what it counted stays."""

    NAME: ClassVar[str] = "retire_slo"
    ROLE: ClassVar[Role] = "admin"

    slo_id: str

    def plan(self, seen: Seen) -> Plan | Refused:
        in_force = {one.slo_id: one for one in stored.objectives(seen.connection)}
        before = in_force.get(self.slo_id)
        if before is None:
            return Refused(code="NO_SUCH_SLO", message=f"There is no objective {self.slo_id!r}.")
        begun = [
            one.record.episode
            for one in stored.open_episodes(seen.connection)
            if (one.record.episode or "").startswith(f"{self.slo_id}/")
        ]
        if begun:
            message = f"{begun[0]} is open: undo or decline it first, or it would stay in force."
            return Refused(code="ACTION_OPEN", message=message)
        fresh = replace(before, revision=before.revision + 1, retired=True)
        return declare(fresh, seen, [before], len(stored.revisions(seen.connection)))


class ApproveAction(Operation, frozen=True, kw_only=True):
    """Let a proposed action act."""

    NAME: ClassVar[str] = "approve_action"
    ROLE: ClassVar[Role] = "operator"

    episode: str

    def plan(self, seen: Seen) -> Plan | Refused:
        return _phase(self.episode, "applied", ("proposed",), self.reason, seen)


class DeclineAction(Operation, frozen=True, kw_only=True):
    """Turn a proposed action down; the objective proposes anew in its next episode."""

    NAME: ClassVar[str] = "decline_action"
    ROLE: ClassVar[Role] = "operator"

    episode: str

    def plan(self, seen: Seen) -> Plan | Refused:
        return _phase(self.episode, "declined", ("proposed",), self.reason, seen)


class UndoAction(Operation, frozen=True, kw_only=True):
    """Undo an action that is in force before its condition has cleared."""

    NAME: ClassVar[str] = "undo_action"
    ROLE: ClassVar[Role] = "operator"

    episode: str

    def plan(self, seen: Seen) -> Plan | Refused:
        return _phase(self.episode, "undone", ("applied",), self.reason, seen)


class OverrideSlo(Operation, frozen=True, kw_only=True):
    """Have an objective act on nothing until a time, or end that: expires_at_us in the past."""

    NAME: ClassVar[str] = "override_slo"
    ROLE: ClassVar[Role] = "operator"

    slo_id: str
    expires_at_us: int

    def plan(self, seen: Seen) -> Plan | Refused:
        if self.slo_id not in {one.slo_id for one in stored.objectives(seen.connection)}:
            return Refused(code="NO_SUCH_SLO", message=f"There is no objective {self.slo_id!r}.")
        if self.expires_at_us > seen.now_us + OVERRIDE_LIMIT_US:
            message = "An override lasts 30 days at most; declare another objective instead."
            return Refused(code="INVALID_REQUEST", message=message)
        if self.expires_at_us < 0:
            message = "expires_at_us is in microseconds since 1970; name now to end an override."
            return Refused(code="INVALID_REQUEST", message=message)
        ends = self.expires_at_us <= seen.now_us
        if ends and stored.override_of(seen.connection, self.slo_id, seen.now_us) is None:
            message = f"No override of {self.slo_id} is in force: there is nothing to end."
            return Refused(code="NO_CHANGE", message=message)
        row = ActionOverride(
            slo_id=self.slo_id,
            revision=stored.override_revision(seen.connection, self.slo_id) + 1,
            reason=self.reason,
            begins_at_us=seen.now_us,
            expires_at_us=self.expires_at_us,
            set_by=seen.actor.label,
        )
        return Plan(
            records=(row,),
            summary=f"Ended the override of {self.slo_id}."
            if ends
            else f"{self.slo_id} acts on nothing until {_time(self.expires_at_us)}.",
            subject=self.slo_id,
            after={"expires_at_us": self.expires_at_us},
        )


def _time(at_us: int) -> str:
    """A moment to the second, in UTC."""
    return f"{datetime.fromtimestamp(at_us // 1_000_000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def _phase(
    episode: str, phase: Phase, from_phases: tuple[str, ...], reason: str, seen: Seen
) -> Plan | Refused:
    """The plan by which a person takes an episode into another phase."""
    rows = stored.episode(seen.connection, episode)
    if not rows or rows[-1].phase not in from_phases:
        stands = f"it is {rows[-1].phase}" if rows else "there is no such episode"
        message = f"{episode[:120]} can't be {phase}: {stands}. Look again at what is open."
        return Refused(code="NO_SUCH_EPISODE", message=message)
    last = rows[-1]
    slo_id = episode.partition("/")[0]
    definition = next(
        (one for one in stored.revisions(seen.connection) if one.slo_id == slo_id), None
    )
    if definition is None:
        return Refused(code="NO_SUCH_SLO", message=f"There is no objective {slo_id!r}.")
    entered = Entered(
        definition=definition,
        episode=episode,
        phase=phase,
        kind=msgspec.convert(last.action.removeprefix(publication.PREFIX), type=ActionKind),
        target=last.subject,
        reason=reason,
        at_us=seen.now_us,
        evidence=last.evidence,
    )
    standing = publication.standing(seen.connection)
    if (
        phase == "applied"
        and standing is not None
        and not possible(seen.connection, entered, standing.current)
    ):
        message = f"{entered.target} can't be cut any more: its models have no other route."
        return Refused(code="NO_TARGET", message=message)
    rows_after = planning.changes(seen.connection, standing, [entered], [], now_us=seen.now_us)
    return Plan(
        records=tuple(rows_after),
        summary=f"{episode} is {phase}.",
        subject=episode,
        before={"phase": last.phase},
        after={"phase": phase},
        evidence=last.evidence,
    )
