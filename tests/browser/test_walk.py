"""The newcomer's walk: from an alert on Now to the one receipt that proves its cause."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gateway.demo.scenario_run import START_US
from gateway.demo.scenarios import SCENARIOS, WINDOW_US
from tests.browser.conftest import ACTION_LIMIT_MS, Watch
from tests.sample_console import manage, served
from tests.screenshots import log_in

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ENDS = datetime.fromtimestamp((START_US + 2 * WINDOW_US) / 1e6, UTC).isoformat()[:19]


@pytest.mark.parametrize("name", sorted(name for name, one in SCENARIOS.items() if one.finds))
def test_two_clicks_lead_from_the_alert_to_the_receipt(browser: Browser, tmp_path: Path, name: str):
    """DIA-1, DIA-2: straight to the proof in one click, or by the window's receipts in two."""
    manage(tmp_path, "scenario", name, "--seed", "4", "--ledger", str(tmp_path / "ledger.sqlite3"))
    manage(tmp_path, "migrate")
    password = manage(tmp_path, "create_operator", "viewer", "--role", "viewer").split()[-1]
    with served(tmp_path) as base_url:
        context = browser.new_context(base_url=base_url)
        context.set_default_timeout(ACTION_LIMIT_MS)
        page, watch = context.new_page(), Watch(base_url=base_url)
        watch.over(page)
        log_in(page, "viewer", password)
        page.goto(f"/now?within=5m&at={ENDS}")
        finding = page.locator(".finding").first
        expect(finding.get_by_text("symptom")).to_be_visible()
        proof = finding.locator("dd a").first
        request_id = proof.get_attribute("title")
        proof.click()
        page.wait_for_url(f"**/receipts/{request_id}")
        expect(page.get_by_role("heading", name="Receipt", exact=True)).to_be_visible()
        page.go_back()
        page.locator(".finding").first.get_by_role("link", name="Receipts of this window").click()
        page.wait_for_url("**/receipts?**since=**")
        page.locator("tbody th a").first.click()
        page.wait_for_url("**/receipts/req_*")
        context.close()
    assert watch.faults == []
