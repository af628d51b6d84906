"""The newcomer's walk: from an alert on Now to the receipt that proves its cause (DIA-1, DIA-2).

Of a fault for each way in which a request ends; tests/gateway/pages/test_now.py follows the links
of all eight. One console for all: its ledger is a link that leads to another scenario's ledger each
time, which its readers notice as they do after a restore.
"""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Watch, logged_in
from tests.sample_console import Console, python, served
from tests.sample_scenarios import lead_to

pytestmark = pytest.mark.browser

SEED = "4"
SHOWS = {  # what the receipt says besides the measure that it was chosen for
    "prefill-queue": ("completed",),
    "broken-fallback": ("degraded", "schema broken", "the answer breaks it"),
    "billed-timeouts": ("unknown",),
    "impatient-users": ("cancelled", "CLIENT_GONE"),
}


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Console, str]]:
    """The console, and when the window with the fault ends."""
    folder = tmp_path_factory.mktemp("fleets")
    logins = json.loads(python(folder, "-m", "tests.sample_scenarios", SEED, *SHOWS))
    ends = logins.pop("ends")
    lead_to(folder, next(iter(SHOWS)))
    with served(folder) as base_url:
        yield Console(base_url=base_url, folder=folder, **logins), ends


@pytest.mark.parametrize("name", SHOWS)
def test_an_alert_leads_to_the_receipt_that_proves_its_cause(
    browser: Browser, fleets: tuple[Console, str], name: str
):
    """Straight to the proof in one click, or by the window's receipts in two: four are allowed."""
    console, ends = fleets
    lead_to(console.folder, name)
    context = logged_in(browser, console, "viewer", scripts=True)
    page, watch = context.new_page(), Watch(base_url=console.base_url)
    watch.over(page)
    page.goto(f"/now?within=5m&at={ends}")
    finding = page.locator(".finding").first
    expect(finding.get_by_text("symptom")).to_be_visible()
    proof = finding.locator("dd a").first
    request_id, said = proof.get_attribute("title"), proof.locator("xpath=..").inner_text()
    measured = said.rpartition(", ")[2].removesuffix(" units")
    proof.click()
    page.wait_for_url(f"**/receipts/{request_id}")
    expect(page.get_by_role("heading", name="Receipt", exact=True)).to_be_visible()
    for text in (measured, *SHOWS[name]):
        expect(page.locator("main")).to_contain_text(text)
    page.go_back()
    page.locator(".finding").first.get_by_role("link", name="Receipts of this window").click()
    page.wait_for_url("**/receipts?**since=**")
    page.locator("tbody th a").first.click()
    page.wait_for_url("**/receipts/req_*")
    context.close()
    assert watch.faults == []
