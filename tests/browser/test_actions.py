"""What a person can change in the console, in chromium: each form, with a reason, and what follows.

Forms are plain posts; with scripts some of them stand in parts that HTMX has swapped in.
"""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Contexts, logged_in, runs_scripts, watched
from tests.browser.driven import drives
from tests.sample_console import Console

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def console(acting: Console) -> Console:
    return acting


def act(page: Page, label: str, reason: str, *, button: str = "") -> None:
    """Open the first form behind a summary of that label, say why, and send it."""
    form = page.locator("details.act", has=page.locator("summary", has_text=label)).first
    form.locator("summary").click()
    form.get_by_label("Reason").fill(reason)
    form.get_by_role("button", name=button or label).click()


@drives("tenants: set_tenant", "tenants: create_key", "tenants: revoke_key Revoke")
def test_a_tenant_is_made_its_quota_changed_a_key_made_and_revoked(admin_page: Page):
    page = admin_page
    page.goto("/tenants")
    name = "made-with-scripts" if runs_scripts(page) else "made-without"
    form = page.locator("details.act", has=page.locator("summary", has_text="New tenant"))
    form.locator("summary").click()
    form.get_by_label("Tenant", exact=True).fill(name)
    form.get_by_label("Reason").fill("a new customer")
    form.get_by_role("button", name="Make the tenant").click()
    page.get_by_role("link", name=name).click()
    page.wait_for_url(f"**/tenants/{name}")
    page.get_by_text("Change the quota").click()
    page.get_by_label("Requests a minute").fill("77")
    quota = page.locator("form", has=page.get_by_label("Requests a minute"))
    quota.get_by_label("Reason").fill("they asked")
    quota.get_by_role("button", name="Set the quota").click()
    expect(page.get_by_role("region", name="Table of revisions")).to_contain_text("minute: 77")
    act(page, "New key", "for their staging", button="Make the key")
    shown = page.locator("code.secret").inner_text()
    page.get_by_role("link", name="Back").click()
    expect(page.get_by_role("region", name="Table of keys")).to_contain_text(shown[:6])
    assert shown not in page.content()
    act(page, "Revoke", "it leaked")
    expect(page.get_by_role("region", name="Table of keys")).to_contain_text("it leaked")
    page.goto("/audit-log?action=revoke_key")
    expect(page.locator("tbody tr").first).to_contain_text("console:admin")


@drives("now: override_slo", "slo_one: override_slo End the override")
def test_an_objective_is_overridden_for_a_time_and_the_override_ended(operator_page: Page):
    """SLO-8."""
    page = operator_page
    page.goto("/slo/objective/interactive-queue")
    act(page, "Override", "load test")
    expect(page.get_by_text("It acts on nothing until")).to_contain_text("load test")
    page.reload()
    act(page, "End the override", "it is over")
    expect(page.get_by_text("It acts on nothing until")).to_have_count(0)


@drives("now: decline_action Decline", "now: undo_action Undo")
def test_a_proposed_action_is_declined_and_one_in_force_undone(operator_page: Page):
    """SLO-4: one with scripts, in a part that was swapped in; the other without."""
    page = operator_page
    page.goto("/now?follow=0")
    scripts = page.evaluate("typeof window.htmx !== 'undefined'")
    label, subject = ("Decline", "fast-v3") if scripts else ("Undo", "batch")
    table = page.get_by_role("region", name="Table of actions")
    row = table.locator("tr", has_text=subject)
    row.locator("summary", has_text=label).click()
    form = row.locator("details[open]")
    form.get_by_label("Reason").fill("seen by a person")
    form.get_by_role("button", name=label).click()
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    expect(page.locator("tr", has_text=subject).locator("summary", has_text=label)).to_have_count(0)


