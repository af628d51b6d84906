"""Where each key of a TOML text stands: what tomllib keeps to itself. Pure.

The text has been read by tomllib before, so it is valid and only keys have to be found: strings,
comments and brackets are stepped over, and a key's own text is read by tomllib again.
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.fleet_file.named import Path

_STRINGS: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # each a whole string: up to two quotes may end one of three
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_GAP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_VALUE: Final = re.compile(r"[^,\]}#\n]*")
_SYNTAX: Final = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)")


class Place(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class BadToml(ValueError):
    """A text that is no TOML; the message says what, and `place` where."""

    def __init__(self, what: str, place: Place) -> None:
        super().__init__(f"{place}: {what}")
        self.what, self.place = what, place


def parse(text: str) -> tuple[dict[str, Any], dict[Path, Place]]:
    """(the tree of a TOML text, where each of its keys stands).

    Raises BadToml, and RecursionError for a text that is nested too deeply.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _SYNTAX.fullmatch(str(error))
        if found is None:  # "at end of document"
            end = _place(text, len(text))
            raise BadToml(str(error).removesuffix(" (at end of document)"), end) from None
        place = Place(int(found["line"]), int(found["column"]))
        raise BadToml(found["what"], place) from None
    scanner = _Scanner(text.replace("\r\n", "\n"))  # as tomllib does
    scanner.document()
    starts = [0, *(found.end() for found in re.finditer("\n", scanner.text))]
    return tree, {path: _placed(starts, at) for path, at in scanner.found.items()}


def nearest(places: Mapping[Path, Place], path: Path) -> Place:
    """Where a path stands, or the nearest of what holds it; the top of the text otherwise."""
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]]
    return Place(1, 1)


def _place(text: str, at: int) -> Place:
    return Place(text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)


def _placed(starts: Sequence[int], at: int) -> Place:
    """The same, of a text whose lines start there."""
    line = bisect_right(starts, at)
    return Place(line, at - starts[line - 1] + 1)


class _Scanner:
    """Goes through a valid text once; `found` has the offset of each path's key."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Path, int] = {}
        self._elements: dict[Path, int] = {}  # of each array of tables: the last one's index

    def document(self) -> None:
        table: Path = ()
        self._skip(_GAP)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_GAP)

    def _header(self) -> Path:
        """`[a.b]` or `[[a.b]]`: the path of the table that it opens."""
        start = self.at
        many = self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        self._skip(_BLANK)
        names = self._key()
        self._skip(_BLANK)
        self.at += 2 if many else 1
        path: Path = ()
        for depth, name in enumerate(names):
            path = (*path, name)
            last = depth == len(names) - 1
            self.found.setdefault(path, start)
            if many and last:
                self._elements[path] = self._elements.get(path, -1) + 1
            if path in self._elements:
                path = (*path, self._elements[path])
                self.found.setdefault(path, start)
        self.found[path] = start
        return path

    def _pair(self, table: Path) -> None:
        """`a.b = value`"""
        start = self.at
        path = table
        for name in self._key():
            path = (*path, name)
            self.found.setdefault(path, start)
        self._skip(_BLANK)
        self.at += 1  # =
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        """The names of a dotted key, as tomllib reads them."""
        start = self.at
        while True:
            quoted = _STRINGS.match(self.text, self.at)
            bare = quoted or _BARE.match(self.text, self.at)
            if bare is None:
                raise ValueError(f"no key at {_place(self.text, self.at)}")
            self.at = bare.end()
            end = self.at
            self._skip(_BLANK)
            if not self.text.startswith(".", self.at):
                break
            self.at += 1
            self._skip(_BLANK)
        names: list[str] = []
        node: Any = tomllib.loads(f"{self.text[start:end]} = 0")
        while isinstance(node, dict):
            name, node = next(iter(node.items()))
            names.append(name)
        return names

    def _value(self, path: Path) -> None:
        opening = self.text[self.at]
        string = _STRINGS.match(self.text, self.at)
        if string is not None:
            self.at = string.end()
        elif opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            self._skip(_PLAIN_VALUE)

    def _array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_GAP)
            if self.text[self.at] == "]":
                break
            self.found.setdefault((*path, index), self.at)
            self._value((*path, index))
            index += 1
            self._skip(_GAP)
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip(_GAP)
            if self.text[self.at] == "}":
                break
            self._pair(path)
            self._skip(_GAP)
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
