"""Reconciliation: a report by form, a run with its drill-down, sign-off, lock, files (REC-1..3)."""

import csv
import hashlib
import io
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from gateway.operations.reconciliation import ImportInvoice
from gateway.pages import reconciliation_upload
from gateway.pages.reconciliation_view import last_month
from ledger.money import parse_units
from ledger.queries.unknowns import open_unknown
from ledger.reading import connect_read_only, reader
from ledger.reconcile.overview import overview
from tests import factories
from tests.gateway.operations.books import (
    PLAN,
    START_US,
    WHOLE_MONTH,
    append,
    compare,
    costs,
    cur,
    opened,
    perform,
    request,
    size,
    usual,
)
from tests.gateway.pages.conftest import LogIn
from tests.gateway.pages.test_receipts import HX, text_of
from tests.ledger.seeded import Plans

SMALL = {"invoice", "reconciliation", "reconciliation_sign_off", "period_lock", "discrepancy"}
"""Tables of a few rows a month and provider, each read by an index or with a limit."""
BODY = costs(*WHOLE_MONTH)


@pytest.fixture
def books(ledger_path: Path) -> Path:
    return opened(ledger_path)


@pytest.fixture
def run_id(books: Path) -> str:
    """September as its invoice has it, with one unknown that the invoice doesn't charge."""
    unknown: dict[str, Any] = {
        "outcome": "unknown",
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_pico": 0,
    }
    append(books, request(4, START_US + 9, **unknown))
    append(books, [factories.rate_table()])
    dearer = [usual(1)[0], ("gpt-5, output", 0.1, 200)]
    perform(books, ImportInvoice(files=(costs((0, usual(1)), (1, dearer), *WHOLE_MONTH[2:]),)))
    return perform(books, compare()).subject


def sent(body: bytes = BODY, **fields: str) -> dict[str, object]:
    file = SimpleUploadedFile("costs.json", body, content_type="application/json")
    return {"files": file, "next": "/reconciliation", **fields}


def test_a_later_export_is_said_to_be_one_on_the_form(books: Path, log_in: LogIn):
    """REC-1: what the lines can't tell is asked for, and answered on the page."""
    perform(books, ImportInvoice(files=(cur(("A", "5"), ("B", "7")),)))
    client, later = log_in("operator"), cur(("C", "5"), ("D", "8"))
    answer = client.post("/reconciliation/import", sent(later))
    assert (answer.status_code, "AMBIGUOUS_LINES" in text_of(answer)) == (422, True)
    assert client.post("/reconciliation/import", sent(later, export="later")).status_code == 302
    assert "0 of them new, 1 changed." in text_of(client.get("/reconciliation"))


def bodies(answer) -> bytes:
    return b"".join(answer.streaming_content)


def test_without_books_the_page_says_how_to_begin(viewer: Client, log_in: LogIn):
    said = text_of(viewer.get("/reconciliation"))
    assert "No invoice yet" in said
    assert "Import a report" not in said
    assert "Import a report" in text_of(log_in("operator").get("/reconciliation"))


def test_a_report_is_imported_by_a_form_once(books: Path, log_in: LogIn):
    """REC-1: on a page; idempotent by file hash."""
    client = log_in("operator")
    answer = client.post("/reconciliation/import", sent())
    assert (answer.status_code, answer["Location"]) == (302, "/reconciliation")
    said = text_of(client.get("/reconciliation"))
    assert "Imported 4 lines of openai (openai_costs), 4 of them new, 0 changed." in said
    assert "0.0072 USD" in said
    before = size(books)
    again = client.post("/reconciliation/import", sent())
    assert again.status_code == 422
    assert "IMPORTED_BEFORE" in again.content.decode()
    assert size(books) == before


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"next": "/reconciliation"}, "FILES"),
        (sent(b"{"), "JSON"),
        (sent(b"\xff\xfe\x00"), "ENCODING"),
        (sent(costs((0, [("gpt-5, input", "ten", 1)]))), "WRONG_TYPE"),
        (sent(format="nothing"), "UNKNOWN_FORMAT"),
    ],
)
def test_a_bad_report_is_refused_whole_with_its_code(books, log_in: LogIn, form, code: str):
    before = size(books)
    answer = log_in("operator").post("/reconciliation/import", form)
    assert answer.status_code == 422
    assert f"<code>{code}</code>" in answer.content.decode()
    assert size(books) == before


def test_a_report_beyond_the_limit_is_not_read(books, log_in: LogIn, monkeypatch):
    monkeypatch.setattr(reconciliation_upload, "FILE_LIMIT_BYTES", len(BODY) - 1)
    answer = log_in("operator").post("/reconciliation/import", sent())
    assert answer.status_code == 422
    assert "FILE_TOO_LARGE" in answer.content.decode()


@pytest.mark.parametrize(("role", "status"), [(None, 403), ("viewer", 403)])
def test_a_lower_role_imports_nothing(books: Path, log_in: LogIn, role, status: int):
    before = size(books)
    assert log_in(role).post("/reconciliation/import", sent()).status_code == status
    assert size(books) == before


def test_a_report_from_another_site_is_not_taken(books: Path, log_in: LogIn):
    client = log_in("operator")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    before = size(books)
    assert strict.post("/reconciliation/import", sent()).status_code == 403
    assert size(books) == before


