"""Whether a CSV keeps to FOCUS 1.2: columns, types, nulls, allowed values (REC-1). Pure.

A report of what is wrong, row by row, with stable codes; a file is never repaired.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ledger.focus.columns import ALLOWED, COLUMNS, SUBCATEGORIES, Column
from ledger.invoices.fields import Fields
from ledger.invoices.files import csv_rows
from ledger.invoices.values import Unreadable

PROBLEMS_LIMIT = 1_000  # kept; all are counted

_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]+)?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_CURRENCY = re.compile(r"[A-Z]{3}")
_CUSTOM = re.compile(r"x_[A-Za-z0-9_]+")
_BY_NAME = {column.name: column for column in COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, in which row (the heading is line 1) and column."""

    code: str
    line: int
    column: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How many rows there are, and the first PROBLEMS_LIMIT problems; `counts` has all by code."""

    rows: int
    problems: tuple[Problem, ...]
    counts: Mapping[str, int]

    @property
    def conforms(self) -> bool:
        return not self.counts


def check(text: str | Iterable[str]) -> Checked:
    """What of a file's text, or of its lines, breaks FOCUS 1.2's columns, in order of lines."""
    counts: Counter[str] = Counter()
    kept: list[Problem] = []
    rows = 0

    def note(problem: Problem) -> None:
        counts[problem.code] += 1
        if len(kept) < PROBLEMS_LIMIT:
            kept.append(problem)

    try:
        header, found = csv_rows(text)
        for problem in _of_header(header):
            note(problem)
        for row in found:
            rows += 1
            for problem in _of_row(row, header):
                note(problem)
    except Unreadable as error:
        note(Problem(code=error.code, line=error.line or 0, column="", message=str(error)))
    return Checked(rows=rows, problems=tuple(kept), counts=dict(sorted(counts.items())))


def _of_header(header: tuple[str, ...]) -> Iterator[Problem]:
    for column in COLUMNS:
        if column.level == "mandatory" and column.name not in header:
            message = "a mandatory column is not there"
            yield Problem(code="MISSING_COLUMN", line=1, column=column.name, message=message)
    for name in header:
        if name not in _BY_NAME and not _CUSTOM.fullmatch(name):
            message = "is no column of FOCUS 1.2; custom ones begin with x_"
            yield Problem(code="UNKNOWN_COLUMN", line=1, column=name, message=message)


def _of_row(row: Fields, header: tuple[str, ...]) -> Iterator[Problem]:
    for name in header:
        column = _BY_NAME.get(name)
        if column is None:
            continue
        value = str(row.raw(name))
        if value == "":
            if not column.nulls:
                yield _problem(row, "NULL", name, "may not be null")
            continue
        yield from _of_value(row, column, value)
    yield from _together(row)


def _of_value(row: Fields, column: Column, value: str) -> Iterator[Problem]:
    name = column.name
    if value in {"NULL", "null", "None"} and column.kind != "json":
        yield _problem(row, "NULL_WORD", name, "a null is an empty cell, not a word")
    elif column.kind == "decimal" and not _DECIMAL.fullmatch(value):
        yield _problem(row, "NOT_A_DECIMAL", name, f"{value[:40]!r} is no number as 1.5 or 2E-7")
    elif column.kind == "time" and not _TIME.fullmatch(value):
        yield _problem(
            row, "NOT_A_TIME", name, f"{value[:40]!r} is no time as 2026-09-01T00:00:00Z"
        )
    elif column.kind == "currency" and not _CURRENCY.fullmatch(value):
        yield _problem(row, "CURRENCY", name, f"{value[:40]!r} is no three-letter code")
    elif column.kind == "json" and not _key_value(value):
        yield _problem(row, "NOT_KEY_VALUE", name, "must be a JSON object of plain values")
    elif name in ALLOWED and value not in ALLOWED[name]:
        yield _problem(row, "NOT_ALLOWED", name, f"{value[:40]!r} is none of its values")


def _key_value(text: str) -> bool:
    try:
        values = json.loads(text)
    except ValueError:
        return False
    return isinstance(values, dict) and not any(
        isinstance(value, dict | list) for value in values.values()
    )


def _together(row: Fields) -> Iterator[Problem]:
    """What columns say of each other."""
    for start, end in (
        ("ChargePeriodStart", "ChargePeriodEnd"),
        ("BillingPeriodStart", "BillingPeriodEnd"),
    ):
        first, last = _value(row, start), _value(row, end)
        if _TIME.fullmatch(first) and _TIME.fullmatch(last) and first >= last:
            yield _problem(row, "PERIOD", end, f"must be after {start}: its end is exclusive")
    category, narrow = _value(row, "ServiceCategory"), _value(row, "ServiceSubcategory")
    if narrow and category in SUBCATEGORIES and narrow not in SUBCATEGORIES[category]:
        yield _problem(row, "SUBCATEGORY", "ServiceSubcategory", f"is none of {category[:40]!r}")
    usage = _value(row, "ChargeCategory") == "Usage" and not _value(row, "ChargeClass")
    for name in ("PricingQuantity", "PricingUnit"):
        if usage and name in row and not _value(row, name):
            yield _problem(row, "NULL", name, "may not be null where usage is charged")


def _value(row: Fields, name: str) -> str:
    return str(row.raw(name)) if name in row else ""


def _problem(row: Fields, code: str, name: str, message: str) -> Problem:
    return Problem(code=code, line=row.line, column=name, message=message)
