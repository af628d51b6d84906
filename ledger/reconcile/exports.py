"""A run written out: as CSV, and as a SQLite file for sqlite-utils or Datasette (REC-3, CST-9).

Both hold every attempt and line with its class, and have the same bytes each time. Money is exact
decimal text in units.
"""

import csv
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import sqlite_utils

from ledger.money import units_text
from ledger.reconcile.matching import instant, line_name
from ledger.reconcile.running import Run, class_sums
from ledger.reconcile.values import Ours, Row, Theirs
from ledger.spreadsheets import safe_cell

HEADINGS = (
    "class", "detail", "late", "unit", "side", "id", "request_id", "at_utc", "model", "meter",
    "input_tokens", "cached_input_tokens", "output_tokens", "ours", "theirs", "difference",
    "currency",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What was written: rows without the heading, and the hash of all bytes."""

    rows: int
    sha256: str


def rows(run: Run) -> Iterator[tuple[str | int | None, ...]]:
    """A row of HEADINGS for each attempt and line; `difference` adds up to that of the run."""
    ours = {one.attempt_id: one for one in run.inputs.ours}
    theirs = {line_name(line): line for line in run.inputs.theirs}
    for row in run.comparison.rows:
        unit = run.comparison.units[row.unit]
        if row.side == "ours":
            cells = _our_cells(ours[row.member], row)
        else:
            cells = _their_cells(theirs[row.member], row)
        yield (
            row.class_name, row.detail, int(row.late), unit.name, row.side, row.member, *cells,
            run.plan.currency,
        )  # fmt: skip


def _our_cells(one: Ours, row: Row) -> tuple[str | int | None, ...]:
    return (
        one.request_id, instant(one.started_at_us), None, None, one.tokens.uncached,
        one.tokens.cached, one.tokens.output, units_text(row.pico), None, units_text(-row.pico),
    )  # fmt: skip


def _their_cells(line: Theirs, row: Row) -> tuple[str | int | None, ...]:
    cached = line.tokens if line.meter == "cached_input" else None
    output = line.tokens if line.meter == "output" else None
    given = line.tokens if cached is None and output is None else None
    return (
        line.provider_request_id, instant(line.start_us), line.model, line.meter, given, cached,
        output, None, units_text(row.pico), units_text(row.pico),
    )  # fmt: skip


def write_csv(run: Run, out: IO[bytes]) -> Export:
    """Writes the rows; texts that a spreadsheet would take for a formula get an apostrophe."""
    digest, count = hashlib.sha256(), 0
    for cells in _with_heading(rows(run)):
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\r\n").writerow(cells)
        data = buffer.getvalue().encode()
        digest.update(data)
        out.write(data)
        count += 1
    return Export(rows=count - 1, sha256=digest.hexdigest())


def _with_heading(
    found: Iterator[tuple[str | int | None, ...]],
) -> Iterator[tuple[str | int | None, ...]]:
    yield HEADINGS
    for cells in found:
        # Amounts are ours and may be negative; a text comes from a file and may be anything.
        texts = [safe_cell(cell) if isinstance(cell, str) else cell for cell in cells[:-4]]
        yield (*texts, *cells[-4:])


def write_sqlite(run: Run, path: Path) -> Export:
    """Makes the file, which must not exist: tables report, movements, units and rows."""
    if path.exists():
        raise FileExistsError(f"{path} is there already: a report is never overwritten")
    found = [dict(zip(("ordinal", *HEADINGS), (number, *cells), strict=True))
             for number, cells in enumerate(rows(run))]  # fmt: skip
    database = sqlite_utils.Database(path)
    try:
        database.table("report").insert_all(
            [{"name": name, "value": value} for name, value in _facts(run)], pk="name"
        )
        database.table("movements").insert_all(_movements(run), pk=("class", "detail", "late"))
        database.table("units").insert_all(_units(run), pk="unit_number")
        if found:
            database.table("rows").insert_all(found, pk="ordinal")
            database.table("rows").create_index(["class", "detail"])
            database.table("rows").create_index(["request_id"])
        database.vacuum()
    finally:
        database.close()
    return Export(rows=len(found), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _facts(run: Run) -> list[tuple[str, str]]:
    comparison, apart = run.comparison, run.comparison.apart
    return [
        ("run_id", run.run_id),
        ("provider", run.plan.provider),
        ("period", run.period.name),
        ("zone", run.period.zone),
        ("currency", run.plan.currency),
        ("opening", units_text(run.inputs.opening_pico)),
        ("ours", units_text(comparison.ours_pico)),
        ("theirs", units_text(comparison.theirs_pico)),
        ("difference", units_text(comparison.difference_pico)),
        ("closing", units_text(run.closing_pico)),
        ("invoices", " ".join(run.inputs.invoices)),
        ("simulated_attempts", str(apart.simulated)),
        ("rejected_attempts", str(apart.rejected)),
        ("rejected_requests", str(apart.rejected_requests)),
        ("attempts_of_other_providers", str(apart.other_providers)),
        ("inputs_sha256", run.inputs_digest.hex()),
        ("units_sha256", run.digest.hex()),
    ]


def _movements(run: Run) -> list[dict[str, object]]:
    found = []
    for name, (attempts, lines, ours, theirs) in class_sums(run.comparison).items():
        class_name, detail, late = name.split(" ")
        found.append(
            {"class": class_name, "detail": detail, "late": int(late), "attempts": attempts,
             "lines": lines, "ours": ours, "theirs": theirs}
        )  # fmt: skip
    return found


def _units(run: Run) -> list[dict[str, object]]:
    return [
        {"unit_number": number, "unit": unit.name, "class": unit.class_name,
         "detail": unit.detail, "late": int(unit.late), "attempts": len(unit.attempts),
         "lines": len(unit.lines), "ours": units_text(unit.ours_pico),
         "theirs": units_text(unit.theirs_pico), "difference": units_text(unit.difference_pico)}
        for number, unit in enumerate(run.comparison.units)
    ]  # fmt: skip
