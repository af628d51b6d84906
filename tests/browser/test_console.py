"""The console in Debian's chromium: with and without JavaScript, back, reload, deep links, axe."""

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import axe_source
from tests.sample_console import RELEASE, Console
from tests.screenshots import log_in

pytestmark = pytest.mark.browser

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PATHS = (
    "/now?follow=0",
    "/receipts",
    "/receipts?status=rejected",
    "/receipts?tenant=nobody",
    "/receipts?older=nowhere",
    "/costs",
    "/costs/bridge?within=1h",
    "/costs?by=hour&then=tenant&zone=%2B05:30",
    "/slo",
    "/releases",
    "/receipts/req_unknown",
    "/slo/objective/interactive-queue",
    "/slo/slices?by=priority&within=1h",
    "/releases/rollout/assistant-v3/1",
)


def shown_ids(page: Page) -> list[str]:
    return page.locator("tbody th a").evaluate_all("links => links.map(each => each.title)")


def choose(page: Page, label: str, value: str) -> None:
    """Change a filter; without JavaScript the form has to be sent by its button."""
    page.get_by_role("combobox", name=label, exact=True).select_option(value)
    if not runs_scripts(page):
        page.locator(".go .primary").click()
    page.wait_for_url(f"**{value}**")


def runs_scripts(page: Page) -> bool:
    return page.locator("form.htmx-request, [hx-get]").count() > 0 and bool(
        page.evaluate("typeof window.htmx !== 'undefined'")
    )


def test_a_filter_narrows_the_list_and_back_restores_it(page: Page):
    page.goto("/receipts")
    before = shown_ids(page)
    choose(page, "Status", "rejected")
    expect(page.locator("tbody .chip").first).to_have_text("rejected")
    narrowed = shown_ids(page)
    assert narrowed != before
    assert page.locator("tbody .chip-completed").count() == 0
    page.go_back()
    expect(page.locator("tbody tr").first).to_contain_text("completed")
    assert shown_ids(page) == before
    expect(page.get_by_role("combobox", name="Status", exact=True)).to_have_value("")
    page.go_forward()
    expect(page.locator("tbody .chip").first).to_have_text("rejected")
    assert shown_ids(page) == narrowed


def test_a_reload_and_a_deep_link_show_the_same_receipts(page: Page, console: Console):
    page.goto("/receipts")
    choose(page, "Tenant", "borealis")
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**older=**")
    shown, url = shown_ids(page), page.url
    assert len(shown) == 50
    page.reload()
    assert shown_ids(page) == shown
    assert page.get_by_role("combobox", name="Tenant", exact=True).input_value() == "borealis"
    again = page.context.new_page()
    again.goto(url)
    assert shown_ids(again) == shown


def test_pages_of_receipts_lead_there_and_back(page: Page):
    page.goto("/receipts")
    first = shown_ids(page)
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**older=**")
    second = shown_ids(page)
    assert not set(first) & set(second)
    page.get_by_role("link", name="Newer").click()
    page.wait_for_url("**newer=**")
    assert shown_ids(page) == first


def test_from_the_list_to_one_receipt_and_back(page: Page):
    page.goto("/receipts?status=completed")
    request_id = shown_ids(page)[0]
    page.locator("tbody th a").first.click()
    page.wait_for_url(f"**/receipts/{request_id}")
    expect(page.get_by_role("img", name="Phases of this request")).to_be_visible()
    expect(page.get_by_text("the same to the pico unit")).to_be_visible()
    page.get_by_text("The same as a table").click()
    expect(page.get_by_role("rowheader", name="First decode")).to_be_visible()
    page.go_back()
    assert shown_ids(page)[0] == request_id


def test_costs_regroup_keep_their_total_and_drill_down(page: Page):
    page.goto("/costs")
    total = page.locator("tfoot td").first.inner_text()
    choose(page, "By", "priority")
    expect(page.locator("thead th").first).to_have_text("Priority")
    assert page.locator("tfoot td").first.inner_text() == total
    page.reload()
    expect(page.locator("thead th").first).to_have_text("Priority")
    page.go_back()
    expect(page.locator("thead th").first).to_have_text("Tenant")
    requests = page.locator("tbody tr").first.locator("td.num").nth(4).inner_text()
    page.get_by_role("link", name=re.compile("^Receipts of")).first.click()
    page.wait_for_url("**/receipts?**tenant=**since=**")
    on_page = page.locator("tbody tr").count()
    assert on_page == min(50, int(requests.replace(",", "")))


