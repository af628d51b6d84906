"""From a report to the records that are appended: which lines are new, and which changed (REC-1).

Pure. A line's id comes from what it is about, not from its amount: the same line in a later export
has the same id, and adds a revision only where its amount or quantity changed. `identity` tells
which line is which.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ledger.invoices.identity import (
    Ambiguous,
    Export,
    content,
    digest,
    line_id,
    repeats,
    same_lines,
    things,
)
from ledger.invoices.values import Bucket, Line, Refusal, Report
from ledger.money import units_text
from ledger.records import Invoice, InvoiceLine, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What importing a report appends, the invoice first; no records: it would change nothing.

    `repeated`: its files were imported before, and each of their lines is in force as they have it.
    `beside`: how many of the lines were added although others about the same thing are in force
    that the report doesn't have.
    """

    invoice: Invoice
    lines: tuple[InvoiceLine, ...]
    repeated: bool = False
    beside: int = 0

    @property
    def revised(self) -> int:
        """How many lines take the place of an earlier amount or quantity."""
        return sum(line.revision > 0 for line in self.lines)

    @property
    def records(self) -> tuple[Record, ...]:
        return () if self.repeated else (self.invoice, *self.lines)


def invoice_id(report: Report, before: int = 0) -> str:
    """The id of an import: of its provider and the bytes of its files, and of how many imports of
    the same files came before it."""
    again = [before] if before else []
    return "inv_" + digest([report.provider, report.format, *report.files_sha256, *again])


@dataclass(frozen=True, slots=True, kw_only=True)
class _New:
    lines: tuple[InvoiceLine, ...]
    beside: int


def importing(
    report: Report,
    *,
    known: Mapping[str, InvoiceLine],
    imported_before: int,
    now_us: int,
    by: str,
    export: Export | None = None,
) -> Import | Refusal:
    """What to append for a report. `known` has the lines in force about its things, by id.

    `imported_before`: how many imports of the same files there are. One more is made only where a
    later report revised one of their lines: it puts the files' own amount in force again.
    Refusal (AMBIGUOUS_LINES) where it has to be said whether the report is a part or a later one.
    """
    this = invoice_id(report, imported_before)
    if export is None and imported_before:
        export = "later"  # each of its lines is in the ledger: what differs was revised since
    found = _new_lines(report, this, known, export)
    if isinstance(found, Refusal):
        return found
    lines = found.lines
    repeated = imported_before > 0 and not lines
    if repeated:
        this = invoice_id(report, imported_before - 1)
    starts = [line.start_us for line in report.lines] + [b.start_us for b in report.buckets]
    ends = [line.end_us for line in report.lines] + [b.end_us for b in report.buckets]
    invoice = Invoice(
        invoice_id=this,
        provider=report.provider,
        format=report.format,
        role=report.role,
        files_sha256=" ".join(report.files_sha256),
        start_us=min(starts, default=0),
        end_us=max(ends, default=0),
        lines=len(report.lines),
        new_lines=len(lines),
        totals_json=_json(_totals(report.lines)),
        finer_than_pico_lines=sum(line.rounded for line in report.lines),
        gaps_json=_json(gaps(report.buckets)),
        empty_json=_json([[b.start_us, b.end_us] for b in report.buckets if b.empty]),
        imported_at_us=now_us,
        imported_by=by,
    )
    return Import(invoice=invoice, lines=lines, repeated=repeated, beside=found.beside)


def gaps(buckets: Sequence[Bucket]) -> list[list[int]]:
    """[[start_us, end_us], …] between buckets in order: time of which the report says nothing."""
    found: list[list[int]] = []
    reached: int | None = None
    for bucket in buckets:
        if reached is not None and bucket.start_us > reached:
            found.append([reached, bucket.start_us])
        reached = max(reached or 0, bucket.end_us)
    return found


def _new_lines(
    report: Report, this: str, known: Mapping[str, InvoiceLine], export: Export | None
) -> "_New | Refusal":
    lines: dict[int, InvoiceLine] = {}
    beside = 0
    for thing, numbers in things(report).items():
        twins = repeats(report, numbers)
        drafts = [(number, _draft(report, this, number, number in twins)) for number in numbers]
        in_force = _places(thing, known)
        pairs = same_lines(drafts, in_force, export)
        if isinstance(pairs, Ambiguous):
            return _ambiguous(report, pairs)
        place = len(in_force)
        beside += len(numbers) - len(pairs) if len(pairs) < len(in_force) else 0
        for number, draft in drafts:
            before = pairs.get(number)
            if before is None:
                lines[number] = msgspec.structs.replace(draft, line_id=line_id(thing, place))
                place += 1
            elif content(before) != content(draft):
                lines[number] = msgspec.structs.replace(
                    draft, line_id=before.line_id, revision=before.revision + 1
                )
    return _New(lines=tuple(line for _, line in sorted(lines.items())), beside=beside)


def _places(thing: str, known: Mapping[str, InvoiceLine]) -> list[InvoiceLine]:
    """The lines in force about a thing, in the order of their places."""
    found: list[InvoiceLine] = []
    while (one := known.get(line_id(thing, len(found)))) is not None:
        found.append(one)
    return found


def _ambiguous(report: Report, found: Ambiguous) -> Refusal:
    line, before = report.lines[found.number], found.in_force[0]
    more = f" or {len(found.in_force) - 1} more" if len(found.in_force) > 1 else ""
    return Refusal(
        code="AMBIGUOUS_LINES", file=line.file, line=line.line_number, column=1,
        message=f"{_said(line.native_id, _units(line.amount_pico), line.currency)} may be another "
        f"line, or a later word on {before.line_id}"
        f" ({_said(before.native_id, before.amount, before.currency)}){more}: both are about the "
        "same thing. Say --export part where the file is a part of the same export, so that it is "
        "added, or --export later where it is a whole export made later, so that it takes its "
        "place",
    )  # fmt: skip


def _said(native: str | None, amount: str | None, currency: str | None) -> str:
    named = "a line" if native is None else f"id {native[:60]}"
    return named if amount is None else f"{named} of {amount} {currency}"


def _draft(report: Report, this: str, number: int, repeated: bool) -> InvoiceLine:
    """The line as a record of its first revision, without an id yet."""
    line = report.lines[number]
    return InvoiceLine(
        line_id="",
        revision=0,
        invoice_id=this,
        provider=report.provider,
        format=report.format,
        role=line.role,
        kind=line.kind,
        start_us=line.start_us,
        end_us=line.end_us,
        model=line.model,
        project=line.project,
        api_key=line.api_key,
        tier=line.tier,
        meter=line.meter,
        tokens=line.tokens,
        quantity=line.quantity,
        currency=line.currency,
        amount=_units(line.amount_pico),
        rounded=int(line.rounded),
        step=line.step,
        list_amount=_units(line.list_pico),
        effective_amount=_units(line.effective_pico),
        provider_request_id=line.provider_request_id,
        repeats=int(repeated),
        description=line.description,
        tags_json=_json(dict(line.tags)),
        invoice_number=line.invoice_number,
        file_sha256=report.files_sha256[line.file],
        line_number=line.line_number,
        exported_at_us=line.exported_at_us,
        native_id=line.native_id,
    )


def _totals(lines: Sequence[Line]) -> dict[str, str]:
    sums: dict[str, int] = defaultdict(int)
    for line in lines:
        if line.currency is not None and line.amount_pico is not None:
            sums[line.currency] += line.amount_pico
    return {currency: units_text(pico) for currency, pico in sorted(sums.items())}


def _units(pico: int | None) -> str | None:
    return None if pico is None else units_text(pico)


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
