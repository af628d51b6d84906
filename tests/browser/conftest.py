"""A running console and a browser that watches for errors and foreign requests.

One console, one browser, and one page for each role, with scripts and without, serve the tests of
this folder. Nobody but the tests of the login itself fills in its form: the console's sample comes
with a session of each role.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser import chromium
from tests.sample_console import LOGINS, Console, fill_console, serving

ACTION_LIMIT_MS = 20_000  # of one step in a page
SIZE_PX = (1440, 900)
REQUESTS = 300
MADE_ANEW_S = 300
MODES = ("with JavaScript", "without JavaScript")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a copy of a filled console's files; they are made once for all processes of a run.

    What is shown of "the last 15 minutes" has to be there, so they are made anew after some.
    """
    of_run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_run = of_run.parent

    def copy(name: str) -> Path:
        made = of_run / f"console-{int(time.time()) // MADE_ANEW_S}"
        with made.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (made / LOGINS).exists():
                fill_console(made, count=REQUESTS)
        folder = tmp_path_factory.mktemp(name) / "console"
        shutil.copytree(made, folder)
        return folder

    return copy


@pytest.fixture(scope="package")
def console(filled: Callable[[str], Path]) -> Iterator[Console]:
    chromium.require()
    with serving(filled("console")) as running:
        yield running


@pytest.fixture(scope="module")
def acting(filled: Callable[[str], Path]) -> Iterator[Console]:
    """A console of one file's tests that change something: what is settled in it is over."""
    chromium.require()
    with serving(filled("acting")) as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser of this folder: while it lives, this thread counts as asynchronous to Django."""
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

    def over(self, page: Page) -> Callable[[], None]:
        """Watch it until the answer is called."""
        heard: tuple[tuple[Any, Callable[[Any], None]], ...] = (
            ("console", lambda said: self._said(said.type, said.text, said.location["url"])),
            ("pageerror", lambda error: self.faults.append(f"error: {error}")),
            ("request", lambda request: self._asked(request.url)),
        )
        for event, hear in heard:
            page.on(event, hear)

        def over() -> None:
            for event, hear in heard:
                page.remove_listener(event, hear)

        return over

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


Made = dict[tuple[str, str, bool], BrowserContext]


@pytest.fixture(scope="package")
def made(browser: Browser) -> Made:
    """The contexts by console, role and whether they have scripts; closed with the browser."""
    return {}


@pytest.fixture
def contexts(made: Made, browser: Browser, console: Console) -> Contexts:
    """The context of a role, with scripts or without: logged in, and kept."""

    def context(role: str, scripts: bool) -> BrowserContext:
        key = (console.base_url, role, scripts)
        if key not in made:
            made[key] = logged_in(browser, console, role, scripts=scripts)
        return made[key]

    return context


def logged_in(browser: Browser, console: Console, role: str, *, scripts: bool) -> BrowserContext:
    """A context of the role's own session."""
    width, height = SIZE_PX
    context = browser.new_context(
        base_url=console.base_url,
        java_script_enabled=scripts,
        viewport={"width": width, "height": height},
    )
    context.set_default_timeout(ACTION_LIMIT_MS)
    # A violation of the policy is an event of the document, whatever the console shows of it.
    context.add_init_script(
        "document.addEventListener('securitypolicyviolation', e => "
        "console.error('csp: ' + e.violatedDirective + ' ' + e.blockedURI))"
    )
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
    """The context's page, as it was opened: it has to end without a fault."""
    page = context.pages[0] if context.pages else context.new_page()
    page.set_viewport_size({"width": SIZE_PX[0], "height": SIZE_PX[1]})
    watch = Watch(base_url=console.base_url)
    over = watch.over(page)
    yield page
    over()
    for another in context.pages[1:]:
        another.close()
    assert watch.faults == []


def runs_scripts(page: Page) -> bool:
    return page.locator("form[hx-get], [hx-get]").count() > 0 and bool(
        page.evaluate("typeof window.htmx !== 'undefined'")
    )


def axe_source() -> str:
    """The script of axe-core that its package brings along."""
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
