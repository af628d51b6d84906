"""CST-7 on every page and in every file: a zero without a price has a mark beside it."""

import csv
import io
from pathlib import Path

import msgspec
import pytest
from django.test import Client

from gateway.api.receipts import receipt_json
from gateway.clock import SystemClock
from gateway.quota import Quota
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests import factories
from tests.gateway.pages.test_receipts import text_of

DAY_US = 86_400_000_000
FREE = {"rate_key": None, "cost_input_pico": 0, "cost_output_pico": 0, "cost_total_pico": 0}


@pytest.fixture
def mixed(ledger_path: Path) -> None:
    """Yesterday all had a price; today one of acme's three has none, and one of two never ran."""
    now_us = SystemClock().now_us()
    made = [factories.receipt(n, accepted_at_us=now_us - DAY_US) for n in (1, 2)]
    made += [factories.receipt(n, accepted_at_us=now_us) for n in (3, 4)]
    made.append(factories.receipt(5, accepted_at_us=now_us, identity_id="mid_other", **FREE))
    made.append(
        factories.receipt(
            6, accepted_at_us=now_us, status="failed", usage_source=None, output_tokens=0, **FREE
        )
    )
    beside = FREE | {"cost_retry_and_hedge_pico": 7_000_000, "cost_total_pico": 7_000_000}
    made.append(factories.receipt(7, accepted_at_us=now_us, tenant_id="other-co", **beside))
    with Store.open(ledger_path, projections=(Rollups(),)) as store:
        quota = msgspec.json.encode(Quota(in_flight_limit=8)).decode()
        tenant = factories.tenant(body_json=quota)
        store.append([factories.rate_table(), tenant, *made]).result()


def test_the_costs_page_and_its_files_count_what_has_no_price(mixed: None, viewer: Client):
    said = text_of(viewer.get("/costs?by=tenant&then="))
    assert "2 of these requests ran without a price: no rate was in effect for them." in said
    rows = list(
        csv.DictReader(io.StringIO(viewer.get("/costs.csv?by=tenant&then=").content.decode()))
    )
    assert {row["tenant"]: row["unpriced_requests"] for row in rows} == {
        "acme": "1", "other-co": "1", "total": "2",
    }  # fmt: skip
    saved = viewer.get("/costs?by=tenant&then=&as=json&table=costs").json()
    name = next(column for column in saved["columns"] if column.startswith("No price"))
    assert [row[name] for row in (*saved["rows"], *saved["totals"])] == ["1", "1", "2"]


def test_costs_that_all_have_a_price_have_no_mark(mixed: None, viewer: Client):
    answer = viewer.get("/costs?by=tenant&then=&status=failed")
    assert "price" not in text_of(answer).partition("Per completed request")[0]
    assert "No price" not in text_of(answer)


def test_the_bridge_and_a_releases_sides_say_how_many(mixed: None, viewer: Client):
    said = text_of(viewer.get("/costs/bridge?within=24h"))
    assert "Without a price ran 0 requests before and 2 after" in said
    only = text_of(viewer.get("/costs/bridge?within=24h&identity=mid_other"))
    assert "No costs in either period" not in only
    assert "Without a price ran 0 requests before and 1 after" in only
    sides = viewer.get(
        "/releases?baseline=mid_a&candidate=mid_other&as=json&table=both-sides"
    ).json()["rows"]
    (lacking,) = [list(row.values()) for row in sides if "Without a price" in str(row)]
    assert lacking == ["Without a price, in no cost requests", "1", "1"]


def test_a_receipt_and_the_list_tell_no_price_from_nothing_that_ran(mixed: None, viewer: Client):
    none, never, beside = (
        text_of(viewer.get(f"/receipts/{factories.request_id(n)}")) for n in (5, 6, 7)
    )
    assert "No price: it ran, and table" in none and "in no sum" in none
    assert "Nothing ran, nothing is owed." in never and "no price" not in never.lower()
    assert "The answer has no price" in beside and "no price" in beside
    listed = viewer.get("/receipts?within=24h&as=json&table=receipts").json()["rows"]
    assert {row["Cost units"] for row in listed} == {
        "0.003600", "0.000007; answer: no price", "no price", None,
    }  # fmt: skip


def test_a_tenants_month_says_what_is_not_in_it(mixed: None, viewer: Client):
    assert "1 without a price" in text_of(viewer.get("/tenants"))
    assert "1 request without a price" in text_of(viewer.get("/tenants/acme"))


@pytest.mark.parametrize(("changes", "lacks"), [({}, False), (FREE, True)])
def test_a_receipt_as_json_says_so(changes: dict[str, object], lacks: bool):
    one = factories.receipt(1, **changes)
    shown = receipt_json(one, seq=1, prev_hash=None, entry_hash=b"")
    assert shown["unpriced"] is lacks
