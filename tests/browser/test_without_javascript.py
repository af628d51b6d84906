"""Every page in chromium without JavaScript: what it shows stands there on the way back, too."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Contexts, watched
from tests.console_pages import PATHS, REFUSED, path_of
from tests.sample_console import Console

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", (*PATHS, *REFUSED))
def test_a_page_says_the_same_without_javascript(contexts: Contexts, console: Console, name: str):
    for page in watched(contexts("viewer", False), console):
        page.goto(path_of(console, name))
        heading, tables = page.locator("h1").inner_text(), page.locator("main table").count()
        page.goto("about:blank")
        page.go_back()
        expect(page.locator("h1")).to_have_text(heading)
        assert page.locator("main table").count() == tables
