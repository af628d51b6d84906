"""Longer ways of a person through the console, in chromium: a release, an objective, a month's
books, a price, a proposed action. On the console of the tests that change something.
"""

import json
import re
import sqlite3
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page, expect

from ledger import records as r
from tests.browser.conftest import MODES, Contexts, watched
from tests.browser.driven import drives
from tests.browser.test_actions import act
from tests.gateway.operations.books import PLAN, append, costs, usual
from tests.sample_console import Console
from tests.sample_control import ROLLOUT, SLO, STEP_US

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def console(acting: Console) -> Console:
    return acting


def scripts(page: Page) -> bool:
    return bool(page.evaluate("typeof window.htmx !== 'undefined'"))


def calm(console: Console) -> None:
    """The objective that burns has a calm window: nothing is frozen any more."""
    connection = sqlite3.connect(console.folder / "ledger.sqlite3")
    (end_us,) = connection.execute("SELECT max(end_us) FROM slo_evaluation").fetchone()
    connection.close()
    window = r.SloEvaluation(
        slo_id=SLO, end_us=end_us + STEP_US, revision=0, slo_revision=1, start_us=end_us,
        state="OK", good=21_600, valid=21_600, rules_json="[]", calm_windows=1,
        evaluated_at_us=end_us + STEP_US,
    )  # fmt: skip
    append(console.folder / "ledger.sqlite3", [window])


@drives("now: approve_action Approve", "now: override_slo", "now: now filter")
def test_a_proposed_action_is_approved_and_an_objective_overridden_on_now(operator_page: Page):
    """SLO-4, SLO-8: by its form; back and reload show what became of it, never the form."""
    page = operator_page
    page.goto("/now?follow=0")
    action, objective = (
        ("Limit prefill", "main path") if scripts(page) else ("Advise scaling", "in the queue")
    )
    row = page.get_by_role("region", name="Table of actions").locator("tr", has_text=action)
    row.locator("summary", has_text="Approve").click()
    row.get_by_label("Reason").first.fill("seen on the graph")
    row.get_by_role("button", name="Approve").click()
    expect(page.locator(".messages")).to_contain_text("is applied")
    page.reload()
    expect(row).to_contain_text("in force")
    expect(row.locator("summary", has_text="Approve")).to_have_count(0)
    page.get_by_label("Compare the last").select_option("1h")
    page.get_by_role("button", name="Look").click()
    page.wait_for_url("**within=1h**")
    page.go_back()
    expect(row).to_contain_text("in force")
    burning = page.get_by_role("region", name="Table of objectives that")
    wrong = burning.locator("tr", has_text=objective)
    wrong.locator("summary", has_text="Override").click()
    wrong.get_by_label("For").select_option(label="1 h")
    wrong.get_by_label("Reason").fill("a planned test")
    wrong.get_by_role("button", name="Override").click()
    expect(page.locator(".messages")).to_contain_text("acts on nothing until")
    ended = page.locator(".note-warn", has_text="a planned test")
    ended.locator("summary").click()
    ended.get_by_label("Reason").fill("it is over")
    ended.get_by_role("button", name="End the override").click()
    expect(page.locator(".messages")).to_contain_text("Ended the override")


@drives(
    "now: override_slo End the override", "declare: slo", "slo_one: retire_slo Take it out of force"
)
def test_an_objective_is_declared_by_its_form_and_taken_out_of_force(admin_page: Page):
    """SLO-5: what the form refuses stays typed in."""
    page = admin_page
    page.goto("/slo")
    name = "answers-begin" if scripts(page) else "answers-begin-2"
    page.get_by_role("link", name="Declare an objective").click()
    page.get_by_label("Name", exact=False).first.fill(name)
    page.get_by_label("What is promised").fill("Answers begin in time")
    page.get_by_label("What is measured").select_option("ttft")
    page.locator("[name=reason]").fill("the team's promise")
    page.get_by_role("button", name="Declare").click()
    expect(page.get_by_text("A latency needs one.")).to_be_visible()
    expect(page.get_by_label("What is promised")).to_have_value("Answers begin in time")
    page.locator("[name=threshold_ms]").fill("900")
    page.get_by_role("button", name="Declare").click()
    page.wait_for_url(f"**/slo/objective/{name}")
    expect(page.locator(".messages")).to_contain_text(f"Declared {name}@1")
    act(page, "Take it out of force", "a trial")
    expect(page.locator(".messages")).to_contain_text(f"Declared {name}@2")
    page.goto("/slo")
    expect(page.get_by_text("Answers begin in time")).to_have_count(0)