def test_the_csv_of_costs_can_be_fetched_from_its_page(page: Page):
    page.goto("/costs?by=route&then=priority")
    link = page.get_by_role("link", name="CSV of this table").get_attribute("href") or ""
    answer = page.request.get(link)
    assert answer.text().startswith("route,priority,requests")


def test_an_objective_leads_from_the_table_to_its_windows(page: Page):
    page.goto("/slo")
    page.get_by_role("link", name="Interactive requests wait at most 1 s in the queue").click()
    assert page.url.endswith("#interactive-queue")
    section = page.locator("#interactive-queue")
    expect(section.get_by_role("img", name="Burn rate")).to_be_visible()
    section.get_by_text("The same as a table").click()
    expect(section.get_by_role("columnheader", name="Bad of valid", exact=True)).to_be_visible()


def test_releases_compare_other_sides_on_request(page: Page):
    page.goto("/releases")
    expect(page.get_by_role("heading", name="Time to first token")).to_be_visible()
    baseline, canary = f"{RELEASE}/baseline", f"{RELEASE}/canary"
    page.get_by_role("combobox", name="Candidate", exact=True).select_option(canary)
    if runs_scripts(page):
        page.wait_for_url("**canary**")
    page.get_by_role("combobox", name="Baseline", exact=True).select_option(baseline)
    if not runs_scripts(page):
        page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**baseline=rel-**")
    sides = page.get_by_role("region", name="Both sides").locator("thead .unit")
    expect(sides.first).to_have_text(baseline)
    page.reload()
    expect(sides.nth(1)).to_have_text(canary)


def test_the_theme_switch_works_and_stays(page: Page):
    page.goto("/costs?by=route")
    page.get_by_role("button", name="Dark").click()
    page.wait_for_url("**/costs?by=route")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.goto("/slo")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"


def test_a_wrong_password_says_so_and_a_log_out_ends_the_session(page: Page):
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/receipts?status=failed")
    page.wait_for_url("**/login?next=**")
    page.get_by_label("Username").fill("nobody")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("don't match")


def test_the_keyboard_reaches_the_content_first(live_page: Page):
    live_page.goto("/receipts")
    live_page.keyboard.press("Tab")
    expect(live_page.locator(":focus")).to_have_text("Skip to the content")
    live_page.keyboard.press("Enter")
    assert live_page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("path", PATHS[:8])
def test_no_page_is_wider_than_its_window(live_page: Page, path: str):
    live_page.goto(path)
    for width in (390, 768, 1440, 2560):
        live_page.set_viewport_size({"width": width, "height": 900})
        assert live_page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_axe_finds_no_violation_on_any_page(
    browser: Browser, console: Console, theme: Literal["light", "dark"], width: int
):
    # Axe is put into the page from outside, which the pages' own policy rightly forbids.
    context = browser.new_context(
        base_url=console.base_url,
        color_scheme=theme,
        viewport={"width": width, "height": 900},
        bypass_csp=True,
    )
    page = context.new_page()
    found = {"/login": _violations(page, "/login")}
    log_in(page, "viewer", console.passwords["viewer"])
    requests = shown_ids(page)[:1]
    for path in (*PATHS, *(f"/receipts/{request_id}" for request_id in requests)):
        found[path] = _violations(page, path)
    context.close()
    assert {path: faults for path, faults in found.items() if faults} == {}


def _violations(page: Page, path: str) -> list[str]:
    page.goto(path)
    page.evaluate(axe_source())
    result = page.evaluate(
        "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES
    )
    return [
        f"{fault['id']}: {node['html'][:160]} ({node.get('failureSummary', '')[:200]})"
        for fault in result["violations"]
        for node in fault["nodes"][:2]
    ]
