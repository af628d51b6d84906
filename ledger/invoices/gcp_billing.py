"""Google Cloud: the rows of its billing export, one JSON object a line (REC-1). Pure.

A row's cost is before its credits, which are a nested list of negative amounts: each becomes a
line of its own, so that net = cost + credits. Corrections come as new rows, exported later.
"""

import re
from collections.abc import Iterator

from ledger.invoices.fields import Fields
from ledger.invoices.files import CELL_LIMIT_CHARS, Tree
from ledger.invoices.values import Kind, Line, Page, Unreadable

PROVIDER = "gcp"
TAGS_LIMIT = 64

_KINDS: dict[str, Kind] = {
    "regular": "usage",
    "tax": "tax",
    "adjustment": "adjustment",
    "rounding_error": "rounding",
}
_MODEL = re.compile(
    r"(?P<model>.+?) (?:GA|Preview|Long|Thinking|Text|Input|Output|Image|Audio)\b.*"
)


def read(text: str) -> Page:
    """The export's lines; hours without use are not in it, so it speaks of no bucket."""
    lines: list[Line] = []
    for number, row in enumerate(text.split("\n"), start=1):
        if len(row) > CELL_LIMIT_CHARS:
            message = f"a row has more than {CELL_LIMIT_CHARS:,} characters"
            raise Unreadable("TOO_LONG", message, number)
        if row.strip():
            lines.extend(_lines(Tree(row, first_line=number)))
    return Page(provider=PROVIDER, role="cost", lines=tuple(lines))


def _lines(tree: Tree) -> Iterator[Line]:
    row = tree.fields(tree.root, "the row")
    kind = _KINDS.get(row.need("cost_type"))
    if kind is None:
        raise row.bad("cost_type", "UNKNOWN_KIND", f"{row.need('cost_type')!r} is no known type")
    text = tree.fields(row.raw("sku"), "sku").need("description")
    model, meter, tier = _metered(text)
    usage = tree.fields(row.raw("usage"), "usage")
    tokens, quantity = (None, None) if kind in {"tax", "rounding"} else _quantity(usage, meter)
    span = row.span(row.time("usage_start_time", utc=True), row.time("usage_end_time", utc=True))
    project = row.raw("project")
    pico, rounded = row.pico("cost")
    exported_at_us = row.time("export_time", utc=True)
    line = Line(
        role="cost", kind=kind, start_us=span[0], end_us=span[1],
        model=model if kind in {"usage", "adjustment"} else None,
        project=None if project is None else tree.fields(project, "project").text("id"),
        tier=tier, meter=meter if kind in {"usage", "adjustment"} else "other", tokens=tokens,
        quantity=quantity, currency=row.currency("currency"), amount_pico=pico, rounded=rounded,
        list_pico=row.optional_pico("cost_at_list") if "cost_at_list" in row else None,
        # Each row is said once and corrected by further rows: time and cost are part of what it is.
        variant=f"{exported_at_us} {row.number('cost')}", description=text, tags=_tags(tree, row),
        invoice_number=_invoice(tree, row), exported_at_us=exported_at_us, line_number=row.line,
    )  # fmt: skip
    yield line
    for number, item in enumerate(row.items("credits")):
        yield _credit(tree.fields(item, f"credits[{number}]"), line, number)


def _credit(credit: Fields, line: Line, number: int) -> Line:
    pico, rounded = credit.pico("amount")
    if pico > 0:
        raise credit.bad("amount", "CREDIT_SIGN", "a credit is negative, as Google exports it")
    name = credit.text("name") or credit.text("id") or "credit"
    return Line(
        role="cost", kind="credit", start_us=line.start_us, end_us=line.end_us, model=line.model,
        project=line.project, meter="other", currency=line.currency, amount_pico=pico,
        rounded=rounded, variant=f"{line.variant} {line.description} credit {number}",
        description=f"{name}: {line.description}"[:200], tags=line.tags,
        invoice_number=line.invoice_number, exported_at_us=line.exported_at_us,
        line_number=line.line_number,
    )  # fmt: skip


def _metered(text: str) -> tuple[str | None, str, str | None]:
    """(model, meter, tier) of a SKU's text, whose ids differ by region; storage is `other`."""
    found = _MODEL.fullmatch(text)
    words = set(re.findall(r"[A-Za-z]+", text))
    tier = "batch" if "Batch" in words else None
    if found is None or "Storage" in words:
        return None if found is None else found["model"], "other", tier
    if "Caching" in words:
        return found["model"], "cached_input", tier
    meter = "output" if "Output" in words else "input" if "Input" in words else "other"
    return found["model"], meter, tier


def _quantity(usage: Fields, meter: str) -> tuple[int | None, str | None]:
    """Tokens of a token meter: the unit may read "requests", the amount counts tokens."""
    text, unit = usage.quantity("amount_in_pricing_units"), usage.text("pricing_unit")
    if text is None:
        return None, None
    if meter != "other" and unit == "count":
        return usage.whole("amount_in_pricing_units", text, 0), None
    return None, f"{text} {unit}" if unit else None


def _tags(tree: Tree, row: Fields) -> tuple[tuple[str, str], ...]:
    labels = row.items("labels") if "labels" in row else []
    if len(labels) > TAGS_LIMIT:
        raise row.bad("labels", "TOO_MANY", f"it has more than {TAGS_LIMIT} labels")
    fields = [tree.fields(label, "a label") for label in labels]
    named = ((label.need("key"), label.text("value")) for label in fields)
    return tuple((name, value) for name, value in named if value is not None)


def _invoice(tree: Tree, row: Fields) -> str | None:
    invoice = row.raw("invoice") if "invoice" in row else None
    return None if invoice is None else tree.fields(invoice, "invoice").text("month")
