"""Nothing can be done in the console that no browser test does; and every page is opened in one."""

import importlib
from pathlib import Path

from django.urls import get_resolver, resolve

from tests.browser.driven import things
from tests.console_pages import FORMS, FOUND, PATHS, RUN

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))


def driven() -> dict[str, list[str]]:
    """By what is done, the tests that do it."""
    found: dict[str, list[str]] = {}
    for module in (importlib.import_module(f"tests.browser.{name}") for name in MODULES):
        for name, test in vars(module).items():
            for thing in getattr(test, "drives", ()):
                found.setdefault(thing, []).append(name)
    return found


def test_everything_that_a_page_offers_is_done_in_a_browser():
    assert things() - set(driven()) == set()


def test_no_test_names_what_no_page_offers():
    pages = {f"page {pattern.name}" for pattern in get_resolver().url_patterns}
    assert set(driven()) - things() - pages == set()


def test_every_url_is_opened_in_a_browser():
    """By the sweep of all pages, by a form that leads there, or by the test that says so."""
    swept = {_name(path) for path in (*PATHS, *FORMS)} | {"home"}
    formed = {thing.partition(": ")[2].removesuffix(" filter") for thing in driven()}
    said = {thing.removeprefix("page ") for thing in driven() if thing.startswith("page ")}
    every = {str(pattern.name) for pattern in get_resolver().url_patterns}
    assert every - swept - formed - said - {"act"} == set()


def _name(path: str) -> str:
    first = path.partition("?")[0]
    if first in FOUND or first == RUN:
        return "receipt" if first in FOUND else "reconciliation-run"
    return str(resolve(first).url_name)
