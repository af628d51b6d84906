"""Releases and their rollouts: declared, gated, started, held, taken back (SPEC 13)."""

import re
from typing import ClassVar, Literal

import msgspec

from gateway.auth_roles import Role
from gateway.control import canary_policy, planning, publication, rolling
from gateway.operations.base import Operation, Plan, Refused, Seen
from gateway.policy.values import PRIORITIES
from ledger import evaluation_import, release_gate, rollouts
from ledger.queries import configuration
from ledger.queries import rollouts as stored
from ledger.records import EvaluationResult, ReleaseRecord, RolloutRecord
from ledger.release_gate import Release, Requirement

NAME_LIMIT_CHARS = 80
AHEAD_LIMIT_US = 3_600_000_000  # of a measurement's clock before ours
NAME_RULE = (
    f"has 1 to {NAME_LIMIT_CHARS} letters, digits and . _ : / -, and begins with a letter or digit"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")


class ImportEvaluations(Operation, frozen=True, kw_only=True):
    """File evaluation results; a file that was imported already changes nothing."""

    NAME: ClassVar[str] = "import_evaluations"
    ROLE: ClassVar[Role] = "operator"
    NEEDS_REASON: ClassVar[bool] = False

    text: str  # `ledger.evaluation_import`

    def plan(self, seen: Seen) -> Plan | Refused:
        parsed = evaluation_import.parse(self.text.encode())
        if parsed.problems:
            return Refused(
                code="INVALID_EVALUATIONS",
                message=f"Nothing was imported: {parsed.problems[0]}.",
                problems=parsed.problems,
            )
        ahead = [
            one.evaluation_id
            for one in parsed.results
            if one.measured_at_us > seen.now_us + AHEAD_LIMIT_US
        ]
        if ahead:  # it would stay its suite's newest, whatever is measured from now on
            message = f"Nothing was imported: {ahead[0]} was measured in the future."
            return Refused(code="INVALID_EVALUATIONS", message=message, problems=tuple(ahead[:20]))
        known = {one.evaluation_id: one for one in configuration.evaluations(seen.connection)[0]}
        changed = [
            one.evaluation_id for one in parsed.results if known.get(one.evaluation_id, one) != one
        ]
        if changed:
            return Refused(
                code="EVALUATION_CHANGED",
                message=f"{changed[0]} is in the ledger with another content, which can't be "
                "changed; a new measurement needs a new evaluation_id.",
            )
        fresh: tuple[EvaluationResult, ...] = tuple(
            one for one in parsed.results if one.evaluation_id not in known
        )
        if not fresh:
            return Refused(code="NO_CHANGE", message="Every result is in the ledger already.")
        return Plan(
            records=fresh,
            summary=f"Imported {len(fresh)} of {len(parsed.results)} evaluation results.",
            subject="evaluations",
            after={"imported": len(fresh), "known": len(parsed.results) - len(fresh)},
        )


class DeclareRelease(Operation, frozen=True, kw_only=True):
    """Declare what is released, and which suites have to have passed before it gets a request."""

    NAME: ClassVar[str] = "declare_release"
    ROLE: ClassVar[Role] = "operator"

    release_id: str
    identity_id: str
    requirements: tuple[Requirement, ...] = ()

    def plan(self, seen: Seen) -> Plan | Refused:
        if not _is_name(self.release_id) or "/" in self.release_id:
            message = f"release_id {NAME_RULE}, and has no /"
            return Refused(code="INVALID_RELEASE", message=message)
        if stored.release(seen.connection, self.release_id) is not None:
            message = f"{self.release_id} is declared already, and a release is immutable."
            return Refused(code="RELEASE_EXISTS", message=message)
        identity = configuration.identity(seen.connection, self.identity_id)
        if identity is None:
            message = f"There is no model identity {self.identity_id!r}."
            return Refused(code="NO_SUCH_IDENTITY", message=message)
        standing = publication.standing(seen.connection)
        release = release_gate.bundle(
            self.release_id,
            identity,
            standing.base.revision if standing else "",
            self.requirements,
        )
        body = msgspec.json.encode(release, order="sorted").decode()
        lines = gate_of(seen, release)
        closed = [f"{one.check}: {one.detail}" for one in lines if one.state != "passed"]
        opened = "open" if release_gate.is_open(lines) else f"closed ({'; '.join(closed)})"
        return Plan(
            records=(
                ReleaseRecord(
                    release_id=self.release_id,
                    identity_id=self.identity_id,
                    body_json=body,
                    declared_at_us=seen.now_us,
                    declared_by=seen.actor.label,
                ),
            ),
            summary=f"Declared {self.release_id}; its gate is {opened}.",
            subject=self.release_id,
            after=msgspec.json.decode(body),
        )


class StartRollout(Operation, frozen=True, kw_only=True):
    """Declare a rollout's plan and give the canary its first share, in one commit."""

    NAME: ClassVar[str] = "start_rollout"
    ROLE: ClassVar[Role] = "operator"

    rollout: rollouts.Plan

    def plan(self, seen: Seen) -> Plan | Refused:
        declared = self.rollout
        refusal = self._refusal(seen)
        if refusal is not None:
            return refusal
        body = rollouts.encode(declared)
        step = rolling.started(
            declared, now_us=seen.now_us, actor=seen.actor.label, reason=self.reason
        )
        record = RolloutRecord(
            rollout_id=declared.rollout_id,
            release_id=declared.release_id,
            plan_json=body,
            plan_hash=rollouts.plan_hash(body),
            declared_at_us=seen.now_us,
            declared_by=seen.actor.label,
        )
        standing = publication.standing(seen.connection)
        rows = planning.changes(seen.connection, standing, [], [step], now_us=seen.now_us)
        return Plan(
            records=(record, *rows),  # the plan comes first: before any request of the canary
            summary=f"Started {declared.rollout_id} at {step.rollout.permille} of 1000.",
            subject=declared.rollout_id,
            after={"plan_hash": record.plan_hash, "canary_permille": step.rollout.permille},
        )

    def _refusal(self, seen: Seen) -> Refused | None:
        declared, connection = self.rollout, seen.connection
        name = declared.rollout_id
        if not _is_name(name):
            return Refused(code="INVALID_PLAN", message=f"rollout_id {NAME_RULE}.")
        if declared.priority not in ("", *PRIORITIES):
            message = (
                f"{name} can't be started: there is no priority {declared.priority[:80]!r}; "
                f"there are {', '.join(PRIORITIES)}, and empty for all."
            )
            return Refused(code="INVALID_PLAN", message=message)
        problems = rollouts.problems(declared)
        if problems:
            return Refused(
                code="INVALID_PLAN",
                message=f"{name} can't be started: {problems[0].field}: {problems[0].detail}.",
                problems=tuple(f"{one.field}: {one.detail}" for one in problems),
            )
        if stored.rollout(connection, name) is not None:
            message = f"{name} is declared already; its conditions can't be changed. Name another."
            return Refused(code="ROLLOUT_EXISTS", message=message)
        record = stored.release(connection, declared.release_id)
        if record is None:
            message = f"There is no release {declared.release_id!r}; declare it first."
            return Refused(code="NO_SUCH_RELEASE", message=message)
        release = msgspec.json.decode(record.body_json, type=Release)
        lines = gate_of(seen, release)
        if not release_gate.is_open(lines):
            closed = tuple(f"{one.check}: {one.detail}" for one in lines if one.state != "passed")
            return Refused(
                code="GATE_CLOSED",
                message=f"The gate of {release.release_id} is closed: {closed[0]}.",
                problems=closed,
            )
        standing = publication.standing(connection)
        if standing is None:
            return Refused(code="NOT_CONFIGURED", message="No route policy is published yet.")
        misfits = canary_policy.problems_of(standing.base, declared)
        misfits += tuple(
            f"{route.route_id} is of another identity than {release.release_id}"
            for route in standing.base.routes
            if route.route_id in declared.canary_routes and route.identity_id != release.identity_id
        )
        if misfits:
            return Refused(code="PLAN_MISFITS", message=f"{name}: {misfits[0]}.", problems=misfits)
        for other in rolling.live(connection):
            if other.plan.logical_model == declared.logical_model:
                message = f"{other.plan.rollout_id} is under way on {declared.logical_model}."
                return Refused(code="ROLLOUT_UNDER_WAY", message=message)
        if planning.is_frozen(connection):
            message = "An error budget burns too fast: no rollout starts until it does no more."
            return Refused(code="ROLLOUTS_FROZEN", message=message)
        return None


class DecideRollout(Operation, frozen=True, kw_only=True):
    """Hold a rollout, let a held one go on, promote it, take it back, or end it unpromoted."""

    NAME: ClassVar[str] = "decide_rollout"
    ROLE: ClassVar[Role] = "operator"

    rollout_id: str
    decision: Literal["hold", "resume", "promote", "roll_back", "end"]
    confirm: str = ""  # to promote: the rollout's name once more

    def plan(self, seen: Seen) -> Plan | Refused:
        rollout = rolling.of(seen.connection, self.rollout_id)
        if rollout is None or not rollout.progress.live:
            state = "it was never started" if rollout is None else f"it is {rollout.progress.state}"
            message = f"{self.rollout_id[:120]} can't be changed: {state}."
            if rollout is not None and rollout.progress.state == "promoted":
                message += " To go back, return to the policy before it (return_to_policy)."
            return Refused(code="ROLLOUT_OVER", message=message)
        wanted = {"hold": "running", "resume": "held"}.get(self.decision, rollout.progress.state)
        if rollout.progress.state != wanted:
            message = f"{self.rollout_id} is {rollout.progress.state} already; nothing was changed."
            return Refused(code="NO_CHANGE", message=message)
        refusal = self._not_promoted(seen, rollout) if self.decision == "promote" else None
        if refusal is not None:
            return refusal
        step = rolling.stopped(
            rollout, kind="person", decision=self.decision, reason=self.reason,
            actor=seen.actor.label, now_us=seen.now_us,
        )  # fmt: skip
        standing = publication.standing(seen.connection)
        rows = planning.changes(seen.connection, standing, [], [step], now_us=seen.now_us)
        return Plan(
            records=tuple(rows),
            summary=f"{self.rollout_id} is {step.rollout.progress.state}.",
            subject=self.rollout_id,
            before={"state": rollout.progress.state},
            after={"state": step.rollout.progress.state},
        )

    def _not_promoted(self, seen: Seen, rollout: rolling.Rollout) -> Refused | None:
        """Why a person can't promote it: a word may decide what is open, not what has failed."""
        name = self.rollout_id
        if self.confirm != name:
            message = f"To promote {name}, give its name once more as confirm."
            return Refused(code="CONFIRMATION_MISSING", message=message)
        if rollout.progress.failed:
            metric, windows = rollout.progress.failed[0]
            message = (
                f"{metric} failed in {windows} of its newest windows: hold it, or take it back."
            )
            return Refused(code="ROLLOUT_FAILING", message=message)
        if rollout.progress.windows == 0:
            message = f"No window of {name} is judged yet; no data is no pass."
            return Refused(code="NOTHING_JUDGED", message=message)
        standing = publication.standing(seen.connection)
        misfits = canary_policy.overtaken(standing.base, rollout.plan) if standing else ()
        if misfits:
            message = f"{name} can't be promoted: {misfits[0]}. End it, and start another."
            return Refused(code="PLAN_MISFITS", message=message, problems=misfits)
        if planning.is_frozen(seen.connection):
            message = "An error budget burns too fast: nothing is promoted until it does no more."
            return Refused(code="ROLLOUTS_FROZEN", message=message)
        return None


def _is_name(text: str) -> bool:
    return len(text) <= NAME_LIMIT_CHARS and _NAME.fullmatch(text) is not None


def gate_of(seen: Seen, release: Release) -> tuple[release_gate.GateLine, ...]:
    """The release's gate with the evidence that the ledger has."""
    return release_gate.gate(release, configuration.evaluations(seen.connection)[0])
