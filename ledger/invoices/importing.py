"""From a report to the records that are appended: which lines are new, and which changed (REC-1).

Pure. A line's id comes from what it is about, not from its amount: the same line in a later export
has the same id, and adds a revision only where its amount or quantity changed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from ledger.invoices.values import Bucket, Line, Report
from ledger.money import units_text
from ledger.records import Invoice, InvoiceLine, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What importing a report appends, the invoice first; no records: it would change nothing.

    `repeated`: its files were imported before, and each of their lines is in force as they have it.
    """

    invoice: Invoice
    lines: tuple[InvoiceLine, ...]
    repeated: bool = False

    @property
    def records(self) -> tuple[Record, ...]:
        return () if self.repeated else (self.invoice, *self.lines)


def invoice_id(report: Report, before: int = 0) -> str:
    """The id of an import: of its provider and the bytes of its files, and of how many imports of
    the same files came before it."""
    again = [before] if before else []
    return "inv_" + _digest([report.provider, report.format, *report.files_sha256, *again])


def line_ids(report: Report) -> tuple[tuple[str, bool], ...]:
    """Each line's id, and whether the report has this very line before it, in the lines' order.

    Lines about the same are told apart by rank of their content, so order in the file is no part
    of an id.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(report.lines):
        alike[_about(report, line)].append(number)
    found: list[tuple[str, bool]] = [("", False)] * len(report.lines)
    for about, numbers in alike.items():
        ranked = sorted(numbers, key=lambda number: (_rank(report.lines[number]), number))
        for place, number in enumerate(ranked):
            twin = place > 0 and _same(report.lines[ranked[place - 1]], report.lines[number])
            identity = about if place == 0 else _digest([about, str(place)])
            found[number] = (f"line_{identity}", twin)
    return tuple(found)


def importing(
    report: Report,
    *,
    known: Mapping[str, InvoiceLine],
    imported_before: int,
    now_us: int,
    by: str,
) -> Import:
    """What to append for a report. `known` has the newest revision of each of its lines, by id.

    `imported_before`: how many imports of the same files there are. One more is made only where a
    later report revised one of their lines: it puts the files' own amount in force again.
    """
    this = invoice_id(report, imported_before)
    lines = tuple(_new_lines(report, this, known))
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
    return Import(invoice=invoice, lines=lines, repeated=repeated)


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
    report: Report, this: str, known: Mapping[str, InvoiceLine]
) -> Iterator[InvoiceLine]:
    for line, (identity, repeats) in zip(report.lines, line_ids(report), strict=True):
        before = known.get(identity)
        record = InvoiceLine(
            line_id=identity,
            revision=0 if before is None else before.revision + 1,
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
            repeats=int(repeats),
            description=line.description,
            tags_json=_json(dict(line.tags)),
            invoice_number=line.invoice_number,
            file_sha256=report.files_sha256[line.file],
            line_number=line.line_number,
            exported_at_us=line.exported_at_us,
        )
        if before is None or _content(before) != _content(record):
            yield record


def _content(line: InvoiceLine) -> tuple[object, ...]:
    """What makes a new revision of a line where it changed."""
    return (line.tokens, line.quantity, line.currency, line.amount, line.effective_amount,
            line.list_amount, line.repeats)  # fmt: skip


def _about(report: Report, line: Line) -> str:
    return _digest(
        [report.provider, report.format, line.kind, line.start_us, line.end_us, line.model,
         line.project, line.api_key, line.tier, line.meter, line.currency,
         line.provider_request_id, line.variant, line.description if line.role == "cost" else "",
         [list(tag) for tag in line.tags]]
    )  # fmt: skip


def _rank(line: Line) -> tuple[object, ...]:
    return (line.amount_pico or 0, line.tokens or 0, line.quantity or "", line.native_id or "")


def _same(one: Line, other: Line) -> bool:
    """Whether a line is there twice: same content, and the same id where its format has ids."""
    return _rank(one) == _rank(other)


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


def _digest(parts: object) -> str:
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]
