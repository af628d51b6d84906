"""Routes, policies, rates, reconciliation and health in chromium: changes, links, files."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.driven import drives
from tests.gateway.operations.books import costs, usual

pytestmark = pytest.mark.browser


def run_path(page: Page) -> str:
    page.goto("/reconciliation")
    return page.locator("tbody th a").first.get_attribute("href") or ""


@drives("routes: drain_route Drain", "routes: undrain_route Undrain")
def test_a_route_is_drained_with_a_reason_and_brought_back(operator_page: Page):
    page = operator_page
    page.goto("/routes")
    row = page.get_by_role("row", name=re.compile("^long-context-v4 us-east")).first
    row.get_by_text("Drain", exact=True).first.click()
    row.get_by_label("Reason").fill("memory test")
    row.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("Drained long-context-v4")).to_be_visible()
    expect(row).to_contain_text("memory test, by console:operator")
    page.reload()
    expect(row.locator(".chip")).to_have_text("drained")
    row.get_by_text("Undrain", exact=True).first.click()
    row.get_by_label("Reason").fill("it passed")
    row.get_by_role("button", name="Undrain").click()
    expect(page.get_by_text("takes requests again")).to_be_visible()


def test_the_fallback_graph_has_a_picture_and_the_same_as_a_table(page: Page):
    page.goto("/routes")
    picture = page.get_by_role("img", name="Fallback graph")
    expect(picture).to_be_visible()
    assert picture.locator("path.edge").count() == 4
    assert picture.locator("path.edge.refused").count() == 1
    table = page.get_by_role("region", name="Table of fallback edges")
    assert table.locator("tbody tr").count() == 4
    expect(table.get_by_text("under its floor")).to_be_visible()
    page.get_by_role("link", name="policy-7").click()
    page.wait_for_url("**/policies/revision/policy-7")
    page.go_back()
    expect(picture).to_be_visible()


def test_what_is_followed_can_be_paused(live_page: Page):
    live_page.goto("/routes")
    live_page.get_by_role("link", name="Follow every 5 s").click()
    live_page.wait_for_url("**follow=1")
    assert live_page.locator("#results").get_attribute("hx-trigger") == "every 5s"
    live_page.get_by_role("link", name="Pause").click()
    live_page.wait_for_url("**/routes")
    assert live_page.locator("#results").get_attribute("hx-trigger") is None


@drives("policies: draft_policy")
def test_a_draft_is_compared_changed_and_kept(operator_page: Page):
    page = operator_page
    page.goto("/policies")
    page.get_by_role("link", name="What differs in policy-8").click()
    table = page.get_by_role("region", name="Table of differences")
    expect(table).to_contain_text("attempts.hedge")
    before = page.get_by_label("Before")
    before.fill("policy-6")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**before=policy-6**")
    expect(table.locator("caption")).to_contain_text("From policy-6 to policy-8")
    page.goto("/policies/revision/policy-8")
    expect(page.get_by_text("can be published")).to_be_visible()
    page.get_by_text("Change the draft").click()
    text = page.get_by_label("Policy, as TOML")
    known = text.input_value()
    note = f"allowance {len(known)} {page.evaluate('Math.random()')}"
    text.fill(known.replace("limit = 3", "limit = 4"))
    page.get_by_label("Note").fill(note)
    page.get_by_role("button", name="Keep the draft").click()
    page.wait_for_url("**/policies")
    expect(page.get_by_text("of the draft policy-8")).to_be_visible()
    expect(page.get_by_text(note)).to_be_visible()


def test_a_draft_that_is_no_toml_is_refused_on_a_page_that_leads_back(operator_page: Page):
    page = operator_page
    page.goto("/policies/revision/policy-7")
    page.get_by_text("Draft a new policy from this").click()
    page.get_by_role("textbox", name="Revision", exact=True).fill("policy-9")
    page.get_by_label("Policy, as TOML").fill("routes = [")
    page.get_by_role("button", name="Keep the draft").click()
    expect(page.get_by_role("alert")).to_contain_text("policy is no TOML: line 1")
    page.get_by_role("link", name="Back").click()
    page.wait_for_url("**/policies")


def test_a_price_leads_to_its_history(page: Page):
    page.goto("/rates/compare?before=rates-2025-11&after=rates-2027-01")
    page.get_by_role("link", name="fast-v2").click()
    page.wait_for_url("**/rates/history?key=fast-v2")
    table = page.get_by_role("region", name="Table of the price's history")
    assert table.locator("tbody tr").count() == 2
    expect(table.locator("tbody tr").last).to_contain_text("now")


def test_a_rate_table_is_tried_on_past_traffic(page: Page):
    page.goto("/rates/version/rates-2027-01")
    page.get_by_role("combobox", name="Range").select_option("24h")
    page.get_by_role("button", name="Try it").click()
    page.wait_for_url("**within=24h**")
    expect(page.get_by_role("region", name="Table of the trial")).to_contain_text("fast-v3")


def test_a_report_is_imported_by_its_file(operator_page: Page, request: pytest.FixtureRequest):
    page = operator_page
    provider = f"cloud-{abs(hash(request.node.name)) % 10**6}"
    page.goto("/reconciliation")
    page.get_by_text("Import a report").click()
    file: Any = {
        "name": "costs.json",
        "mimeType": "application/json",
        "buffer": costs((0, usual(3))),
    }
    page.get_by_label("Files").set_input_files(file)
    page.get_by_label("Provider, where").fill(provider)
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text(f"Imported 2 lines of {provider}")).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile(provider))).to_be_visible()


def test_a_difference_leads_to_the_receipts_behind_it(page: Page):
    page.goto(run_path(page))
    page.get_by_role("link", name="Which are only ours").click()
    page.wait_for_url("**class=only_ours**")
    table = page.get_by_role("region", name="Table of differences")
    assert table.locator("tbody tr").count() == 1
    table.locator("td a").first.click()
    page.wait_for_url("**/receipts/req_**")
    page.go_back()
    expect(table).to_be_visible()


@drives("page reconciliation-csv", "page reconciliation-sqlite")
def test_the_files_of_a_run_can_be_fetched_from_its_page(page: Page):
    page.goto(run_path(page))
    for name, begins in (("^CSV, every", b"class,detail"), ("SQLite", b"SQLite format 3")):
        link = page.get_by_role("link", name=re.compile(name)).get_attribute("href") or ""
        answer = page.request.get(link)
        assert answer.body().startswith(begins)
        assert int(answer.headers["x-row-count"]) > 8


@drives("health: health filter", "page checkpoint")
def test_the_audit_runs_by_its_button_and_every_rule_holds(page: Page):
    page.goto("/health")
    page.get_by_role("button", name="Run the quick checks").click()
    page.wait_for_url("**audit=quick")
    table = page.get_by_role("region", name="Table of checks")
    expect(table).to_be_visible()
    assert table.locator(".chip-alert").count() == 0
    link = page.get_by_role("link", name="Download a checkpoint").get_attribute("href") or ""
    assert page.request.get(link).json()["size"] > 1_000