@drives("rollout: decide_rollout Promote")
def test_a_rollout_is_promoted_once_nothing_burns_and_only_by_its_name(
    operator_page: Page, console: Console
):
    """REL-4: refused while a budget burns and without the name; then the rollout is over."""
    page = operator_page
    path = f"/releases/rollout/{ROLLOUT}"
    page.goto(path)
    if page.get_by_text("Promote", exact=True).count():
        promote(page, ROLLOUT)
        expect(page.get_by_role("alert")).to_contain_text("ROLLOUTS_FROZEN")
        calm(console)
        page.get_by_role("link", name="Back").click()
        promote(page, "assistant-v3")
        expect(page.get_by_role("alert")).to_contain_text("CONFIRMATION_MISSING")
        page.go_back()
        promote(page, ROLLOUT)
        page.wait_for_url(f"**{path}")
    page.reload()
    expect(page.locator(".page-head .chip")).to_have_text("promoted")
    expect(page.get_by_role("region", name="Table of steps")).to_contain_text("every window passed")
    expect(
        page.locator("summary", has_text=re.compile("^(Promote|Hold|Roll back)$"))
    ).to_have_count(0)


def promote(page: Page, name: str) -> None:
    form = page.locator("details.act", has=page.get_by_text("Promote", exact=True))
    if form.get_attribute("open") is None:
        form.locator("summary").click()
    form.get_by_label("Reason").fill("every window passed")
    form.get_by_label("to confirm").fill(name)
    form.get_by_role("button", name="Promote").click()


@drives(
    "declare: evaluations-import", "declare: release", "declare: rollout",
    "rollout: decide_rollout Roll back", "rollout: decide_rollout End unpromoted",
)  # fmt: skip
def test_a_release_is_measured_declared_started_and_taken_back(operator_page: Page):
    """REL-1, REL-3: the gate opens by evidence; the plan is checked before it is declared."""
    page = operator_page
    page.goto("/releases/declare")
    way, end, state = (
        ("a", "Roll back", "rolled back") if scripts(page) else ("b", "End unpromoted", "ended")
    )
    release, rollout = f"rel-compact-{way}", f"compact/{way}"
    result = {
        "evaluation_id": f"core/{way}", "suite": f"core-{way}", "identity_id": "mid_e552",
        "score_milli": 912, "passed": True, "measured_at": "2026-11-01T12:00:00Z",
        "evidence": "runs/4711",
    }  # fmt: skip
    page.get_by_label("Or its text").fill(json.dumps(result))
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".messages")).to_contain_text("Imported 1 of 1")
    page.locator("[name=release_id]").fill(release)
    page.locator("[name=identity_id]").select_option("mid_e552")
    for box in page.locator("input[name^=suite_]").all():
        box.fill(f"core-{way}")
    page.locator("[name=reason]").fill("smaller and as good")
    page.get_by_role("button", name="Declare").click()
    page.wait_for_url("**/releases")
    expect(page.get_by_text(f"Gate of {release}: open")).to_be_visible()
    page.get_by_role("link", name="Start a rollout").click()
    page.locator("[name=rollout_id]").fill(rollout)
    page.locator("[name=release_id]").select_option(release)
    page.locator("[name=logical_model]").select_option("assistant")
    for route in ("fast-v2", "fast-v3"):
        page.locator(f"[name=baseline_routes][value={route}]").check()
    page.locator("[name=canary_routes][value=compact-v1]").check()
    page.locator("[name=reason]").fill("half the price")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("It could be started now. Nothing is written yet.")).to_be_visible()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(f"**/releases/rollout/{rollout}")
    expect(page.locator(".page-head .chip")).to_have_text("running")
    act(page, end, "the users complain")
    expect(page.locator(".page-head .chip")).to_have_text(state)
    page.go_back()
    page.reload()
    expect(page.locator("summary", has_text=end)).to_have_count(0)


@pytest.mark.parametrize("mode", MODES)
@drives(
    "reconciliation: reconciliation-import", "reconciliation: reconcile",
    "reconciliation_run: reconcile", "reconciliation_run: sign_reconciliation Sign",
    "reconciliation_run: lock_period Lock the period",
)  # fmt: skip
def test_a_month_is_imported_compared_signed_by_a_second_person_and_locked(
    contexts: Contexts, console: Console, mode: str
):
    """REC-1 to REC-3: whoever imported and compared it can't sign it."""
    live = mode == MODES[0]
    provider = "cloud-live" if live else "cloud-plain"
    for page in watched(contexts("operator", live), console):
        page.goto("/reconciliation")
        page.get_by_text("Import a report").click()
        file: Any = {"name": "costs.json", "mimeType": "application/json",
                     "buffer": costs((0, usual(3)))}  # fmt: skip
        page.get_by_label("Files").set_input_files(file)
        page.get_by_label("Provider, where").fill(provider)
        page.get_by_role("button", name="Import", exact=True).click()
        page.get_by_text("Reconcile a period").click()
        form = page.locator("form", has=page.get_by_label("Period: a month"))
        form.locator("[name=provider]").select_option(provider)
        form.get_by_label("Period: a month").fill("2026-09")
        plan = msgspec.structs.replace(PLAN, provider=provider)
        form.get_by_label("Plan as JSON").fill(msgspec.json.encode(plan).decode())
        form.get_by_role("button", name="Reconcile").click()
        books = page.get_by_role("region", name=f"Runs of {provider}")
        books.locator("th a").first.click()
        page.wait_for_url("**/reconciliation/rec_**")
        page.locator("summary", has_text="Run it again").click()
        again = page.locator("form", has=page.get_by_label("Plan: what is compared"))
        run = page.url
        again.get_by_role("button", name="Run it again").click()
        expect(page.get_by_role("alert")).to_contain_text("SAME_RUN")
        page.goto(run)
        act(page, "Sign", "looks right")
        expect(page.get_by_role("alert")).to_contain_text("SECOND_PERSON")
    for page in watched(contexts("admin", live), console):
        page.goto(run)
        act(page, "Sign", "compared with the console of the provider")
        expect(page.get_by_text("Signed by console:admin").first).to_be_visible()
        page.reload()
        act(page, "Lock the period", "closed")
        expect(page.locator(".page-head")).to_contain_text("locked")
        page.go_back()
        page.reload()
        expect(page.locator("summary", has_text=re.compile("Sign|Lock"))).to_have_count(0)


