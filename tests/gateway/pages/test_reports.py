"""Costs, SLO burn and releases, as Django's client gets them."""

import csv
import hashlib
import io
import re
from datetime import UTC
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlparse

import pytest
from django.http import QueryDict
from django.test import Client

from gateway.api import reports
from gateway.clock import SystemClock
from gateway.pages.cost_view import GROUPINGS, drill_query, export
from gateway.pages.formatting import units
from gateway.pages.receipt_filters import FilterForm
from gateway.submission import Caller
from ledger.money import parse_units
from ledger.queries.cost_sums import CostSums
from ledger.queries.costs import CostRow, CostTable, costs
from ledger.queries.receipts import filter_options, receipt_page
from ledger.rollups.projection import Rollups
from ledger.store import Store
from ledger.zones import QUARTER_US, Period, parse_zone, recent
from tests import factories
from tests.gateway.pages.test_receipts import HX, text_of
from tests.sample_console import RELEASE, fill

COUNT = 240
DAY_US = 86_400_000_000


@pytest.fixture
def now_us(ledger_path: Path) -> int:
    """When the ledger's receipts end: now, on the clock that the pages read."""
    at_us = SystemClock().now_us()
    fill(ledger_path, count=COUNT, end_us=at_us, span_us=4 * 3_600_000_000)
    return at_us


def rows_of(answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))


@pytest.mark.parametrize("zone", ["UTC", "%2B05:30"])
def test_every_grouping_adds_up_to_the_receipts_to_the_pico_unit(
    now_us: int, viewer: Client, reader, zone: str
):
    whole = reader.execute("SELECT sum(cost_total_pico), count(*) FROM receipt").fetchone()
    for by in GROUPINGS:
        answer = viewer.get(f"/costs.csv?by={by}&then=priority&within=24h&zone={zone}")
        *parts, total = rows_of(answer)
        assert sum(parse_units(row["cost_units"]) for row in parts) == whole[0]
        assert sum(int(row["requests"]) for row in parts) == whole[1] == COUNT
        assert parse_units(total["cost_units"]) == whole[0]


def test_the_page_and_the_csv_show_the_same_numbers(now_us: int, viewer: Client):
    said = text_of(viewer.get("/costs?by=tenant&then=logical_model"))
    for row in rows_of(viewer.get("/costs.csv?by=tenant&then=logical_model")):
        for column in ("cost_units", "waste_units", "cost_per_completed_units"):
            assert units(parse_units(row[column])) in said
        assert f"{int(row['requests']):,}" in said


def test_the_export_says_how_many_rows_it_has_and_its_hash(now_us: int, viewer: Client):
    answer = viewer.get("/costs.csv")
    assert int(answer["X-Row-Count"]) == len(rows_of(answer))
    assert answer["X-Content-SHA256"] == hashlib.sha256(answer.content).hexdigest()
    assert answer["Content-Disposition"] == 'attachment; filename="costs.csv"'


def test_a_row_drills_down_to_the_very_receipts_that_it_sums(now_us: int, viewer: Client, reader):
    for by, then in (("tenant", "logical_model"), ("route", "status"), ("hour", "reason")):
        table = costs(reader, recent(now_us, DAY_US), [by, then], zone=parse_zone("+05:30"))
        body = viewer.get(f"/costs?by={by}&then={then}&zone=%2B05:30").content.decode()
        links = re.findall(r'href="/receipts\?([^"]+)" aria-label="Receipts of', body)
        assert len(links) == len(table.rows)
        for link, row in zip(links, table.rows, strict=True):
            form = FilterForm(QueryDict(link.replace("&amp;", "&")), filter_options(reader))
            assert form.is_valid()
            found = receipt_page(reader, form.wanted(now_us), limit=200).receipts
            assert len(found) == min(200, row.sums.receipts)
            if len(found) < 200:
                total = sum(item.record.cost_total_pico for item in found)
                assert total == row.sums.cost_total_pico


def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe():
    period = Period(start_us=0, end_us=QUARTER_US)
    rows = tuple(
        CostRow(values=(name,), sums=CostSums()) for name in ("=1+1", "@x", "-1", "\tx", "acme")
    )
    table = CostTable(
        period=period,
        zone=UTC,
        dimensions=("tenant",),
        filters=(),
        rows=rows,
        others=None,
        others_count=0,
        total=CostSums(),
        time_buckets=(),
    )
    first = [line.split(",")[0] for line in export(table).text.splitlines()]
    assert first == ["tenant", "'=1+1", "'@x", "'-1", "'\tx", "acme", "total"]
    assert drill_query(table.drill(rows[0])).startswith("tenant=%3D1%2B1&since=1970-01-01T00%3A00")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("by=moon", "by: there are tenant, key"),
        ("zone=Mars/Base", "zone: write UTC"),
        ("within=3y", "within: write one of 1h"),
        ("first=2026-02-31", "first: write a day such as"),
        ("first=2026-02-03&last=2026-02-01", "first: days run forward"),
        ("by=hour&then=day", "by: choose one of hour, day and month"),
        ("tennant=acme", "tennant: no such parameter"),
        ("priority=nope", "priority: there are interactive"),
        ("zone=localtime", "zone: write UTC"),
    ],
)
def test_a_question_that_cant_be_asked_is_said_on_page_and_in_the_export(
    viewer: Client, query: str, said: str
):
    page = viewer.get(f"/costs?{query}")
    assert page.status_code == 400
    assert said in text_of(page).replace("&#x27;", "'")
    export = viewer.get(f"/costs.csv?{query}")
    assert export.status_code == 400
    assert said in export.content.decode()


