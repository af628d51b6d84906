"""Which line belongs to which attempt, and what each pair says (REC-2). Pure and deterministic.

First by the provider's request id, where lines have it; what is left, by the lines' own periods
and the plan's dimensions. A unit that both sides have is judged as one; each of its attempts and
lines gets the unit's class, so that nothing is in two classes and nothing in none.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC

from ledger.invoices.values import COMPARED_METERS
from ledger.reconcile.judging import Judged, judge, tokens_of, tokens_said
from ledger.reconcile.values import (
    Apart,
    Binding,
    ClassName,
    Comparison,
    Coverage,
    Ours,
    Plan,
    Row,
    Theirs,
    Unit,
)
from ledger.zones import to_local

_ALONE: dict[str, tuple[ClassName, str]] = {
    "credit": ("credit_or_refund", "credit"),
    "refund": ("credit_or_refund", "refund"),
    "adjustment": ("credit_or_refund", "adjustment"),
    "tax": ("tax", "tax"),
    "commitment": ("commitment_or_fee", "commitment"),
    "fee": ("commitment_or_fee", "fee"),
    "rounding": ("differing", "rounding"),
}
Key = tuple[str | None, ...]


@dataclass(slots=True)
class _Units:
    """Units and rows as they are made; the only thing here that changes."""

    units: list[Unit] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, name: str, judged: Iterable[Judged]) -> None:
        for part in judged:
            number = len(self.units)
            late = any(o.late for o in part.ours) or any(t.late for t in part.theirs)
            self.units.append(
                Unit(
                    name=name, class_name=part.class_name, detail=part.detail, late=late,
                    attempts=tuple(o.attempt_id for o in part.ours),
                    lines=tuple(line_name(t) for t in part.theirs),
                    ours_pico=sum(o.cost_pico for o in part.ours),
                    theirs_pico=sum(t.pico for t in part.theirs),
                    ours_tokens=tokens_of(part.ours), theirs_tokens=tokens_said(part.theirs),
                    proposal=part.proposal,
                )
            )  # fmt: skip
            for o in part.ours:
                self._row(number, "ours", o.attempt_id, part, o.cost_pico, late=o.late)
            for t in part.theirs:
                self._row(number, "theirs", line_name(t), part, t.pico, late=t.late)

    def _row(
        self, unit: int, side: str, member: str, part: Judged, pico: int, *, late: bool
    ) -> None:
        self.rows.append(
            Row(
                unit=unit, side="ours" if side == "ours" else "theirs", member=member,
                class_name=part.class_name, detail=part.detail, pico=pico, late=late,
            )
        )  # fmt: skip


def line_name(line: Theirs) -> str:
    """A line with its revision: "line_….0"."""
    return f"{line.line_id}.{line.revision}"


def compare(
    plan: Plan,
    ours: Sequence[Ours],
    theirs: Sequence[Theirs],
    coverage: Coverage,
    *,
    rejected_requests: int = 0,
) -> Comparison:
    """Every attempt and line in its class. The order of the arguments' items changes nothing."""
    bound = {binding.route_id: binding for binding in plan.bindings}
    scoped, apart = _in_scope(sorted(ours, key=lambda o: o.attempt_id), bound, rejected_requests)
    lines = sorted(theirs, key=lambda t: (t.start_us, t.line_id, t.revision, t.late))
    units = _Units()
    open_lines = _alone(units, lines)
    left, grouped = _by_request_id(plan, units, scoped, open_lines)
    _by_group(plan, units, left, grouped, bound, coverage)
    return Comparison(
        units=tuple(units.units),
        rows=tuple(units.rows),
        apart=apart,
        ours_pico=sum(o.cost_pico for o in scoped),
        theirs_pico=sum(t.pico for t in lines),
    )


def _in_scope(
    ours: Sequence[Ours], bound: dict[str, Binding], rejected_requests: int
) -> tuple[list[Ours], Apart]:
    simulated = [o for o in ours if o.simulated]
    others = [o for o in ours if not o.simulated and o.route_id not in bound]
    rest = [o for o in ours if not o.simulated and o.route_id in bound]
    # What a locked period counted and turned out to be rejected is taken back, so it is in scope.
    scoped = [o for o in rest if o.outcome != "rejected" or o.late]
    return scoped, Apart(
        simulated=len(simulated),
        rejected=len(rest) - len(scoped),
        other_providers=len(others),
        rejected_requests=rejected_requests,
    )


def _alone(units: _Units, lines: Sequence[Theirs]) -> list[Theirs]:
    """Files the lines that no attempt answers to, and returns the others."""
    left = []
    for line in lines:
        name = f"line {line.line_id}"
        if line.kind in _ALONE:
            class_name, detail = _ALONE[line.kind]
            units.add(name, [Judged(class_name=class_name, detail=detail, theirs=(line,))])
        elif line.repeats:
            units.add(name, [Judged(class_name="duplicate_charge", detail="line", theirs=(line,))])
        elif line.late:
            units.add(name, [Judged(class_name="only_theirs", detail="late", theirs=(line,))])
        elif line.meter not in COMPARED_METERS:
            units.add(name, [Judged(class_name="only_theirs", detail="meter", theirs=(line,))])
        else:
            left.append(line)
    return left


