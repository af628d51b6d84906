"""What can be done in the console, read from its templates, and which browser test does it.

A thing to do is one text: "now: approve_action Approve" is a form of `{% act %}`, "unknowns:
resolve_unknown" one that is written out, "costs: filter" a form that only asks. `drives` names on a
test what it does in a browser; `test_every_action.py` compares the two.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gateway.pages.rollout_view import DECISIONS
from tests.sample_console import ROOT

TEMPLATES = ROOT / "templates"
_ACT = re.compile(r'{% act "([a-z_]+)" ("[^"]*"|\w+)')
_FORM = re.compile(r"<form\b[^>]*>")
_TARGET = re.compile(r"{% url '([a-z-]+)'(?: '([a-z_]+)')?")
_GENERAL = ("_act.html", "_compare.html")  # what others include, with an address of theirs

Test = TypeVar("Test", bound=Callable[..., object])


def drives(*things: str) -> Callable[[Test], Test]:
    """Marks a browser test with the things that it does."""

    def marked(test: Test) -> Test:
        test.drives = things  # type: ignore[attr-defined]  # read by what the test's module holds
        return test

    return marked


def things() -> frozenset[str]:
    """Everything that a template offers to do."""
    found = set[str]()
    for path in TEMPLATES.rglob("*.html"):
        name = str(path.relative_to(TEMPLATES))
        if name not in _GENERAL:
            place = name.partition("/")[0] if "/" in name else name.strip("_").partition(".")[0]
            found |= {f"{place}: {one}" for one in _offered(path)}
    return frozenset(found)


def _offered(path: Path) -> set[str]:
    text = path.read_text()
    found = set[str]()
    for operation, label in _ACT.findall(text):
        labels = [label.strip('"')]
        if not label.startswith('"'):  # the template's loop: one form for each decision
            labels = [words for state in DECISIONS.values() for _, words, _ in state]
        found |= {f"{operation} {one}" for one in labels}
    for tag in _FORM.findall(text):
        if 'method="dialog"' in tag:
            continue
        target = _TARGET.search(tag)
        named = (target.group(2) or target.group(1)) if target else path.stem
        found.add(named if 'method="post"' in tag else f"{named} filter")
    return found
