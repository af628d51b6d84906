"""Every page in chromium: axe in both themes, widths, print, its tables as files, back and reload.

One load of a page serves all of it, as an admin, who sees every form; without JavaScript once more.
"""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SIZE_PX, Contexts, axe_source, watched
from tests.console_pages import FORMS, PATHS, REFUSED, path_of
from tests.sample_console import Console

pytestmark = pytest.mark.browser

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_WIDTH = ["target-size", "scrollable-region-focusable"]  # what a narrow window can break
WIDTHS_PX = (2560, 768, 390)
EVERY = (*PATHS, *REFUSED)


@pytest.mark.parametrize("name", (*EVERY, *FORMS))
def test_a_page_is_sound_in_both_themes_and_at_every_width(
    contexts: Contexts, console: Console, name: str
):
    for page in watched(contexts("admin", True), console):
        path = path_of(console, name)
        page.goto(path)
        heading = page.locator("h1").inner_text()
        page.evaluate(axe_source())
        assert violations(page, {"type": "tag", "values": RULES}) == []
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        assert violations(page, {"type": "rule", "values": ["color-contrast"]}) == []
        for width in WIDTHS_PX:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page, {"type": "rule", "values": OF_WIDTH}) == []
        _prints(page)
        _saves_what_it_shows(page)
        page.set_viewport_size({"width": SIZE_PX[0], "height": SIZE_PX[1]})
        page.reload()
        expect(page.locator("h1")).to_have_text(heading)
        page.goto("/display?next=/")
        page.go_back()
        expect(page.locator("h1")).to_have_text(heading)


def violations(page: Page, which: dict[str, object]) -> list[str]:
    result = page.evaluate(
        "which => axe.run(document, {runOnly: which, resultTypes: ['violations']})", which
    )
    return [
        f"{fault['id']}: {node['html'][:160]} ({node.get('failureSummary', '')[:200]})"
        for fault in result["violations"]
        for node in fault["nodes"][:2]
    ]


def _prints(page: Page) -> None:
    """Paper has the content alone."""
    page.emulate_media(media="print")
    for left_out in (".rail", ".filters", ".saved", ".act"):
        assert page.locator(f"{left_out}:visible").count() == 0
    expect(page.locator("h1")).to_be_visible()
    page.emulate_media(media="screen")


def _saves_what_it_shows(page: Page) -> None:
    """Each table has its links, of a name of its own; the first one's JSON has its rows."""
    names = page.locator(".saved").evaluate_all("all => all.map(each => each.dataset.table)")
    assert len(set(names)) == len(names) == page.locator("main table").count()
    if names:
        table = page.locator("table", has=page.locator("xpath=following-sibling::*")).first
        link = page.locator(".saved a").nth(1).get_attribute("href") or ""
        saved = page.request.get(link).json()
        assert saved["table"] == names[0]
        assert len(saved["rows"]) == table.locator("tbody tr").count() > 0
        assert not any(re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", each or "")
                       for row in saved["rows"] for each in row.values())  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_a_page_says_the_same_without_javascript(contexts: Contexts, console: Console, name: str):
    for page in watched(contexts("viewer", False), console):
        path = path_of(console, name)
        page.goto(path)
        heading, tables = page.locator("h1").inner_text(), page.locator("main table").count()
        page.reload()
        page.goto("/display?next=/")
        page.go_back()
        expect(page.locator("h1")).to_have_text(heading)
        assert page.locator("main table").count() == tables