def _by_request_id(
    plan: Plan, units: _Units, ours: Sequence[Ours], lines: Sequence[Theirs]
) -> tuple[list[Ours], list[Theirs]]:
    """Files what has a common request id, and returns the attempts and lines that don't."""
    named: dict[str, list[Theirs]] = defaultdict(list)
    for line in lines:
        if line.provider_request_id is not None:
            named[line.provider_request_id].append(line)
    attempts: dict[str, list[Ours]] = defaultdict(list)
    left = []
    for one in ours:
        if one.late:
            unit = Judged(class_name="only_ours", detail="late", ours=(one,))
            units.add(f"attempt {one.attempt_id}", [unit])
        elif one.provider_request_id in named:
            attempts[one.provider_request_id or ""].append(one)
        else:
            left.append(one)
    for request_id, of_request in sorted(named.items()):
        first, again = _charged_again(of_request)
        name = f"request {request_id}"
        units.add(name, (Judged(class_name="duplicate_charge", detail="request", theirs=(line,))
                         for line in again))  # fmt: skip
        units.add(name, judge(plan, attempts.get(request_id, ()), first, by_id=True))
    return left, [line for line in lines if line.provider_request_id is None]


def _charged_again(lines: Sequence[Theirs]) -> tuple[list[Theirs], list[Theirs]]:
    """(lines, lines that charge the same meter of the same request a second time)."""
    seen: set[str] = set()
    first: list[Theirs] = []
    again: list[Theirs] = []
    for line in lines:
        (again if line.role == "cost" and line.meter in seen else first).append(line)
        if line.role == "cost":
            seen.add(line.meter)
    return first, again


def _by_group(
    plan: Plan,
    units: _Units,
    ours: Sequence[Ours],
    lines: Sequence[Theirs],
    bound: dict[str, Binding],
    coverage: Coverage,
) -> None:
    aliases = {alias.theirs: alias.model for alias in plan.aliases}
    of_key: dict[Key, list[Theirs]] = defaultdict(list)
    for line in lines:
        of_key[_key_of_line(plan, line, aliases)].append(line)
    attempts: dict[Key, list[Ours]] = defaultdict(list)
    for one in ours:
        attempts[_key_of_binding(plan, bound[one.route_id])].append(one)
    for key in sorted({*of_key, *attempts}, key=lambda key: tuple(part or "" for part in key)):
        spans = _spans(of_key.get(key, ()))
        inside: dict[int, list[Ours]] = defaultdict(list)
        for one in attempts.get(key, ()):
            inside[_span_at(spans, one.started_at_us)].append(one)
        for number, (start_us, end_us, group) in enumerate(spans):
            name = _group_name(start_us, end_us, key)
            units.add(name, judge(plan, inside.get(number, ()), group, by_id=False))
        _without_line(units, inside.get(-1, ()), key, coverage)


def _without_line(units: _Units, ours: Sequence[Ours], key: Key, coverage: Coverage) -> None:
    """Files the attempts that no line speaks of, day by day and reason by reason."""
    days: dict[tuple[str, str], list[Ours]] = defaultdict(list)
    for one in ours:
        days[instant(one.started_at_us)[:10], _why_no_line(one, coverage)].append(one)
    for (day, detail), of_day in sorted(days.items()):
        found = Judged(class_name="only_ours", detail=detail, ours=tuple(of_day))
        units.add(f"{day} {_key_text(key)}".rstrip(), [found])


def _key_of_line(plan: Plan, line: Theirs, aliases: dict[str, str]) -> Key:
    values = {
        "model": aliases.get(line.model or "", line.model),
        "project": line.project,
        "api_key": line.api_key,
        "tier": line.tier,
    }
    return tuple(values[name] for name in plan.group_by)


def _key_of_binding(plan: Plan, binding: Binding) -> Key:
    values = {
        "model": binding.model,
        "project": binding.project,
        "api_key": binding.api_key,
        "tier": binding.tier,
    }
    return tuple(values[name] for name in plan.group_by)


def _spans(lines: Sequence[Theirs]) -> list[tuple[int, int, list[Theirs]]]:
    """The lines by time: those whose periods overlap (an hour in its day) are one span."""
    spans: list[tuple[int, int, list[Theirs]]] = []
    for line in sorted(lines, key=lambda t: (t.start_us, -t.end_us, t.line_id, t.revision)):
        if spans and line.start_us < spans[-1][1]:
            start_us, end_us, group = spans[-1]
            group.append(line)
            spans[-1] = (start_us, max(end_us, line.end_us), group)
        else:
            spans.append((line.start_us, line.end_us, [line]))
    return spans


def _span_at(spans: Sequence[tuple[int, int, list[Theirs]]], at_us: int) -> int:
    """The index of the span that holds this time, -1 where none does."""
    low, high = 0, len(spans)
    while low < high:
        middle = (low + high) // 2
        if spans[middle][1] <= at_us:
            low = middle + 1
        else:
            high = middle
    return low if low < len(spans) and spans[low][0] <= at_us else -1


def _why_no_line(one: Ours, coverage: Coverage) -> str:
    """A bucket that says "nothing" is another fact than a bucket that is not there."""
    if any(start <= one.started_at_us < end for start, end in coverage.empty):
        return "empty_bucket"
    if any(start <= one.started_at_us < end for start, end in coverage.missing):
        return "missing_bucket"
    return "no_line"


def _group_name(start_us: int, end_us: int, key: Key) -> str:
    return f"{instant(start_us)}/{instant(end_us)} {_key_text(key)}".rstrip()


def _key_text(key: Key) -> str:
    return " ".join(part or "-" for part in key)


def instant(at_us: int) -> str:
    """A UTC time to the second: 2026-09-01T00:00:00Z."""
    return f"{to_local(at_us, UTC):%Y-%m-%dT%H:%M:%SZ}"
