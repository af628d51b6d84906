"""What a unit that has lines and attempts says: agreement, or in what they differ (REC-2). Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ledger.invoices.values import TOKEN_METERS, UNCACHED_METERS
from ledger.reconcile.values import ClassName, Ours, Plan, Proposal, Theirs, Tokens

EVIDENCE_LIMIT = 20
ROUNDED_PER_ATTEMPT_PICO = 2  # four components, each rounded by half a pico unit at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Attempts and lines with the one class that all of them fall into."""

    class_name: ClassName
    detail: str
    ours: tuple[Ours, ...] = ()
    theirs: tuple[Theirs, ...] = ()
    proposal: Proposal | None = None


def judge(
    plan: Plan, ours: Sequence[Ours], theirs: Sequence[Theirs], *, by_id: bool
) -> tuple[Judged, ...]:
    """The classes of one unit's attempts and lines: one, or two where an unknown is resolved.

    By id, a line for an open unknown resolves it. In a group that has one open unknown, the group
    resolves it where it ties out exactly without it (not charged) or with it (charged as known).
    """
    ours, theirs = tuple(ours), tuple(theirs)
    if not ours:
        return (Judged(class_name="only_theirs", detail="no_attempt", theirs=theirs),)
    unknown = [one for one in ours if one.open and one.outcome == "unknown"]
    if by_id and unknown:
        found = Judged(
            class_name="unknown_resolved", detail="charged", ours=ours, theirs=theirs,
            proposal=_charged(unknown[0], theirs),
        )  # fmt: skip
        return (found,)
    if len(unknown) == 1:
        resolved = _resolved_by_group(plan, ours, theirs, unknown[0])
        if resolved is not None:
            return resolved
    return (_compared(plan, ours, theirs),)


def _compared(plan: Plan, ours: tuple[Ours, ...], theirs: tuple[Theirs, ...]) -> Judged:
    found = Judged(class_name="matched", detail="", ours=ours, theirs=theirs)
    used, said = tokens_of(ours), tokens_said(theirs)
    if used is not None and said is not None and not used.within(said, plan.tokens_tolerance):
        return replace(found, class_name="differing", detail="tokens")
    difference = abs(sum(t.pico for t in theirs) - sum(o.cost_pico for o in ours))
    if difference <= plan.line_tolerance_pico:
        return found
    if not any(t.role == "cost" for t in theirs):
        return replace(found, class_name="differing", detail="no_cost_line")
    allowed = sum(t.uncertain_pico for t in theirs) + ROUNDED_PER_ATTEMPT_PICO * len(ours)
    detail = "rounding" if difference <= allowed else "price"
    return replace(found, class_name="differing", detail=detail)


def _charged(unknown: Ours, theirs: tuple[Theirs, ...]) -> Proposal:
    return Proposal(
        request_id=unknown.request_id,
        attempt_id=unknown.attempt_id,
        ran=True,
        cost_pico=sum(t.pico for t in theirs),
        tokens=tokens_said(theirs),
        evidence=tuple(t.line_id for t in theirs[:EVIDENCE_LIMIT]),
    )


def _resolved_by_group(
    plan: Plan, ours: tuple[Ours, ...], theirs: tuple[Theirs, ...], unknown: Ours
) -> tuple[Judged, ...] | None:
    """The unknown by itself and the others as matched; None where the group proves neither."""
    if not any(t.role == "cost" for t in theirs) or tokens_said(theirs) is None:
        return None
    others = tuple(one for one in ours if one is not unknown)
    evidence = tuple(t.line_id for t in theirs[:EVIDENCE_LIMIT])
    proposal = Proposal(
        request_id=unknown.request_id, attempt_id=unknown.attempt_id, ran=False, cost_pico=0,
        tokens=None, evidence=evidence,
    )  # fmt: skip
    resolved = Judged(
        class_name="unknown_resolved", detail="not_charged", ours=(unknown,), proposal=proposal
    )
    if others and _ties(plan, others, theirs):
        return (Judged(class_name="matched", detail="", ours=others, theirs=theirs), resolved)
    nothing = not unknown.cost_pico and unknown.tokens == Tokens()
    if nothing or not _ties(plan, ours, theirs):
        return None
    charged = Proposal(
        request_id=unknown.request_id, attempt_id=unknown.attempt_id, ran=True,
        cost_pico=unknown.cost_pico, tokens=unknown.tokens, evidence=evidence,
    )  # fmt: skip
    whole = Judged(
        class_name="unknown_resolved", detail="charged", ours=ours, theirs=theirs, proposal=charged
    )
    return (whole,)


def _ties(plan: Plan, ours: tuple[Ours, ...], theirs: tuple[Theirs, ...]) -> bool:
    """Whether tokens and money are the same, without any tolerance."""
    said = tokens_said(theirs)
    return said == (tokens_of(ours) or Tokens()) and sum(t.pico for t in theirs) == sum(
        o.cost_pico for o in ours
    )


def tokens_of(ours: Iterable[Ours]) -> Tokens | None:
    """What the attempts used; None where there is no attempt."""
    total: Tokens | None = None
    for one in ours:
        total = one.tokens if total is None else total.plus(one.tokens)
    return total


def tokens_said(lines: Sequence[Theirs]) -> Tokens | None:
    """What the lines say was used: by usage lines where there are some, else by cost lines.

    None where a token meter has no count, or nothing counts tokens.
    """
    metered = [line for line in lines if line.meter in TOKEN_METERS]
    usage = [line for line in metered if line.role == "usage"]
    chosen = usage or metered
    if not chosen or any(line.tokens is None for line in chosen):
        return None
    counts = [(line.meter, line.tokens or 0) for line in chosen]
    return Tokens(
        uncached=sum(tokens for meter, tokens in counts if meter in UNCACHED_METERS),
        cached=sum(tokens for meter, tokens in counts if meter == "cached_input"),
        output=sum(tokens for meter, tokens in counts if meter == "output"),
    )
