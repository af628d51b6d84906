"""A table of any page as CSV or JSON: exactly what is shown, whatever the page."""

import csv
import io
import json

from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from gateway.pages.saving import plain
from gateway.pages.tables import tables_of
from ledger.store import Store
from tests import factories


def rows_of(answer) -> list[list[str]]:
    return list(csv.reader(io.StringIO(answer.content.decode())))


def fill(store: Store, count: int = 3, **fields: object) -> None:
    store.append([factories.receipt(number, **fields) for number in range(1, count + 1)]).result()


def test_a_table_is_saved_with_its_whole_ids_plain_numbers_and_exact_times(
    store: Store, viewer: Client
):
    fill(store, input_tokens=12_345)
    answer = viewer.get("/receipts?status=completed&as=csv&table=receipts")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="receipts-receipts.csv"'
    assert answer["X-Row-Count"] == "3"
    assert len(answer["X-Content-SHA256"]) == 64
    heading, first, *_ = rows_of(answer)
    assert heading[:4] == ["Accepted UTC", "Request", "Status", "Tenant"]
    row = dict(zip(heading, first, strict=True))
    assert row["Request"] == factories.request_id(3)
    assert row["Input tokens"] == "12345"
    assert row["Accepted UTC"].startswith("20")
    assert row["Accepted UTC"].endswith("Z")


def test_the_json_holds_the_same_cells_as_the_csv(store: Store, viewer: Client):
    fill(store)
    heading, *cells = rows_of(viewer.get("/receipts?as=csv&table=receipts"))
    found = viewer.get("/receipts?as=json&table=receipts").json()
    assert found["columns"] == heading
    assert [list(row.values()) for row in found["rows"]] == [
        [cell or None for cell in row] for row in cells
    ]


def test_filters_and_place_hold_in_the_file_and_a_refused_question_stays_refused(
    store: Store, viewer: Client
):
    fill(store)
    none = viewer.get("/receipts?tenant=nobody&as=csv&table=receipts")
    assert (none.status_code, none.content) == (404, b"No file: table: this page has none now.\n")
    assert viewer.get("/receipts?older=nowhere&as=csv&table=receipts").status_code == 400
    assert viewer.get("/receipts?as=xlsx&table=receipts").status_code == 400
    assert viewer.get("/receipts?as=csv").status_code == 404
    assert viewer.get("/receipts?as=csv&table=receipts&colour=red").status_code == 400


def test_a_file_needs_the_login_that_its_page_needs_and_leads_back_to_it(client: Client):
    answer = client.get("/receipts?as=csv&table=receipts")
    assert (answer.status_code, answer["Location"]) == (
        302,
        "/login?next=/receipts%3Fas%3Dcsv%26table%3Dreceipts",
    )


def test_a_name_that_a_spreadsheet_would_run_is_only_text_in_the_file(store: Store, viewer: Client):
    """CST-9."""
    fill(store, 1, tenant_id="=HYPERLINK(A1)", logical_model="<script>alert(1)</script>")
    saved = viewer.get("/receipts?as=csv&table=receipts").content.decode()
    assert "'=HYPERLINK(A1)" in saved
    row = viewer.get("/receipts?as=json&table=receipts").json()["rows"][0]
    assert row["Tenant"] == "=HYPERLINK(A1)"
    assert row["Model on route"].startswith("<script>alert(1)</script>; ")


def test_forms_pictures_and_headings_for_screen_readers_are_in_no_file():
    page = """<div class="sheet"><table><thead><tr><th>Name <span class="unit">of it</span></th>
      <th>Held</th><th>Held</th><th><span class="visually-hidden">Settle</span></th></tr></thead>
      <tbody><tr><th>a<span class="sub">below</span></th><td>–<svg><title>drawn</title></svg></td>
      <td><time datetime="2026-11-29T01:00:00.000Z">01:00</time></td>
      <td><details class="act"><summary>Settle</summary><form><label>Why<input></label></form>
      </details></td></tr></tbody>
      <tfoot><tr><th>Total</th><td colspan="2">1,234.50</td></tr></tfoot>
      </table><p class="saved" data-table="held">Save</p></div><table><tr><td>x</td></tr></table>"""
    (found,) = tables_of(page).values()
    assert found.name == "held"
    assert found.columns == ("Name of it", "Held", "Held 2")
    assert found.rows == (("a; below", "–", "2026-11-29T01:00:00.000Z"),)
    assert found.totals == (("Total", "1,234.50", ""),)


@given(st.integers())
def test_a_number_with_separators_is_the_number_again(number: int):
    assert plain(f"{number:,}") == str(number)


@given(st.text())
def test_other_texts_stay_as_they_are_or_are_numbers(text: str):
    assert plain(text) in (text, text.replace(",", ""), "")


@given(st.text(alphabet='<>/="tableronhdsvgp -0;&', max_size=200))
def test_reading_tables_never_fails_and_every_row_is_as_wide_as_its_heading(text: str):
    page = f'<table>{text}</table><p class="saved" data-table="x">{text}'
    for table in tables_of(page).values():
        assert {len(row) for row in (*table.rows, *table.totals)} <= {len(table.columns)}


def test_json_is_json(store: Store, viewer: Client):
    fill(store, 1)
    assert json.loads(viewer.get("/receipts?as=json&table=receipts").content)["table"] == "receipts"
