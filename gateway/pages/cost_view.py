"""The cost table made ready to be read: rows with drill-downs, the picture, the CSV. Pure."""

import csv
import hashlib
import io
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from gateway.pages.charts import StackedBars, stacked_bars
from gateway.pages.formatting import percent, units
from gateway.pages.receipt_filters import NO_VALUE
from ledger.money import units_text
from ledger.queries.cost_sums import CostSums, UnitCost
from ledger.queries.costs import TAG_PREFIX, CostRow, CostTable, Dimension, Drill
from ledger.spreadsheets import safe_cell
from ledger.zones import to_local

GROUPINGS: dict[Dimension, str] = {
    "tenant": "Tenant",
    "key": "Key",
    "logical_model": "Logical model",
    "identity": "Model identity",
    "route": "Route",
    "priority": "Priority",
    "path": "User path",
    "task_type": "Task type",
    "release": "Release",
    "arm": "Release arm",
    "status": "Status",
    "reason": "Reason",
    "degraded": "Degraded",
    "hour": "Hour",
    "day": "Day",
    "month": "Month",
}
# The receipts page's name of each dimension that it can filter by.
_RECEIPT_FILTERS: dict[Dimension, str] = {
    "tenant": "tenant",
    "logical_model": "model",
    "identity": "identity",
    "route": "route",
    "priority": "priority",
    "path": "path",
    "release": "release",
    "arm": "arm",
    "status": "status",
    "reason": "reason",
}
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?:Z|[+-]\d\d:\d\d)")
BARS_LIMIT = 10
PARTS_LIMIT = 5
OTHERS = "others"
NONE_TEXT = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the table as shown; `drill` is the query of the receipts behind it."""

    values: tuple[str, ...]
    sums: CostSums
    share: str
    drill: str


def heading(dimension: Dimension) -> str:
    """A dimension as a column's heading: "Tenant", "Tag cost-centre"."""
    return GROUPINGS.get(dimension) or f"Tag {dimension.removeprefix(TAG_PREFIX)}"


def groupings(tag_keys: Sequence[str]) -> dict[Dimension, str]:
    """Everything that costs can be asked for by, with its label."""
    tags = [f"{TAG_PREFIX}{key}" for key in tag_keys]
    return {**GROUPINGS, **{name: heading(name) for name in tags}}


def lines(table: CostTable) -> tuple[Line, ...]:
    """The table's rows, in its order."""
    return tuple(
        Line(
            values=tuple(value or NONE_TEXT for value in row.values),
            sums=row.sums,
            share=percent(row.sums.cost_total_pico, table.total.cost_total_pico),
            drill=drill_query(table.drill(row)),
        )
        for row in table.rows
    )


UNIT_COST_NAMES: dict[UnitCost, str] = {
    "completed_request": "completed request",
    "quality_passed": "answer that passed the quality gate",
    "verified_citations": "answer with verifiable citations",
    "completed_task": "completed user task",
    "degraded_success": "degraded success",
}


def unit_cost_lines(sums: CostSums) -> list[tuple[str, int, int | None]]:
    """(what, how many of it, what each cost in pico units) for each denominator of CST-3."""
    return [
        (UNIT_COST_NAMES[name], sums.denominators[name], pico)
        for name, pico in sums.unit_costs.items()
    ]


def drill_query(drill: Drill) -> str:
    """The receipts page's query for the very receipts that a row sums.

    "" where that page has no filter for a dimension, or would need several values of one.
    """
    pairs = []
    for dimension, values in drill.values:
        name = _RECEIPT_FILTERS.get(dimension)
        if name is None or len(values) != 1:
            return ""
        pairs.append((name, values[0] or NO_VALUE))
    pairs += [("since", _minute(drill.period.start_us)), ("until", _minute(drill.period.end_us))]
    return urlencode(pairs)


def _minute(at_us: int) -> str:
    """UTC to the minute, as a form writes it: a period lies on quarter hours, so that is exact."""
    return f"{to_local(at_us, UTC):%Y-%m-%dT%H:%M}"


def picture(table: CostTable) -> StackedBars | None:
    """Cost by the first dimension, each bar made of the second; the small ones as `others`."""
    amounts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in table.rows:
        part = row.values[1] if len(row.values) > 1 else ""
        amounts[row.values[0]][part] += row.sums.cost_total_pico
    if table.dimensions[0] not in ("hour", "day", "month"):
        amounts = dict(sorted(amounts.items(), key=lambda item: -sum(item[1].values())))
    names = list(amounts)
    shown, rest = names[:BARS_LIMIT], names[BARS_LIMIT:]
    parts = _largest(amounts)
    bars = [(name or NONE_TEXT, _split(amounts[name], parts)) for name in shown]
    if rest:
        splits = [_split(amounts[name], parts) for name in rest]
        bars.append(
            (f"{len(rest)} {OTHERS}", [sum(column) for column in zip(*splits, strict=True)])
        )
    labels = [part or NONE_TEXT for part in parts]
    if any(split[-1] for _, split in bars if len(split) > len(parts)):
        labels.append(OTHERS)
    return stacked_bars(
        [(_bar(label), units(sum(split)), split[: len(labels)]) for label, split in bars], labels
    )


def _bar(label: str) -> str:
    """An hour as a bar has room for it: "2026-11-30T01:00+05:30" -> "30 Nov 01:00"."""
    if not _HOUR.fullmatch(label):
        return label
    return f"{datetime.fromisoformat(label):%d %b %H:%M}"


def _largest(amounts: dict[str, dict[str, int]]) -> list[str]:
    totals: dict[str, int] = defaultdict(int)
    for split in amounts.values():
        for part, amount in split.items():
            totals[part] += amount
    return sorted(totals, key=lambda part: (-totals[part], part))[:PARTS_LIMIT]


def _split(amounts: dict[str, int], parts: Sequence[str]) -> list[int]:
    """The amount of each part, then of all others together."""
    named = [amounts.get(part, 0) for part in parts]
    return [*named, sum(amounts.values()) - sum(named)]


_HEADINGS = (
    "requests",
    "completed",
    "input_tokens",
    "output_tokens",
    "cost_units",
    "waste_units",
    "cost_per_completed_units",
    "cost_per_quality_passed_units",
    "cost_per_verified_citations_units",
    "cost_per_completed_task_units",
    "cost_per_degraded_success_units",
    "unpriced_requests",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A CSV: its text, its row count (without the heading), its sha256."""

    text: str
    rows: int
    sha256: str


def export(table: CostTable) -> Export:
    """Exactly what the page shows, with the total as the last row; exact decimals (CST-9).

    Texts that a spreadsheet would take for a formula get an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow((*table.dimensions, *_HEADINGS))
    rows = list(table.rows)
    if table.others is not None:
        label = (f"{table.others_count} {OTHERS}", *[""] * (len(table.dimensions) - 1))
        rows.append(CostRow(values=label, sums=table.others))
    rows.append(CostRow(values=("total", *[""] * (len(table.dimensions) - 1)), sums=table.total))
    for row in rows:
        writer.writerow((*(safe_cell(value) for value in row.values), *_numbers(row.sums)))
    text = out.getvalue()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Export(text=text, rows=len(rows), sha256=digest)


def _numbers(sums: CostSums) -> tuple[int | str, ...]:
    unit_costs = sums.unit_costs.values()
    return (
        sums.receipts,
        sums.completed,
        sums.input_tokens,
        sums.output_tokens,
        units_text(sums.cost_total_pico),
        units_text(sums.cost_waste_pico),
        *("" if pico is None else units_text(pico) for pico in unit_costs),
        sums.unpriced,
    )
