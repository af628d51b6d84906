"""Which line of the ledger each line of a report is: the same, changed, or another (REC-1). Pure.

What a line is about is the first part of its id; several lines about the same thing are told apart
by place, in the order in which the ledger got them. Of such lines, those are the same that have the
provider's id in common, or else say the same. What has no equal is a revision only where one line
in force and one of the report are left. Ids that differ tell lines of one export apart and say
nothing across exports: AWS gives each line a new one whenever it makes the report again.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import msgspec

from ledger.invoices.values import Line, Report
from ledger.records import InvoiceLine

# What a report is to those imported before: a part of the same export, or a later one of the same.
Export = Literal["part", "later"]
EXPORTS: tuple[Export, ...] = ("part", "later")

Pairs = dict[int, InvoiceLine]  # number of a new line -> the line in force that it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """A line of a report that may be another one, or revise one of those in force."""

    number: int
    in_force: tuple[InvoiceLine, ...]


class _Unclear(Exception):
    """Ends the matching of a thing; `same_lines` returns it as Ambiguous."""

    def __init__(self, number: int, in_force: Sequence[InvoiceLine]) -> None:
        super().__init__(number)
        self.found = Ambiguous(number=number, in_force=tuple(in_force))


def things(report: Report) -> dict[str, list[int]]:
    """The numbers of the lines about each thing, ordered by what they say."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(report.lines):
        found[_about(report, line)].append(number)
    for numbers in found.values():
        numbers.sort(key=lambda number: (_rank(report.lines[number]), number))
    return found


def line_id(thing: str, place: int) -> str:
    """The id of the line that has this place, from 0, among those about a thing."""
    return f"line_{thing if place == 0 else digest([thing, str(place)])}"


def repeats(report: Report, numbers: Sequence[int]) -> set[int]:
    """Which of the lines about a thing the report has before them: same content and same id."""
    ranks = [_rank(report.lines[number]) for number in numbers]
    return {numbers[at] for at in range(1, len(numbers)) if ranks[at] == ranks[at - 1]}


def lines_in_force(
    report: Report, read: Callable[[Sequence[str]], Mapping[str, InvoiceLine]]
) -> dict[str, InvoiceLine]:
    """Every line in force about a thing of the report, by id. `read`: those of some ids."""
    found: dict[str, InvoiceLine] = {}
    asked = {thing: (0, len(numbers) + 1) for thing, numbers in things(report).items()}
    while asked:
        found.update(
            read([line_id(thing, place) for thing, span in asked.items() for place in range(*span)])
        )
        # Places are taken in order, so the first that is free ends a thing.
        asked = {
            thing: (end, 2 * end)
            for thing, (_, end) in asked.items()
            if line_id(thing, end - 1) in found
        }
    return found


def same_lines(
    new: Sequence[tuple[int, InvoiceLine]],
    in_force: Sequence[InvoiceLine],
    export: Export | None,
) -> Pairs | Ambiguous:
    """Which line in force each new one about the same thing is; what is in no pair is another.

    Ambiguous where that can't be told without knowing what the `export` is. Both in order.
    """
    try:
        return _by_ids(new, in_force, export)
    except _Unclear as unclear:
        return unclear.found


def _by_ids(
    new: Sequence[tuple[int, InvoiceLine]], old: Sequence[InvoiceLine], export: Export | None
) -> Pairs:
    new_of: dict[str | None, list[tuple[int, InvoiceLine]]] = defaultdict(list)
    old_of: dict[str | None, list[InvoiceLine]] = defaultdict(list)
    for number, line in new:
        new_of[line.native_id].append((number, line))
    for one in old:
        old_of[one.native_id].append(one)
    shared = [native for native in new_of if native is not None and native in old_of]
    pairs: Pairs = {}
    for native in shared:
        # The same id is the same line in a part, too.
        unsaid = None if export == "part" else export
        pairs |= _by_content(new_of.pop(native), old_of.pop(native), unsaid)
    new = [numbered for numbers in new_of.values() for numbered in numbers]
    old = [one for lines in old_of.values() for one in lines]
    if export == "later" or not any(line.native_id for _, line in new):
        return pairs | _by_content(new, old, export)
    without = [one for one in old if one.native_id is None]  # imported before ids were kept
    if without:
        pairs |= _by_content(new, without, export)
    if export == "part":
        return pairs
    others = [one for one in old if one.native_id is not None]
    said = {_said(one) for one in others}
    for number, line in new:
        if number not in pairs and _said(line) in said:
            raise _Unclear(number, [one for one in others if _said(one) == _said(line)])
    return pairs


def _by_content(
    new: Sequence[tuple[int, InvoiceLine]], old: Sequence[InvoiceLine], export: Export | None
) -> Pairs:
    pairs: Pairs = {}
    for key in (content, _said):
        waiting: dict[Hashable, deque[InvoiceLine]] = defaultdict(deque)
        for one in old:
            waiting[key(one)].append(one)
        for number, line in new:
            if waiting[key(line)]:
                pairs[number] = waiting[key(line)].popleft()
        taken = {one.line_id for one in pairs.values()}
        new = [one for one in new if one[0] not in pairs]
        old = [one for one in old if one.line_id not in taken]
    if not new or not old or export == "part":
        return pairs
    if len(new) == len(old) == 1 or (export == "later" and len(new) >= len(old)):
        return pairs | {number: one for (number, _), one in zip(new, old, strict=False)}
    raise _Unclear(new[0][0], old)


def content(line: InvoiceLine) -> tuple[object, ...]:
    """What makes a new revision of a line where it changed."""
    return (line.tokens, line.quantity, line.currency, line.amount, line.effective_amount,
            line.list_amount, line.repeats)  # fmt: skip


def _said(line: InvoiceLine) -> tuple[object, ...]:
    return (line.tokens, line.quantity, line.amount)


def _about(report: Report, line: Line) -> str:
    return digest(
        [report.provider, report.format, line.kind, line.start_us, line.end_us, line.model,
         line.project, line.api_key, line.tier, line.meter, line.currency,
         line.provider_request_id, line.variant, line.description if line.role == "cost" else "",
         [list(tag) for tag in line.tags]]
    )  # fmt: skip


def _rank(line: Line) -> tuple[object, ...]:
    return (line.amount_pico or 0, line.tokens or 0, line.quantity or "", line.native_id or "")


def digest(parts: object) -> str:
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]
