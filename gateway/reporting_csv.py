"""A cost table as CSV: the rows that are shown, safe to open in a spreadsheet (CST-9). Pure."""

import csv
import io
from collections.abc import Iterable

from ledger.money import units_text
from ledger.queries.costs import CostSums, CostTable

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
COUNT_COLUMNS = (
    "receipts",
    "completed",
    "rejected",
    "cancelled",
    "failed",
    "unknown",
    "degraded",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
)
COST_COLUMNS = (
    "cost_input",
    "cost_cached_input",
    "cost_output",
    "cost_fixed",
    "cost_retry_and_hedge",
    "cost_waste",
    "cost_total",
    "cost_per_completed",
)


def cost_csv(table: CostTable) -> str:
    """The table's rows, then `others` where rows were added up, then `total`; money in units.

    RFC 4180, UTF-8. A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow((*table.dimensions, *COUNT_COLUMNS, *COST_COLUMNS))
    for row in table.rows:
        writer.writerow((*(safe_cell(value) for value in row.values), *_numbers(row.sums)))
    if table.others is not None:
        writer.writerow((*_label(table, f"{table.others_count} others"), *_numbers(table.others)))
    writer.writerow((*_label(table, "total"), *_numbers(table.total)))
    return out.getvalue()


def safe_cell(value: str) -> str:
    """The text, made harmless where a spreadsheet would take it for a formula."""
    return f"'{value}" if value.startswith(_FORMULA_STARTS) else value


def _label(table: CostTable, text: str) -> tuple[str, ...]:
    return (text, *("" for _ in table.dimensions[1:]))


def _numbers(sums: CostSums) -> Iterable[str]:
    for name in COUNT_COLUMNS:
        yield str(getattr(sums, name))
    for name in COST_COLUMNS:
        pico: int | None = getattr(sums, f"{name}_pico")
        yield "" if pico is None else units_text(pico)