@pytest.mark.parametrize("page", ["/costs", "/slo", "/releases"])
def test_on_an_empty_ledger_a_report_says_that_it_has_no_data(viewer: Client, page: str):
    said = text_of(viewer.get(page))
    assert any(words in said for words in ("No costs", "NO_DATA", "Nothing to compare"))


@pytest.mark.parametrize("page", ["/costs", "/slo", "/releases"])
def test_a_report_comes_whole_or_as_its_partial(now_us: int, viewer: Client, page: str):
    assert "<html" in viewer.get(page).content.decode()
    part = viewer.get(page, headers=HX).content.decode()
    assert "<html" not in part
    assert 'id="results"' in part


def test_the_slo_page_shows_windows_with_their_counts(now_us: int, viewer: Client):
    said = text_of(viewer.get("/slo"))
    assert "Interactive requests get their first token within 1 s" in said
    assert re.search(r"1 h: [\d,]+ of [\d,]+", said)
    assert "14.40" in said


def test_the_release_page_begins_with_the_busiest_identities(now_us: int, viewer: Client):
    said = text_of(viewer.get("/releases"))
    assert "Baseline mid_7c1f fast-v2-weights, bf16, s-1" in said
    assert "Candidate mid_b04e fast-v3-weights, fp8, s-1" in said
    assert "each curve within its 95 % band" in said
    assert re.search(r"p50 [\d.,]+ ?[\d.,]+ (to|or)", said)
    assert 'class="area fill-1"' in viewer.get("/releases").content.decode()


def test_the_arms_of_a_release_can_be_compared(now_us: int, viewer: Client):
    query = urlencode({"baseline": f"{RELEASE}/baseline", "candidate": f"{RELEASE}/canary"})
    said = text_of(viewer.get(f"/releases?{query}"))
    assert f"Baseline {RELEASE}/baseline" in said
    assert f"Candidate {RELEASE}/canary" in said
    assert "p99" in said
    assert "Too few to decide" in said or "No tail test" in said


def test_two_identities_can_be_compared_by_name(now_us: int, viewer: Client):
    said = text_of(viewer.get("/releases?baseline=mid_7c1f&candidate=mid_b04e&priority=normal"))
    assert "Baseline mid_7c1f" in said
    assert "priority normal" in said


def test_sides_that_share_no_model_are_refused_by_name(now_us: int, viewer: Client):
    said = text_of(viewer.get("/releases?baseline=mid_7c1f&candidate=mid_e552"))
    assert "mid_7c1f and mid_e552 have no traffic of one logical model" in said


def test_a_drill_link_is_a_plain_receipts_url(now_us: int, viewer: Client):
    body = viewer.get("/costs?by=route&then=").content.decode()
    link = re.search(r'href="(/receipts\?[^"]*route=-[^"]*)"', body)
    assert link is not None
    query = parse_qs(urlparse(link[1].replace("&amp;", "&")).query)
    assert query["route"] == ["-"]
    assert set(query) == {"route", "since", "until"}


def test_the_mean_passes_and_the_interactive_tail_alerts(ledger_path: Path, viewer: Client):
    """The source's first experiment, SLO-2: 5 of 60 interactive requests queued for 4 s."""
    at_us = SystemClock().now_us() - 120_000_000
    rows = [
        factories.receipt(
            number,
            accepted_at_us=at_us + number,
            priority="interactive" if number <= 60 else "batch",
            queue_us=4_000_000 if number <= 5 else 20_000,
        )
        for number in range(1, 101)
    ]
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append(rows).result()
    body = viewer.get("/slo").content.decode()
    section = body[body.index('id="interactive-queue"') :].split("</section>")[0]
    said = " ".join(re.sub(r"<[^>]+>", " ", section).split())
    assert "8.33 6 h: 5 of 60" in said
    assert "ALERT" in said
    assert "Over all 100 requests of the last hour the mean is 219.0 ms" in said
    assert "the mean passes, the tail doesn&#x27;t" in said
    batch = body[body.index('id="batch-queue"') :].split("</section>")[0]
    assert "ALERT" not in batch
    assert "0 of 40" in batch


