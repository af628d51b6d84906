"""A request's attempts, what followed each and why, and what became of its answer. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.pages.charts import Phase
from gateway.pages.formatting import duration
from gateway.policy.reasons import REASONS
from gateway.policy.values import Decision
from ledger.queries.dossier import Dossier
from ledger.records import Attempt, AttemptDecision, AttemptEvent, OutcomeReport, Receipt
from ledger.rows import Stored

_COLOURS = {"primary": 1, "retry": 2, "fallback": 5, "hedge": 3}
_KIND_WORDS = {
    "primary": "first",
    "retry": "tried again",
    "fallback": "elsewhere",
    "hedge": "beside the one that was silent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One attempt: where, when after acceptance, how long, how it ended. Times in µs."""

    attempt_id: str
    ordinal: int
    kind: str
    words: str
    route_id: str
    provider_kind: str
    start_us: int
    first_byte_us: int | None  # after its own start
    length_us: int | None  # None: no end is known
    outcome: str
    error_code: str
    provider_request_id: str
    input_tokens: int | None
    output_tokens: int | None
    cost_pico: int | None
    resolved: bool  # its end became known later than its request's receipt

    @property
    def answered(self) -> bool:
        return self.outcome == "completed"


def tried(found: Dossier) -> tuple[Tried, ...]:
    """Every attempt in the order in which they began."""
    accepted_us = found.receipts[0].record.accepted_at_us
    events: dict[str, list[AttemptEvent]] = {}
    for stored in found.attempt_events:
        events.setdefault(stored.record.attempt_id, []).append(stored.record)
    return tuple(
        _tried(one.record, events.get(one.record.attempt_id, []), accepted_us)
        for one in found.attempts
    )


def _tried(one: Attempt, events: Sequence[AttemptEvent], accepted_us: int) -> Tried:
    ends = [event for event in events if event.event == "ended"]
    first = next((event for event in events if event.event == "first_byte"), None)
    end = ends[-1] if ends else None
    return Tried(
        attempt_id=one.attempt_id,
        ordinal=one.ordinal,
        kind=one.kind,
        words=_KIND_WORDS.get(one.kind, one.kind),
        route_id=one.route_id,
        provider_kind=one.provider_kind,
        start_us=max(0, one.started_at_us - accepted_us),
        first_byte_us=first.at_us - one.started_at_us if first else None,
        length_us=max(0, ends[0].at_us - one.started_at_us) if ends else None,
        outcome=(end.outcome or "unknown") if end else "",
        error_code=(end.error_code or "") if end else "",
        provider_request_id=next(
            (each.provider_request_id for each in reversed(events) if each.provider_request_id), ""
        ),
        input_tokens=end.input_tokens if end else None,
        output_tokens=end.output_tokens if end else None,
        cost_pico=end.cost_pico if end else None,
        resolved=len(ends) > 1,
    )


def bars(attempts: Sequence[Tried], receipt: Receipt) -> tuple[Phase, ...]:
    """The attempts side by side in time; one without a known end lasts as long as the request."""
    return tuple(
        Phase(
            label=f"{one.ordinal} {one.kind}",
            start_us=one.start_us,
            length_us=one.length_us
            if one.length_us is not None
            else max(0, receipt.e2e_us - one.start_us),
            colour=_COLOURS.get(one.kind, 6),
        )
        for one in attempts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """One question after an attempt, and its answer in a sentence."""

    at_us: int
    action: str
    said: str
    reason: str
    described: str


def followed(decisions: Sequence[Stored[AttemptDecision]]) -> tuple[Followed, ...]:
    return tuple(_followed(one.record) for one in decisions)


def _followed(one: AttemptDecision) -> Followed:
    asked = {
        "ended": "The attempt ended",
        "hedge_due": "The attempt had been silent for the hedge's delay",
    }.get(one.asked, f"Asked because of {one.asked}")
    what = {
        "retry": f"it was tried again on {one.route_id}",
        "fallback": f"it was sent to {one.route_id} instead",
        "hedge": f"a second attempt was started on {one.route_id} beside it",
        "none": "nothing followed",
    }.get(one.action, one.action)
    reason = REASONS.get(one.reason)
    return Followed(
        at_us=one.decided_at_us,
        action=one.action,
        said=f"{asked}: {what}.",
        reason=one.reason,
        described=reason.description if reason else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One report on how the answer did in use."""

    at_us: int
    by: str
    said: str
    task: str
    evidence: str


def reported(reports: Sequence[OutcomeReport]) -> tuple[Reported, ...]:
    return tuple(
        Reported(
            at_us=one.reported_at_us,
            by=one.reported_by,
            said="; ".join(_said(one)) or "nothing",
            task=" ".join(part for part in (one.task_type, one.task_id) if part),
            evidence=one.evidence,
        )
        for one in reports
    )


def _said(one: OutcomeReport) -> list[str]:
    pairs = (
        (one.quality_passed, "its quality passed", "its quality did not pass"),
        (one.citations_verified, "its citations hold", "its citations do not hold"),
        (one.schema_valid, "it keeps its schema", "it breaks its schema"),
        (one.task_completed, "the task was completed", "the task was not completed"),
        (one.taken_over, "a person took over", "nobody had to take over"),
    )
    return [yes if value else no for value, yes, no in pairs if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """One revision of the receipt: what was known then."""

    revision: int
    seq: int
    status: str
    at_us: int
    code: str
    cost_pico: int
    how: str  # by what it came to be known: the settlement's kind and author


def resolutions(found: Dossier) -> tuple[Resolution, ...]:
    """Every revision in order, where there is more than one; else none."""
    if len(found.receipts) < 2:
        return ()
    return tuple(
        Resolution(
            revision=one.record.revision,
            seq=one.seq,
            status=one.record.status,
            at_us=one.record.ended_at_us,
            code=one.record.terminal_error_code or "",
            cost_pico=one.record.cost_total_pico,
            how="; ".join(
                f"{each.record.kind.replace('_', ' ')} by {each.record.settled_by}"
                for each in found.settlements
                if _between(found, place, each.seq)
            ),
        )
        for place, one in enumerate(found.receipts)
    )


def _between(found: Dossier, place: int, seq: int) -> bool:
    """Whether an entry was written with this revision: after the one before, up to it."""
    before = found.receipts[place - 1].seq if place else 0
    last = place + 1 == len(found.receipts)
    return before < seq and (last or seq <= found.receipts[place].seq)


_SHOWN = (
    ("status", "Status"),
    ("route_id", "Route"),
    ("reason_code", "Reason"),
    ("degraded_from", "Degraded from"),
    ("arm", "Arm"),
)


def beside(recorded: Decision, again: Decision) -> tuple[tuple[str, str, str, bool], ...]:
    """(what, as recorded, by the other rules, whether they differ) of a decision's outcome."""
    rows = [
        (label, _text(getattr(recorded, name)), _text(getattr(again, name)))
        for name, label in _SHOWN
    ]
    rows.append(("First token, predicted", duration(recorded.ttft_us), duration(again.ttft_us)))
    rows.append(("End to end, predicted", duration(recorded.e2e_us), duration(again.e2e_us)))
    return tuple((what, one, two, one != two) for what, one, two in rows)


def changed_fields(recorded: Decision, again: Decision) -> int:
    """How many fields of the decision differ."""
    names = msgspec.structs.fields(Decision)
    return sum(getattr(recorded, one.name) != getattr(again, one.name) for one in names)


def _text(value: object) -> str:
    return "–" if value is None else str(value)