@drives("rollout: decide_rollout Hold", "rollout: decide_rollout Let it go on")
def test_a_rollout_is_held_and_let_go_on(operator_page: Page):
    """REL-3: first with scripts, then without."""
    page = operator_page
    page.goto("/releases/rollout/assistant-v3/1")
    label, after = ("Hold", "held")
    if page.locator("details.act summary", has_text="Let it go on").count():
        label, after = "Let it go on", "running"
    act(page, label, "waiting for the reviewers")
    expect(page.locator(".page-head .chip")).to_have_text(after)
    page.reload()
    steps = page.get_by_role("region", name="Table of steps")
    expect(steps).to_contain_text("waiting for the reviewers")


@drives("policies: publish_policy Publish this draft", "policies: return_to_policy")
def test_a_policy_is_published_and_an_earlier_one_returned_to(admin_page: Page):
    page = admin_page
    page.goto("/policies/revision/policy-8")
    scripts = page.evaluate("typeof window.htmx !== 'undefined'")
    if page.get_by_text("Publish this draft").count():
        act(page, "Publish this draft", "reviewed")
        expect(page.get_by_text("policy-8").first).to_be_visible()
    earlier = "policy-6" if scripts else "policy-7"  # each only where it isn't in force
    page.goto(f"/policies/revision/{earlier}")
    act(page, "Return to this policy", "v8 is slower", button="Put it in force again")
    page.wait_for_url("**/policies")
    published = page.get_by_role("region", name="Table of published policies")
    expect(published).to_contain_text(f"{earlier}-again")


@drives("unknowns: resolve_unknown")
def test_an_unknown_is_settled_with_its_evidence(contexts: Contexts, console: Console):
    """Without scripts; the other one is settled with them, from what an invoice says."""
    for page in watched(contexts("admin", False), console):
        page.goto("/unknowns")
        held = page.locator("tbody tr").count()
        row = page.locator("tbody tr").first
        row.get_by_text("Settle", exact=True).first.click()
        row.get_by_label("It turned out").select_option("not_run")
        row.get_by_label("Evidence").fill("ticket 4711")
        row.get_by_label("Reason").fill("the provider says so")
        row.get_by_role("button", name="Settle").click()
        expect(page.locator("tbody tr")).to_have_count(held - 1)


def test_a_refused_change_says_why_writes_nothing_and_leads_back(admin_page: Page):
    page = admin_page
    page.goto("/tenants/acme")
    page.get_by_text("Change the quota").click()
    page.get_by_label("In flight, limit").fill("a few")
    form = page.locator("form", has=page.get_by_label("In flight, limit"))
    form.get_by_label("Reason").fill("x")
    form.get_by_role("button", name="Set the quota").click()
    expect(page.get_by_role("alert")).to_contain_text("the form can't be read")
    expect(page.get_by_text("Nothing was written.")).to_be_visible()
    page.get_by_role("link", name="Back").click()
    page.wait_for_url("**/tenants/acme")
    expect(page.get_by_text(re.compile("Quota revision 1,"))).to_be_visible()


def test_a_form_pressed_twice_is_sent_once_and_one_whose_session_ended_is_said_to_be_unsent(
    browser: Browser, console: Console
):
    """A second press would make a second key, of which the first is never seen."""
    context = logged_in(browser, console, "admin", scripts=True)
    page = context.new_page()
    page.goto("/tenants/acme")
    keys = page.get_by_role("region", name="Table of keys").locator("tbody tr")
    before = keys.count()
    form = page.locator("details.act", has=page.locator("summary", has_text="New key"))
    form.locator("summary").click()
    form.get_by_label("Reason").fill("for a test")
    form.get_by_role("button", name="Make the key").dblclick()
    page.wait_for_selector("code.secret")
    page.goto("/tenants/acme")
    expect(keys).to_have_count(before + 1)
    form.locator("summary").click()
    form.get_by_label("Reason").fill("too late")
    context.clear_cookies(name="sessionid")
    form.get_by_role("button", name="Make the key").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was written")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(console.passwords["admin"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/tenants/acme")
    expect(keys).to_have_count(before + 1)
    context.close()