def test_a_run_ties_out_on_its_page_and_leads_to_its_receipts(run_id: str, viewer: Client):
    """REC-2, REC-3."""
    said = text_of(viewer.get(f"/reconciliation/{run_id}"))
    for words in (
        "Ours 0.007200", "+ Difference +0.098400", "= Theirs 0.105600", "differs",
        "differing", "unknown resolved", "Closing 0.098400", "openai_costs", "To be signed",
    ):  # fmt: skip
        assert words in said, words
    body = viewer.get(f"/reconciliation/{run_id}").content.decode()
    for number in (2, 4):
        assert f'href="/receipts/{factories.request_id(number)}"' in body
    one = text_of(viewer.get(f"/reconciliation/{run_id}?class=differing"))
    assert "differing alone" in one
    part = viewer.get(f"/reconciliation/{run_id}", headers=HX).content
    assert b"<html" not in part
    assert viewer.get("/reconciliation/rec_none").status_code == 404


def test_an_unknown_is_settled_from_its_proposal_by_the_form(run_id, books, log_in: LogIn):
    client = log_in("operator")
    body = client.get(f"/reconciliation/{run_id}").content.decode()
    assert "Settle the unknown" in body
    attempt_id = factories.attempt(4).attempt_id
    evidence = body.split('name="evidence" value="')[1].split('"')[0]
    assert evidence.startswith(f"reconciliation {run_id}: line_")
    form = {"attempt_id": attempt_id, "became": "not_run", "evidence": evidence, "reason": "seen"}
    answer = client.post("/act/resolve_unknown", {**form, "next": f"/reconciliation/{run_id}"})
    assert answer.status_code == 302, answer.content.decode()
    connection = connect_read_only(books)
    assert open_unknown(connection, attempt_id) is None
    connection.close()
    after = client.get(f"/reconciliation/{run_id}").content.decode()
    assert "Settle the unknown" not in after
    assert "settled since" in after


def test_a_second_person_signs_and_locks_on_the_page(run_id: str, books: Path, log_in: LogIn):
    """REC-3: ann ran it and imported its report; the logged-in operator is another person."""
    client, here = log_in("operator"), f"/reconciliation/{run_id}"
    assert "Lock the period" not in text_of(client.get(here))
    form = {"run_id": run_id, "reason": "looked at it", "next": here}
    assert client.post("/act/sign_reconciliation", form).status_code == 302
    said = text_of(client.get(here))
    assert "Signed by console:the-operator" in said
    assert client.post("/act/lock_period", {**form, "reason": "month end"}).status_code == 302
    said = text_of(client.get(here))
    assert "Locked by console:the-operator" in said
    assert "Run it again" not in said
    assert "closed up to the end of 2026-09" in text_of(client.get("/reconciliation"))


def test_a_period_is_reconciled_by_the_form_with_its_plan(books: Path, log_in: LogIn):
    perform(books, ImportInvoice(files=(BODY,)))
    form = {
        "provider": "openai", "period": "2026-09", "zone": "UTC", "next": "/reconciliation",
        "matching:json": msgspec.json.encode(PLAN).decode(),
    }  # fmt: skip
    client = log_in("operator")
    assert client.post("/act/reconcile", form).status_code == 302
    connection = connect_read_only(books)
    (one,) = overview(connection)
    connection.close()
    assert [each.difference_pico for each in one.runs] == [0]
    assert "agrees, to the last digit" in text_of(
        client.get(f"/reconciliation/{one.runs[0].run.run_id}")
    )
    again = client.post("/act/reconcile", form)
    assert again.status_code == 422
    assert "SAME_RUN" in again.content.decode()


def test_the_files_of_a_run_hold_every_row_with_their_hash(run_id: str, viewer: Client, tmp_path):
    """REC-3, CST-9."""
    answer = viewer.get(f"/reconciliation/{run_id}/run.csv")
    content = bodies(answer)
    found = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    assert int(answer["X-Row-Count"]) == len(found) == 7
    assert answer["X-Content-SHA256"] == hashlib.sha256(content).hexdigest()
    assert sum(parse_units(row["difference"]) for row in found) == 98_400_000_000
    answer = viewer.get(f"/reconciliation/{run_id}/run.sqlite3")
    file = tmp_path / "run.sqlite3"
    file.write_bytes(bodies(answer))
    assert answer["X-Content-SHA256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (7,)
    connection.close()
    assert viewer.get("/reconciliation/rec_none/run.csv").status_code == 404


def test_charges_are_streamed_as_focus_for_the_days_and_the_tenant(books: Path, viewer: Client):
    """CST-9."""
    days = "first=2026-09-01&last=2026-09-30"
    answer = viewer.get(f"/focus.csv?{days}")
    assert answer.streaming
    rows = list(csv.DictReader(io.StringIO(bodies(answer).decode(), newline="")))
    assert sum(parse_units(row["BilledCost"]) for row in rows) == 3 * 3_600_000_000
    none = bodies(viewer.get(f"/focus.csv?{days}&tenant=nobody")).decode()
    assert len(none.splitlines()) == 1
    assert viewer.get("/focus.csv?first=2026-02-31").status_code == 400


@pytest.mark.parametrize("path", ["/reconciliation", "/reconciliation/{run_id}"])
def test_no_page_reads_a_large_table_from_end_to_end(run_id, books, viewer: Client, path: str):
    viewer.get(path.format(run_id=run_id))
    with Plans(reader(books)) as plans:
        assert viewer.get(path.format(run_id=run_id)).status_code == 200
    scans = [each for each in plans.scans_of_large_tables() if each.split()[1] not in SMALL]
    assert scans == []


def test_the_month_that_is_offered_is_the_last_whole_one():
    assert last_month(START_US) == "2026-08"
    assert last_month(START_US - 1) == "2026-07"
    assert last_month(0) == "1969-12"
