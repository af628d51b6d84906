"""Every page in chromium: axe in both themes, widths, print, its tables as files, back and reload.

One load of a page serves all of it, as an admin, who sees every form.
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
CONTRAST = "color-contrast"  # of two alike both have it or neither
ROWS = "tbody > tr, li, svg *"  # of which one can stand for others by every rule
WIDTHS_PX = (2560, 768, 390)


@pytest.mark.parametrize("name", (*PATHS, *REFUSED, *FORMS))
def test_a_page_is_sound_in_both_themes_and_at_every_width(
    contexts: Contexts, console: Console, name: str
):
    for page in watched(contexts("admin", True), console):
        page.goto(path_of(console, name))
        heading = page.locator("h1").inner_text()
        _saves_what_it_shows(page)
        for width in WIDTHS_PX:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        _prints(page)
        _keep_one_of_each_make(page, ROWS)
        page.evaluate(axe_source())
        assert violations(page, {"type": "rule", "values": OF_WIDTH}) == []
        page.set_viewport_size({"width": SIZE_PX[0], "height": SIZE_PX[1]})
        assert violations(page, {"type": "tag", "values": RULES}, but=CONTRAST) == []
        _keep_one_of_each_make(page, "body *")
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            assert violations(page, {"type": "rule", "values": [CONTRAST]}) == []
        page.reload()
        expect(page.locator("h1")).to_have_text(heading)
        page.goto("about:blank")
        page.go_back()
        expect(page.locator("h1")).to_have_text(heading)


def _keep_one_of_each_make(page: Page, among: str) -> None:
    """Axe looks at an element for milliseconds; tables, lists and charts have hundreds alike.

    Alike are siblings whose elements have the same names, classes, styles, roles and states, and
    text or none in the same places. That no id stands on the page twice is looked at before.
    """
    assert page.evaluate(ONE_OF_EACH_MAKE, among) == []


ONE_OF_EACH_MAKE = """among => {
    const ids = [...document.querySelectorAll('[id]')].map(each => each.id)
    const decides = name => /^(class|style|role|type|aria-(?!label|describedby))/.test(name)
    const make = each => [
        each.tagName,
        ...[...each.attributes].map(one => one.name + (decides(one.name) ? one.value : '')),
        ...[...each.childNodes].map(
            node => node.nodeType === 1 ? make(node) : !!node.textContent.trim()),
    ].join()
    const known = new Map()
    for (const each of document.querySelectorAll(among)) {
        const siblings = known.get(each.parentNode) ?? new Set()
        const its = make(each)
        if (siblings.has(its)) each.remove()
        known.set(each.parentNode, siblings.add(its))
    }
    return ids.filter((id, place) => ids.indexOf(id) !== place)
}"""


def violations(page: Page, which: dict[str, object], *, but: str = "") -> list[str]:
    result = page.evaluate(
        "([which, but]) => axe.run(document, {runOnly: which, resultTypes: ['violations'], "
        "rules: but ? {[but]: {enabled: false}} : {}})",
        [which, but],
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