def test_a_filter_of_the_url_narrows_page_and_export_and_stays_in_the_form(
    now_us: int, viewer: Client, reader
):
    query = "by=route&then=&tenant=borealis"
    body = viewer.get(f"/costs?{query}").content.decode()
    assert '<input name="tenant" value="borealis">' in body
    total = rows_of(viewer.get(f"/costs.csv?{query}"))[-1]
    spent = reader.execute(
        "SELECT sum(cost_total_pico), count(*) FROM receipt WHERE tenant_id = 'borealis'"
    ).fetchone()
    assert (parse_units(total["cost_units"]), int(total["requests"])) == tuple(spent)
    link = re.search(r'href="/receipts\?([^"]+)" aria-label="All receipts of the range"', body)
    assert link is not None
    assert link[1].startswith("tenant=borealis&amp;since=")


def test_what_the_receipts_page_cant_filter_by_has_no_drill_link(now_us: int, viewer: Client):
    body = viewer.get("/costs?by=key&then=").content.decode()
    assert "Receipts of" not in body
    body = viewer.get("/costs?by=route&then=&tenant=acme&tenant=borealis").content.decode()
    assert "Receipts of" not in body


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("/slo?within=7d", "within: no such parameter"),
        ("/releases?priority=nope", "priority: there are interactive"),
        ("/releases?baseline=nope", "baseline: it had no traffic in this range"),
        ("/releases?baseline=mid_7c1f&candidate=mid_7c1f", "are the same side"),
        ("/releases?tenant=acme", "tenant: no such parameter"),
    ],
)
def test_a_page_answers_a_bad_question_with_400_also_as_its_partial(
    now_us: int, viewer: Client, query: str, said: str
):
    for answer in (viewer.get(query), viewer.get(query, headers=HX)):
        assert answer.status_code == 400
        assert said in text_of(answer)


@pytest.mark.parametrize("query", ["within=90d", "by=key", "by=release", "by=task_type&then=arm"])
def test_the_page_takes_what_the_api_takes_and_offers_it(now_us: int, viewer: Client, query: str):
    answer = viewer.get(f"/costs?{query}")
    assert answer.status_code == 200
    chosen = query.partition("&")[0].partition("=")[2]
    assert f'<option value="{chosen}" selected>' in answer.content.decode()


def test_a_zone_whose_plus_was_not_escaped_is_read_as_meant(now_us: int, viewer: Client):
    answer = viewer.get("/costs?zone=+05:30")
    assert answer.status_code == 200
    assert 'name="zone" list="zones" value="+05:30"' in answer.content.decode()


def test_the_table_says_which_filters_narrow_it(now_us: int, viewer: Client):
    part = text_of(viewer.get("/costs?priority=batch&tenant=acme", headers=HX))
    assert "tenant acme" in part
    assert "priority batch" in part
    none = text_of(viewer.get("/costs?tenant=nobody", headers=HX))
    assert "with tenant nobody" in none


def test_page_and_api_compare_the_same_two_sides_left_open(now_us: int, viewer: Client, reader):
    caller = Caller(tenant_id="acme", key_id="key_1", scopes=frozenset({"reports"}))
    body = reports.answer("/api/v1/releases", {}, caller, reader, now_us).body["comparison"]
    said = text_of(viewer.get("/releases"))
    assert f"Baseline {body['baseline']['side']} " in said
    assert f"Candidate {body['candidate']['side']} " in said


def test_no_two_options_of_a_side_have_the_same_value(ledger_path: Path, viewer: Client):
    at_us = SystemClock().now_us() - 120_000_000
    rows = [
        factories.receipt(
            number,
            accepted_at_us=at_us + number,
            logical_model=("assistant", "assistant-mini")[number % 2],
            identity_id=("mid_a", "mid_b")[number // 2 % 2],
        )
        for number in range(1, 41)
    ]
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append(rows).result()
    body = viewer.get("/releases").content.decode()
    select = body[body.index('<select name="baseline">') :].split("</select>")[0]
    values = re.findall(r'value="([^"]+)"', select)
    assert sorted(values) == ["mid_a", "mid_b"]
    assert "assistant, 10; assistant-mini, 10" in select


def test_a_healthy_objective_shows_the_mean_beside_the_tail(ledger_path: Path, viewer: Client):
    at_us = SystemClock().now_us() - 120_000_000
    rows = [
        factories.receipt(
            number,
            accepted_at_us=at_us + number,
            priority="interactive" if number <= 50 else "batch",
            queue_us=800_000 if number == 1 else 20_000,
            degraded_from="route-b" if number <= 3 else None,
        )
        for number in range(1, 101)
    ]
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        store.append(rows).result()
    body = viewer.get("/slo").content.decode()
    section = body[body.index('id="interactive-queue"') :].split("</section>")[0]
    said = " ".join(re.sub(r"<[^>]+>", " ", section).split())
    assert "ALERT" not in said
    assert "Last hour: mean 27.8 ms over all 100 requests; p99 800.0 ms of the 50 of" in said
    section = body[body.index('id="valid-completion"') :].split("</section>")[0]
    assert "Last hour: bad are 3 degraded." in section