@drives("rates: draft_rates", "rates: publish_rates Publish this draft")
def test_a_price_is_drafted_compared_and_published(admin_page: Page):
    """CST-7: what differs is seen before it is published; a published table is drafted no more."""
    page = admin_page
    page.goto("/rates/version/rates-2025-11")
    version, price, said = (
        ("rates-live", 9_500_000, "9.50") if scripts(page) else ("rates-plain", 9_750_000, "9.75")
    )
    page.get_by_text("Draft a new table from this").click()
    text = page.get_by_label("Rates, as TOML")
    known = text.input_value()
    dearer = re.sub(r"(output_micro_per_mtok = )[0-9_]+", rf"\g<1>{price}", known, count=1)
    assert dearer != known
    page.get_by_label("Version").fill(version)
    text.fill(dearer)
    page.get_by_label("Note").fill("the new contract")
    page.get_by_role("button", name="Keep the draft").click()
    page.wait_for_url("**/rates")
    page.get_by_role("link", name=f"What differs in {version}").click()
    expect(page.get_by_role("region", name="Table of differences")).to_contain_text(said)
    page.goto(f"/rates/version/{version}")
    act(page, "Publish this draft", "signed by both sides")
    expect(page.locator(".messages")).to_contain_text(version)
    page.goto("/rates")
    table = page.get_by_role("region", name="Table of published rate tables")
    expect(table).to_contain_text(version)
    page.go_back()
    page.reload()
    expect(page.locator("summary", has_text="Publish this draft")).to_have_count(0)


@drives("reconciliation_run: resolve_unknown")
def test_an_unknown_is_settled_by_what_the_invoice_says(contexts: Contexts, console: Console):
    """REC-2: from the run's own table; once it is settled the form is gone, after a reload too."""
    for page in watched(contexts("operator", True), console):
        page.goto(console.run())
        offered = page.locator("summary", has_text="Settle the unknown")
        before = offered.count()
        act(page, "Settle the unknown", "the invoice has nothing of it", button="Settle")
        expect(page.locator(".messages")).to_be_visible()
        page.reload()
        expect(offered).to_have_count(before - 1)


FILTERS = (  # page, name of a field, what is filled in
    ("/audit-log", "actor", "evaluator"),
    ("/costs/bridge", "within", "24h"),
    ("/rates/history", "key", "fast-v2"),
    ("/rates/version/rates-2025-11", "key", "fast"),
    ("/slo/slices", "by", "tenant"),
)


@drives(
    "audit: audit-log filter", "bridge: bridge filter", "rates_history: rates-history filter",
    "rates: table filter", "slo_slices: slo-slices filter",
    "receipt: receipt filter",
    "reconciliation: focus filter", "page receipt-proof",
)  # fmt: skip
def test_every_filter_stands_in_the_address_and_back_takes_it_away(page: Page, console: Console):
    for path, name, value in FILTERS:
        part = f"{name}={value}"
        page.goto(path)
        field = page.locator(f"main form.filters [name={name}]").first
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
        if not (scripts(page) and page.locator("form[hx-get]").count()):
            page.locator("main form.filters .go .primary").first.click()
        else:
            field.press("Tab")
        page.wait_for_url(f"**{part}**")
        page.reload()
        expect(field).to_have_value(value)
        page.go_back()
        expect(page.locator("h1")).to_be_visible()
        assert part not in page.url
    page.goto(console.receipt("status = 'completed'"))
    page.get_by_role("button", name="What would have been?").click()
    page.wait_for_url("**under=policy-**#again")
    proof = page.get_by_role("link", name="Proof", exact=True).get_attribute("href") or ""
    assert page.request.get(proof).json()
    page.goto("/reconciliation")
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download CSV").click()
    assert begun.value.path().read_text().startswith("AvailabilityZone,")
