"""What was changed in the running system and why: objectives, releases, actions (SPEC 12, 13)."""

from typing import ClassVar

from ledger.records.base import Index, Indexes, Record, Unique


class ControlAction(Record, frozen=True, kw_only=True):
    """One change, by whom or which rule, before and after. An episode is one action on the data
    plane from its proposal to its end; each of its phases is a row of its own."""

    TABLE: ClassVar[str] = "control_action"
    VERSION: ClassVar[int] = 2
    SINCE: ClassVar[dict[str, int]] = {"episode": 2, "phase": 2}
    INDEXES: ClassVar[Indexes] = (
        Index("control_action_episode", "episode", present=True),
        Index("control_action_subject", "action", "subject"),
    )
    LABEL: ClassVar[str] = "subject"
    action: str
    subject: str
    actor: str  # an operator, a command or a rule
    acted_at_us: int
    reason: str
    before_json: str
    after_json: str
    evidence: str = ""
    episode: str | None = None
    phase: str | None = None  # proposed | applied | undone | declined | lapsed


class SloDefinitionRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "slo_definition"
    UNIQUE: ClassVar[Unique] = (("slo_id", "revision"),)
    slo_id: str
    revision: int  # the highest is in force
    body_json: str  # ledger.slo_text
    declared_at_us: int
    declared_by: str


class SloEvaluation(Record, frozen=True, kw_only=True):
    """What one objective was at the end of one closed window, with the counts that say so."""

    TABLE: ClassVar[str] = "slo_evaluation"
    VERSION: ClassVar[int] = 2
    SINCE: ClassVar[dict[str, int]] = {"counted_to_seq": 2}
    UNIQUE: ClassVar[Unique] = (("slo_id", "end_us", "revision"),)
    slo_id: str
    end_us: int
    revision: int  # 0; above: a correction of the one before, which acts on nothing
    slo_revision: int
    start_us: int
    state: str  # OK | WATCH | FREEZE | SHED | ROLLBACK | NO_DATA
    good: int  # of the budget's period
    valid: int
    rules_json: str  # each rule: state, guard, and its windows' counts
    calm_windows: int  # in a row without an alert, for hysteresis
    evaluated_at_us: int
    episode: str | None = None  # the action that it began or found in force
    counted_to_seq: int | None = None  # the row up to which requests were counted


class ActionOverride(Record, frozen=True, kw_only=True):
    """A person's word that an objective acts on nothing until it expires (SLO-8)."""

    TABLE: ClassVar[str] = "action_override"
    UNIQUE: ClassVar[Unique] = (("slo_id", "revision"),)
    slo_id: str
    revision: int  # the highest counts; one that has expired already ends the one before
    reason: str
    begins_at_us: int
    expires_at_us: int
    set_by: str


class ReleaseRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "release"
    UNIQUE: ClassVar[Unique] = (("release_id",),)
    release_id: str
    identity_id: str
    body_json: str  # ledger.release_gate.Release
    declared_at_us: int
    declared_by: str


class RolloutRecord(Record, frozen=True, kw_only=True):
    """A plan, declared and hashed before its first request (REL-3)."""

    TABLE: ClassVar[str] = "rollout"
    UNIQUE: ClassVar[Unique] = (("rollout_id",),)
    rollout_id: str
    release_id: str
    plan_json: str  # ledger.rollouts.Plan
    plan_hash: str
    declared_at_us: int
    declared_by: str


class RolloutEvaluation(Record, frozen=True, kw_only=True):
    """One step of a rollout: its start, a closed window, a look between two, a person's word."""

    TABLE: ClassVar[str] = "rollout_evaluation"
    UNIQUE: ClassVar[Unique] = (("rollout_id", "number"),)
    rollout_id: str
    number: int  # 1, 2, …
    kind: str  # start | window | look | person
    start_us: int
    end_us: int
    verdict: str  # PASS | FAIL | INCONCLUSIVE, "" where nothing was judged
    decision: str
    reason: str
    statistics_json: str
    progress_json: str  # ledger.rollouts.Progress, after the decision
    policy_revision: str  # in force after the decision
    evaluated_at_us: int
    actor: str


class Notification(Record, frozen=True, kw_only=True):
    """What became of telling a webhook about one control action."""

    TABLE: ClassVar[str] = "notification"
    UNIQUE: ClassVar[Unique] = (("action_seq", "target"),)
    action_seq: int  # of the control action
    target: str  # the webhook's host
    outcome: str  # delivered | given_up
    attempts: int
    ended_at_us: int
