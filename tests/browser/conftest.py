"""A running console and a browser that watches for errors and foreign requests."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser import chromium
from tests.sample_console import Console, running_console
from tests.screenshots import log_in

ACTION_LIMIT_MS = 8_000  # of one step in a page


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    chromium.require()
    with running_console(tmp_path_factory.mktemp("console"), count=600) as running:
        yield running


@pytest.fixture(scope="module")
def browser(console: Console) -> Iterator[Browser]:
    """One browser a module: while it lives, this thread counts as asynchronous to Django."""
    with sync_playwright() as playwright:
        launched = chromium.launch(playwright)
        yield launched
        launched.close()


REFUSED_QUESTION = "older=nowhere"
"""In the URL of the page that is asked something it refuses, with status 400."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What went wrong on the pages of a context: it has to stay empty."""

    faults: list[str] = field(default_factory=list)
    base_url: str = ""

    def over(self, page: Page) -> None:
        page.on("console", lambda said: self._said(said.type, said.text, said.location["url"]))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda request: self._asked(request.url))
        # A violation of the policy is an event of the document, whatever the console shows of it.
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', e => "
            "console.error('csp: ' + e.violatedDirective + ' ' + e.blockedURI))"
        )

    def _said(self, kind: str, text: str, url: str) -> None:
        if REFUSED_QUESTION in url and "400 (Bad Request)" in text:
            return  # the browser notes the status that the page means to have
        if "422 (Unprocessable" in text:
            return  # likewise of a form that was refused
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.base_url, "data:")):
            self.faults.append(f"request to another host: {url}")


@pytest.fixture(params=["with JavaScript", "without JavaScript"])
def page(request: pytest.FixtureRequest, browser: Browser, console: Console) -> Iterator[Page]:
    """A logged-in page, once with and once without JavaScript; any fault fails the test."""
    scripts = request.param == "with JavaScript"
    yield from _page(browser, console, java_script_enabled=scripts)


@pytest.fixture
def live_page(browser: Browser, console: Console) -> Iterator[Page]:
    """A logged-in page with JavaScript."""
    yield from _page(browser, console, java_script_enabled=True)


@pytest.fixture(params=["with JavaScript", "without JavaScript"])
def operator_page(
    request: pytest.FixtureRequest, browser: Browser, console: Console
) -> Iterator[Page]:
    """As `page`, logged in as an operator: every action has to work without JavaScript, too."""
    scripts = request.param == "with JavaScript"
    yield from _page(browser, console, java_script_enabled=scripts, role="operator")


def _page(
    browser: Browser, console: Console, *, java_script_enabled: bool, role: str = "viewer"
) -> Iterator[Page]:
    context = browser.new_context(
        base_url=console.base_url,
        java_script_enabled=java_script_enabled,
        viewport={"width": 1440, "height": 900},
    )
    context.set_default_timeout(ACTION_LIMIT_MS)
    opened = context.new_page()
    watch = Watch(base_url=console.base_url)
    watch.over(opened)
    log_in(opened, role, console.passwords[role])
    yield opened
    context.close()
    assert watch.faults == []


def axe_source() -> str:
    import axe_core_python

    return (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
