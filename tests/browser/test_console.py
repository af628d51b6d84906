"""The console in Debian's chromium: with and without JavaScript, back, reload, deep links, keys."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Watch, runs_scripts
from tests.browser.driven import drives
from tests.sample_console import RELEASE, Console
from tests.screenshots import log_in

pytestmark = pytest.mark.browser


def shown_ids(page: Page) -> list[str]:
    return page.locator("tbody th a").evaluate_all("links => links.map(each => each.title)")


def choose(page: Page, label: str, value: str) -> None:
    """Change a filter; without JavaScript the form has to be sent by its button."""
    page.get_by_role("combobox", name=label, exact=True).select_option(value)
    if not runs_scripts(page):
        page.locator("main .go .primary").click()
    page.wait_for_url(f"**{value}**")


@drives("receipts: receipts filter")
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
    choose(page, "Tenant", "acme")
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**older=**")
    shown, url = shown_ids(page), page.url
    assert len(shown) == 50
    page.reload()
    assert shown_ids(page) == shown
    assert page.get_by_role("combobox", name="Tenant", exact=True).input_value() == "acme"
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


@drives("costs: costs filter")
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


@drives("page costs-csv")
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


@drives("releases: releases filter")
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


@drives("theme: theme")
def test_the_theme_switch_works_and_stays(page: Page):
    page.goto("/costs?by=route")
    page.get_by_role("button", name="Dark").click()
    page.wait_for_url("**/costs?by=route")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.goto("/slo")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"


@drives("login: login", "navigation: logout")
@pytest.mark.parametrize("scripts", [True, False])
def test_a_login_leads_back_a_wrong_one_says_so_and_a_log_out_ends_it(
    browser: Browser, console: Console, scripts: bool
):
    """SEC-2: the one test that fills in the form; the others come with a session."""
    context = browser.new_context(base_url=console.base_url, java_script_enabled=scripts)
    page, watch = context.new_page(), Watch(base_url=console.base_url)
    watch.over(page)
    log_in(page, "viewer", console.passwords["viewer"])
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/receipts?status=failed")
    page.wait_for_url("**/login?next=**")
    page.get_by_label("Username").fill("nobody")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("don't match")
    page.get_by_label("Username").fill("viewer")
    page.get_by_label("Password").fill(console.passwords["viewer"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/receipts?status=failed")
    context.close()
    assert watch.faults == []


def test_a_part_asked_for_after_the_session_ended_leads_to_the_login_and_back(
    browser: Browser, console: Console
):
    context = browser.new_context(base_url=console.base_url)
    page = context.new_page()
    cookie = {"name": "sessionid", "value": console.sessions["admin"], "url": console.base_url}
    context.add_cookies([cookie])  # type: ignore[list-item]  # its TypedDict, written as a dict
    page.goto("/receipts")
    context.clear_cookies(name="sessionid")
    page.get_by_role("combobox", name="Status", exact=True).select_option("rejected")
    page.wait_for_url("**/login?next=/receipts%3F**status%3Drejected**")
    context.close()


def test_the_keyboard_reaches_the_content_first(live_page: Page):
    live_page.goto("/receipts")
    live_page.keyboard.press("Tab")
    expect(live_page.locator(":focus")).to_have_text("Skip to the content")
    live_page.keyboard.press("Enter")
    assert live_page.evaluate("document.activeElement.id") == "main"


def test_rows_and_filters_are_reached_by_one_key_each(live_page: Page):
    page = live_page
    page.goto("/receipts")
    ids = shown_ids(page)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(":focus")).to_have_attribute("title", ids[1])
    page.keyboard.press("k")
    expect(page.locator(":focus")).to_have_attribute("title", ids[0])
    page.keyboard.press("/")
    expect(page.locator(":focus")).to_have_attribute("name", "request_id")
    page.keyboard.type("j?/")
    expect(page.locator(":focus")).to_have_value("j?/")
    page.goto("/receipts")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/receipts/{ids[0]}")


def test_the_list_of_keys_opens_closes_and_leads_to_where_they_are_turned_off(live_page: Page):
    """WCAG 2.1.4."""
    page = live_page
    page.goto("/costs")
    dialog = page.get_by_role("dialog", name="Keyboard")
    page.keyboard.press("?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("?")
    dialog.get_by_role("link", name="Turn these off").click()
    page.get_by_label("Shortcuts of one key").uncheck()
    page.get_by_role("button", name="Keep").click()
    page.wait_for_url("**/costs")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()
    page.goto("/display")
    page.get_by_label("Shortcuts of one key").check()
    page.get_by_role("button", name="Keep").click()


@drives("display: display")
def test_a_chosen_zone_holds_on_every_page_and_for_ranges(page: Page):
    """CST-9: a zone of the page's address wins over it."""
    page.goto("/receipts")
    page.get_by_role("link", name="Times in UTC").click()
    page.get_by_label("Time zone").fill("Asia/Kolkata")
    page.get_by_role("button", name="Keep").click()
    page.wait_for_url("**/receipts")
    first = page.locator("tbody time").first
    assert (first.get_attribute("datetime") or "").endswith("+05:30")
    assert (first.get_attribute("title") or "").endswith("Z")
    page.goto("/costs")
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Kolkata")
    page.goto("/costs?zone=Europe/Berlin")
    expect(page.get_by_label("Time zone")).to_have_value("Europe/Berlin")
    page.goto("/display")
    page.get_by_label("Time zone").fill("UTC")
    page.get_by_role("button", name="Keep").click()


def test_a_table_is_downloaded_as_a_file_of_what_is_shown(page: Page):
    page.goto("/receipts?status=completed&within=6h")
    with page.expect_download() as begun:
        page.get_by_role("link", name="receipts as CSV").click()
    assert begun.value.suggested_filename == "receipts-receipts.csv"
    lines = begun.value.path().read_text().splitlines()
    assert len(lines) == 1 + page.locator("tbody tr").count()
    assert shown_ids(page)[0] in lines[1]
