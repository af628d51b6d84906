"""`python -m tests.screenshots`: every page at 1440 and 390 px, light and dark, in var/screenshots.

`--base-url`, `--username` and `--password` photograph a console that runs already; `--docs` makes
the few pictures of the README, the first screen of each, in docs/screenshots.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.browser.chromium import launch
from tests.sample_console import ROOT, python, running_console, served
from tests.sample_scenarios import lead_to

WIDTHS_PX = (1440, 390)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
DOCS: tuple[tuple[str, str, Literal["light", "dark"]], ...] = (  # page, file, theme
    ("degraded", "receipt", "light"),
    ("costs", "costs", "light"),
    ("releases", "releases", "dark"),
    ("receipts", "receipts", "light"),
)
FAULT = "prefill-queue"
DOCS_SIZE: ViewportSize = {"width": 1280, "height": 860}
KINDS = {
    "receipt": "status=completed",
    "degraded": "status=completed&degraded=yes",
    "refused": "status=rejected",
}
NAMED = {  # pages whose path isn't their name
    "policy": "/policies/revision/policy-7",
    "policy-draft": "/policies/revision/policy-8",
    "policies-compare": "/policies/compare?before=policy-7&after=policy-8",
    "rate-table": "/rates/version/rates-2027-02?within=24h",
    "rates-compare": "/rates/compare?before=rates-2025-11&after=rates-2027-01",
    "rates-history": "/rates/history?key=fast-v2",
    "audit": "/health?audit=quick",
    "bridge": "/costs/bridge?within=1h",
    "costs-by-hour": "/costs?by=hour&then=tenant&zone=%2B05:30",
    "tenant": "/tenants/acme",
}
PAGES = (
    "now", "slo/objective/interactive-queue", "slo/slices", "releases/rollout/assistant-v3/1",
    "receipts", "receipt", "degraded", "refused", "empty", "costs", "costs-by-hour", "bridge",
    "slo", "releases", "unknowns", "tenants", "tenant", "audit-log", "display", "reconciliation",
    "reconciliation-run", "routes", "policies", "policy", "policy-draft", "policies-compare",
    "rates", "rate-table", "rates-compare", "rates-history", "health", "audit",
    "slo/declare", "releases/declare", "releases/start",  # as an admin: `--role admin`
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "var" / "screenshots")
    parser.add_argument("--base-url")
    parser.add_argument("--username", default="viewer")
    parser.add_argument("--password", default="")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--role", default="viewer", help="who looks at a console of its own")
    parser.add_argument("--pages", nargs="*", default=PAGES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        if options.base_url:
            _shoot(browser, options.base_url, options.username, options.password, options)
            return
        with tempfile.TemporaryDirectory() as folder, running_console(Path(folder)) as console:
            password = console.passwords[options.role]
            _shoot(browser, console.base_url, options.role, password, options)


def _shoot(
    browser: Browser, base_url: str, username: str, password: str, options: argparse.Namespace
) -> None:
    if options.docs:
        _shoot_docs(browser, base_url, username, password)
        return
    for theme in THEMES:
        context = browser.new_context(color_scheme=theme, base_url=base_url)
        page = context.new_page()
        if theme == "light":
            _photograph(page, "/login", "login", theme, options.out)
        log_in(page, username, password)
        for name in options.pages:
            path = _path(page, name)
            if path is not None:
                _photograph(page, path, name, theme, options.out)
        context.close()


def _shoot_docs(browser: Browser, base_url: str, username: str, password: str) -> None:
    folder = ROOT / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    _shoot_fault(browser, folder / "now.png")
    for name, file, theme in DOCS:
        context = browser.new_context(color_scheme=theme, base_url=base_url, viewport=DOCS_SIZE)
        page = context.new_page()
        log_in(page, username, password)
        page.goto(_path(page, name) or "/")
        page.evaluate("document.fonts.ready")
        page.screenshot(path=folder / f"{file}.png")
        context.close()


def _shoot_fault(browser: Browser, file: Path) -> None:
    """Now, of a fleet with a fault: the alert, its diagnosis and the receipts that prove it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logins = json.loads(python(folder, "-m", "tests.sample_scenarios", "4", FAULT))
        lead_to(folder, FAULT)
        with served(folder) as base_url:
            context = browser.new_context(base_url=base_url, viewport=DOCS_SIZE)
            page = context.new_page()
            log_in(page, "viewer", logins["passwords"]["viewer"])
            page.goto(f"/now?within=5m&at={logins['ends']}")
            page.evaluate("document.fonts.ready")
            page.screenshot(path=file)
            context.close()


def log_in(page: Page, username: str, password: str) -> None:
    page.goto("/login")
    page.get_by_label("Username").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/now")


def _path(page: Page, name: str) -> str | None:
    """The path of a page; of a receipt, that of the newest one of its kind."""
    if name == "empty":
        return "/receipts?tenant=nobody"
    if name in NAMED:
        return NAMED[name] if page.request.get(NAMED[name]).ok else None
    if name == "reconciliation-run":
        page.goto("/reconciliation")
        runs = page.locator("tbody th a")
        return runs.first.get_attribute("href") if runs.count() else None
    if name in KINDS:
        page.goto(f"/receipts?{KINDS[name]}")
        links = page.locator("tbody th a")
        return links.first.get_attribute("href") if links.count() else None
    answer = page.request.get(f"/{name}")
    return f"/{name}" if answer.ok else None


def _photograph(page: Page, path: str, name: str, theme: str, out: Path) -> None:
    for width in WIDTHS_PX:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(path)
        page.evaluate("document.fonts.ready")
        page.screenshot(path=out / f"{name.replace('/', '-')}-{width}-{theme}.png", full_page=True)


if __name__ == "__main__":
    main()
