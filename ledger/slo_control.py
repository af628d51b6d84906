"""What one closed window of an objective leads to: its state, and its action's next phase (SLO-8).

Pure. An action begins on an alert that the low-traffic guard lets act, once an episode; it ends
after so many calm windows in a row. NO_DATA holds: it neither begins nor ends anything.
"""

from dataclasses import dataclass
from typing import Literal

from ledger.slo import ActionKind, SloDefinition
from ledger.slo_burn import RuleStatus, SloState, SloStatus

Mode = Literal["automatic", "approve", "off"]
Phase = Literal["proposed", "applied", "undone", "declined", "lapsed"]

STEP_US = 5 * 60_000_000  # the length of a window; windows are disjoint and end on its multiples
GRACE_US = 30_000_000  # after the longest deadline, until a window counts as closed (SLO-7)
CALM_WINDOWS = 3  # in a row, until an action is undone
SHOWN_WINDOWS = 3  # that old may the newest evaluation be: windows close with a delay
EPISODES_PER_HOUR = 2  # of one objective: more is flapping
SHEDDING: frozenset[ActionKind] = frozenset(
    {"limit_prefill", "reduce_batch", "shed_priority", "change_quota", "tighten_tokens"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the windows before have left behind."""

    calm_windows: int = 0
    episode: str | None = None  # the one that is open
    phase: Phase | None = None  # of it: proposed or applied
    begun_in_hour: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What else decides: none of it is a property of the window."""

    mode: Mode = "automatic"
    late: bool = False  # a window of a time of standstill: recorded, never acted on
    overridden: bool = False  # a person has said that it acts on nothing
    canary_worse: bool = False  # evidence that the canary differs from the baseline of this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The window's state, and the phase that it begins; None where the action stays as it is."""

    state: SloState
    calm_windows: int
    episode: str | None
    phase: Phase | None
    reason: str  # a stable code


def state_now(status: SloStatus, last_state: str, last_end_us: int) -> SloState:
    """The state to show at a moment: what the counts say, and what the newest closed window knows.

    SHED stays as long as that window found its action in force, ROLLBACK while it still burns. An
    evaluation of another time says nothing.
    """
    if not 0 <= status.at_us - last_end_us <= SHOWN_WINDOWS * STEP_US or status.state == "NO_DATA":
        return status.state
    if last_state == "SHED":
        return "SHED"
    return "ROLLBACK" if last_state == "ROLLBACK" and status.state == "FREEZE" else status.state


def closed_until_us(now_us: int, longest_deadline_us: int) -> int:
    """The end of the newest window that is closed: nothing can be accepted or end in it."""
    settled_us = now_us - longest_deadline_us - GRACE_US
    return settled_us - settled_us % STEP_US


def after_window(status: SloStatus, memory: Memory, around: Circumstances) -> Step:
    """The step that the window ending at `status.at_us` leads to."""
    alerts = page_alerts(status.rules)
    calm = memory.calm_windows
    if alerts:
        calm = 0
    elif not silent(status):
        calm += 1
    episode, phase, reason = _next(status.definition, status.at_us, alerts, calm, memory, around)
    in_force = (phase or memory.phase) == "applied"
    return Step(
        state=_state(status, in_force=in_force, around=around, alerts=bool(alerts)),
        calm_windows=calm,
        episode=episode,
        phase=phase,
        reason=reason,
    )


def page_alerts(rules: tuple[RuleStatus, ...]) -> tuple[RuleStatus, ...]:
    """The rules that alert and page; a ticket is watched, and acts on nothing."""
    return tuple(one for one in rules if one.state == "ALERT" and one.rule.severity == "page")


def silent(status: SloStatus) -> bool:
    """Whether no rule has data in both of its windows: that holds, it is not calm."""
    return all(one.state == "NO_DATA" for one in status.rules)


def _next(
    definition: SloDefinition,
    at_us: int,
    alerts: tuple[RuleStatus, ...],
    calm: int,
    memory: Memory,
    around: Circumstances,
) -> tuple[str | None, Phase | None, str]:
    if memory.episode is not None:
        if calm >= CALM_WINDOWS:
            return memory.episode, "undone" if memory.phase == "applied" else "lapsed", "CALM"
        return memory.episode, None, "OPEN"
    if not alerts:
        return None, None, "QUIET"
    for blocked, reason in (
        (not any(one.guard_passed for one in alerts), "LOW_TRAFFIC"),
        (around.late, "LATE"),
        (around.overridden, "OVERRIDDEN"),
        (around.mode == "off", "SWITCHED_OFF"),
        (memory.begun_in_hour >= EPISODES_PER_HOUR, "LIMIT_PER_HOUR"),
    ):
        if blocked:
            return None, None, reason
    automatic = around.mode == "automatic" and definition.action.automatic
    name = f"{definition.slo_id}/{at_us}"
    return name, "applied" if automatic else "proposed", "ALERT"


def _state(status: SloStatus, *, in_force: bool, around: Circumstances, alerts: bool) -> SloState:
    if alerts and around.canary_worse:
        return "ROLLBACK"
    if in_force and status.definition.action.kind in SHEDDING:
        return "SHED"
    return status.state
