"""What is wrong now, made ready to be read: for whom, since when, what is done. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from gateway.diagnosing import Moment
from gateway.pages.formatting import duration, iso, percent, thousands, units
from gateway.pages.slo_view import STATE_CHIPS, covers, drill_of, length_of, rate, state_of
from ledger.diagnosis import LEAST_REQUESTS, Finding, Picture
from ledger.queries.proving import MARKS, Proof
from ledger.records import ActionOverride, ControlAction, SloEvaluation
from ledger.rows import Stored
from ledger.slo_burn import SloStatus

_RANK = {"ROLLBACK": 0, "SHED": 1, "FREEZE": 2, "WATCH": 3, "NO_DATA": 4, "OK": 5}
_CALM = ("OK", "NO_DATA")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective that doesn't hold, or one that does."""

    slo_id: str
    title: str
    state: str
    chip: str
    whom: str
    since_us: int | None  # the end of the first evaluated window that says so; None: none does
    since_exactly: bool  # False: it may have been so before
    burn: str  # of the rule that burns fastest, with its window
    budget_left: str
    exhausted: str
    action: str
    override: ActionOverride | None
    drill: str

    @property
    def wrong(self) -> bool:
        return self.state not in _CALM


def objective(
    status: SloStatus,
    evaluations: Sequence[SloEvaluation],
    override: ActionOverride | None,
    moment: Moment,
) -> Objective:
    """`evaluations`: the objective's newest windows, the newest first."""
    definition, left = status.definition, status.budget_left
    burning = max(
        (rule for rule in status.rules if rule.long.burn is not None),
        key=lambda rule: (rule.state == "ALERT", (rule.long.burn or 0) / rule.rule.factor),
        default=None,
    )
    state = state_of(status, evaluations[0] if evaluations else None)
    since_us, since_exactly = _since(state, evaluations)
    return Objective(
        slo_id=definition.slo_id,
        title=definition.title,
        state=state,
        chip=STATE_CHIPS[state],
        whom=covers(definition),
        since_us=since_us,
        since_exactly=since_exactly,
        burn=""
        if burning is None
        else f"{rate(burning.long.burn)} times its budget over {length_of(burning.long.length_us)}",
        budget_left="NO_DATA" if left is None else percent(left.numerator, left.denominator),
        exhausted=_exhausted(status),
        action=definition.control_action,
        override=override,
        drill=window_query(drill_of(definition), moment),
    )


def _since(state: str, evaluations: Sequence[SloEvaluation]) -> tuple[int | None, bool]:
    """(the end of the first window in which it was so, whether the one before was otherwise)."""
    newest: dict[int, SloEvaluation] = {}
    for one in evaluations:  # of several revisions of a window the highest comes first
        newest.setdefault(one.end_us, one)
    first: SloEvaluation | None = None
    for one in newest.values():
        if (one.state in _CALM) != (state in _CALM):
            return (None, False) if first is None else (first.end_us, True)
        first = one
    return (None, False) if first is None else (first.end_us, False)


def _exhausted(status: SloStatus) -> str:
    if status.exhausted_in_us is None:
        return ""
    if status.exhausted_in_us == 0:
        return "used up"
    return f"used up in {duration(status.exhausted_in_us)}"


def window_query(drill: str, moment: Moment) -> str:
    """The query of the receipts page for a drill within the window, in whole seconds outwards."""
    second = 1_000_000
    end_us = -(-moment.end_us // second) * second
    named = [("since", iso(moment.start_us)[:19]), ("until", iso(end_us)[:19])]
    return urlencode([*parse_qsl(drill), *named])


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """A finding with the receipts that show it and where the others are."""

    finding: Finding
    drill: str
    proofs: tuple[tuple[Proof, str], ...]  # with what it was chosen for, as text
    means: str


def diagnosed(finding: Finding, proofs: Sequence[Proof], moment: Moment) -> Diagnosed:
    mark = MARKS[finding.row]
    return Diagnosed(
        finding=finding,
        drill=window_query(finding.drill, moment),
        proofs=tuple((one, _measured(mark.column, one.value)) for one in proofs),
        means=mark.means,
    )


def _measured(column: str, value: int | None) -> str:
    return f"{units(value)} units" if column.endswith("_pico") else duration(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """How many accepted requests a window's picture stands on, and whether those are all."""

    requests: int
    newest_from_us: int | None  # the first that was read, where the window has more; else None

    @property
    def words(self) -> str:
        """ "1,234 requests"; "the newest 10,000 requests" where there are more."""
        newest = "" if self.newest_from_us is None else "the newest "
        return f"{newest}{thousands(self.requests)} request{'' if self.requests == 1 else 's'}"


def read_of(picture: Picture, start_us: int) -> Read:
    """Of the picture of a window that begins at start_us."""
    whole = picture.start_us <= start_us
    return Read(requests=picture.requests, newest_from_us=None if whole else picture.start_us)


def undiagnosed(before: Read, now: Read) -> str:
    """Why nothing is diagnosed: that nothing is wrong, or that there is too little to say so."""
    fewest = min(before.requests, now.requests)
    if fewest >= LEAST_REQUESTS:
        return (
            f"None of the eight symptoms shows in {now.words}, beside {before.words} of the window "
            "before."
        )
    return (
        f"Too few requests to diagnose: {thousands(now.requests)} in this window and "
        f"{thousands(before.requests)} in the one before; it takes {LEAST_REQUESTS} in each. "
        "That is no all-clear: choose a longer window."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An episode that has not ended: proposed, or in force."""

    episode: str
    action: str
    subject: str
    phase: str
    chip: str
    actor: str
    at_us: int
    reason: str
    evidence: str
    slo_id: str

    @property
    def proposed(self) -> bool:
        return self.phase == "proposed"


def action(stored: Stored[ControlAction]) -> Action:
    record = stored.record
    episode = record.episode or ""
    return Action(
        episode=episode,
        action=record.action.removeprefix("slo."),
        subject=record.subject,
        phase=record.phase or "",
        chip="watch" if record.phase == "proposed" else "alert",
        actor=record.actor,
        at_us=record.acted_at_us,
        reason=record.reason,
        evidence=record.evidence,
        slo_id=episode.partition("/")[0],
    )


def ranked(objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """The worst first, then by title."""
    return tuple(sorted(objectives, key=lambda one: (_RANK[one.state], one.title)))
