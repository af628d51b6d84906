"""Imports one after another: parts of an export, later exports, amounts of any size (REC-1)."""

import contextlib
import io
from pathlib import Path

import pytest

from gateway.operations.reconciliation import ImportInvoice
from ledger.queries import invoices as reports
from ledger.reading import connect_read_only
from ledger.reconcile.exports import write_csv, write_sqlite
from tests.gateway.operations.books import (
    compare,
    computed,
    costs,
    cur,
    opened,
    perform,
    refused,
    reported,
)


@pytest.fixture
def books(ledger_path: Path) -> Path:
    return opened(ledger_path)


def in_books(path: Path) -> list[str]:
    with contextlib.closing(connect_read_only(path)) as connection:
        return sorted(
            str(one.amount) for one in reports.lines_of_period(connection, "aws", 0, 2**62, 2**62)
        )


def test_an_export_in_two_files_is_the_same_money_as_in_one(books):
    """REC-1: lines about one thing that differ in the provider's id are two, in any order."""
    first, second, both = cur(("A", "5")), cur(("B", "7")), cur(("A", "5"), ("B", "7"))
    for one, text in ((second, "1 of them new, 0 changed."), (first, "1 were added beside lines")):
        assert text in perform(books, ImportInvoice(files=(one,))).summary
    assert in_books(books) == ["5", "7"]
    assert perform(books, ImportInvoice(files=(both,))).after["new_lines"] == 0
    assert refused(books, ImportInvoice(files=(second,))).code == "IMPORTED_BEFORE"
    assert in_books(books) == ["5", "7"]


def test_a_later_export_with_other_ids_is_asked_about_and_then_revises(books):
    """REC-1: AWS gives a line another id in each version of a report; A, B, A still works."""
    first, later = cur(("A", "5"), ("B", "7")), cur(("C", "5"), ("D", "8"))
    perform(books, ImportInvoice(files=(first,)))
    found = refused(books, ImportInvoice(files=(later,)))
    assert (found.code, "line 2, column 1: id C of 5 USD" in found.message) == (
        "AMBIGUOUS_LINES", True,
    )  # fmt: skip
    done = perform(books, ImportInvoice(files=(later,), export="later"))
    assert "0 of them new, 1 changed." in done.summary
    assert in_books(books) == ["5", "8"]
    assert refused(books, ImportInvoice(files=(later,))).code == "IMPORTED_BEFORE"
    assert "1 changed" in perform(books, ImportInvoice(files=(first,))).summary
    assert in_books(books) == ["5", "7"]


def test_an_amount_that_rounds_to_nothing_is_said_to_be_rounded(books):
    done = perform(books, ImportInvoice(files=(cur(("A", "1e-30"), ("B", "7")),)))
    assert "1 amounts are printed finer than 10^-12 and were rounded" in done.summary
    assert in_books(books) == ["0", "7"]


def test_the_largest_amount_is_compared_and_exported_without_loss(books, tmp_path):
    """REC-2: money has no width: a column of it is text."""
    perform(books, ImportInvoice(files=(costs((0, [("gpt-5, input", 10**18, 1_000)])),)))
    run_id = perform(books, compare()).subject
    run = computed(books, run_id)
    out = io.BytesIO()
    write_csv(run, out)
    write_sqlite(run, tmp_path / "large.sqlite3")
    assert out.getvalue().count(b"1000000000000000000") >= 1
    assert reported(books, run_id).theirs_pico == 10**30
