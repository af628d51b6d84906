"""A running console and a browser that watches for errors and foreign requests.

One console a run and one browser a module; nobody but the tests of the login itself fills in its
form: the console's sample comes with a session of each role.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser import chromium
from tests.sample_console import Console, running_console

ACTION_LIMIT_MS = 20_000  # of one step in a page
SIZE_PX = (1440, 900)
MODES = ("with JavaScript", "without JavaScript")


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    chromium.require()
    with running_console(tmp_path_factory.mktemp("console"), count=300) as running:
        yield running


@pytest.fixture(scope="session")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console of the tests that change something: what is published or settled in it is over."""
    chromium.require()
    with running_console(tmp_path_factory.mktemp("acting"), count=40) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser a module: while it lives, this thread counts as asynchronous to Django."""
    chromium.require()
    with sync_playwright() as playwright:
        launched = chromium.launch(playwright)
        yield launched
        launched.close()


REFUSED = ("older=nowhere", "/receipts/req_unknown", "/display")
"""In the URLs of pages that are asked for something they refuse, with a status of 400 to 422."""


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
        if "responded with a status of 4" in text and any(part in url for part in REFUSED):
            return  # the browser notes the status that the page means to have
        if "422 (Unprocessable" in text:
            return  # likewise of a form that was refused
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.base_url, "data:")):
            self.faults.append(f"request to another host: {url}")


Contexts = Callable[[str, bool], BrowserContext]


@pytest.fixture(scope="module")
def contexts(browser: Browser, console: Console) -> Iterator[Contexts]:
    """The context of a role, with scripts or without: logged in, and kept for the module."""
    made: dict[tuple[str, bool], BrowserContext] = {}

    def context(role: str, scripts: bool) -> BrowserContext:
        if (role, scripts) not in made:
            made[role, scripts] = logged_in(browser, console, role, scripts=scripts)
        return made[role, scripts]

    yield context
    for each in made.values():
        each.close()


def logged_in(browser: Browser, console: Console, role: str, *, scripts: bool) -> BrowserContext:
    """A context of the role's own session."""
    width, height = SIZE_PX
    context = browser.new_context(
        base_url=console.base_url,
        java_script_enabled=scripts,
        viewport={"width": width, "height": height},
    )
    context.set_default_timeout(ACTION_LIMIT_MS)
    cookie = {"name": "sessionid", "value": console.sessions[role], "url": console.base_url}
    context.add_cookies([cookie])  # type: ignore[list-item]  # its TypedDict, written as a dict
    return context


@pytest.fixture(params=MODES)
def page(request: pytest.FixtureRequest, contexts: Contexts, console: Console) -> Iterator[Page]:
    """A viewer's page, once with and once without JavaScript; any fault fails the test."""
    yield from watched(contexts("viewer", request.param == MODES[0]), console)


@pytest.fixture
def live_page(contexts: Contexts, console: Console) -> Iterator[Page]:
    """A viewer's page with JavaScript."""
    yield from watched(contexts("viewer", True), console)


@pytest.fixture(params=MODES)
def operator_page(
    request: pytest.FixtureRequest, contexts: Contexts, console: Console
) -> Iterator[Page]:
    """As `page`, of an operator: every action has to work without JavaScript, too."""
    yield from watched(contexts("operator", request.param == MODES[0]), console)


@pytest.fixture(params=MODES)
def admin_page(
    request: pytest.FixtureRequest, contexts: Contexts, console: Console
) -> Iterator[Page]:
    """As `operator_page`, of an admin."""
    yield from watched(contexts("admin", request.param == MODES[0]), console)


def watched(context: BrowserContext, console: Console) -> Iterator[Page]:
    """A page of the context that has to end without a fault."""
    opened, watch = context.new_page(), Watch(base_url=console.base_url)
    watch.over(opened)
    yield opened
    opened.close()
    assert watch.faults == []


def runs_scripts(page: Page) -> bool:
    return page.locator("form[hx-get], [hx-get]").count() > 0 and bool(
        page.evaluate("typeof window.htmx !== 'undefined'")
    )


def axe_source() -> str:
    """The script of axe-core that its package brings along."""
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
