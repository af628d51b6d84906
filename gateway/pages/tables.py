"""The tables of a page as it was sent, by the name that `{% saved %}` gives them. Pure."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"br", "input", "link", "meta", "img", "hr"})
_APART = frozenset({"p", "li", "div", "dt", "dd", "br", "details"})  # a new piece of a cell
_UNSEEN = frozenset({"svg", "form", "summary", "template", "script"})
_UNSEEN_CLASSES = frozenset({"visually-hidden", "act"})
BETWEEN = "; "


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A table's name, and its cells as text; every row is as long as `columns`, each of which
    has a name of its own."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    totals: tuple[tuple[str, ...], ...]


def tables_of(page: str) -> dict[str, ShownTable]:
    """The named tables of a page, in its order."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.found


@dataclass(slots=True, kw_only=True)
class _Cell:
    span: int
    pieces: list[list[str]] = field(default_factory=lambda: [[]])

    def text(self) -> str:
        said = (" ".join(" ".join(piece).split()) for piece in self.pieces)
        return BETWEEN.join(piece for piece in said if piece)


@dataclass(slots=True, kw_only=True)
class _Table:
    heads: list[list[_Cell]] = field(default_factory=list)
    rows: list[list[_Cell]] = field(default_factory=list)
    totals: list[list[_Cell]] = field(default_factory=list)


class _Reader(HTMLParser):
    """Follows one table at a time: a table within a cell belongs to that cell's text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, ShownTable] = {}
        self._table: _Table | None = None
        self._last: _Table | None = None
        self._part = "tbody"
        self._cell: _Cell | None = None
        self._open: list[str] = []  # tags within the cell
        self._unseen_at: int | None = None  # how deep in the cell the unseen element is
        self._given: int | None = None  # likewise of one whose attribute stands for its text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if self._cell is not None:
            self._within(tag, given)
        elif tag == "table":
            self._table, self._part = _Table(), "tbody"
        elif tag == "p" and given.get("data-table") and self._last is not None:
            name = given["data-table"] or ""
            self.found.setdefault(name, _shown(name, self._last))
            self._last = None
        elif self._table is not None:
            self._below(self._table, tag, given)

    def _below(self, table: _Table, tag: str, given: dict[str, str | None]) -> None:
        if tag in ("thead", "tbody", "tfoot"):
            self._part = tag
        elif tag == "tr":
            rows = {"thead": table.heads, "tfoot": table.totals}.get(self._part, table.rows)
            rows.append([])
        elif tag in ("th", "td"):
            rows = {"thead": table.heads, "tfoot": table.totals}.get(self._part, table.rows)
            span = given.get("colspan") or "1"
            self._cell = _Cell(span=int(span) if span.isdecimal() else 1)
            if rows:
                rows[-1].append(self._cell)

    def _within(self, tag: str, given: dict[str, str | None]) -> None:
        classes = set((given.get("class") or "").split())
        if tag not in VOID:
            self._open.append(tag)
        if self._unseen_at is not None or self._given is not None or self._cell is None:
            return
        if tag in _UNSEEN or classes & _UNSEEN_CLASSES:
            self._unseen_at = len(self._open)
            return
        if tag in _APART or classes & {"sub", "line"}:
            self._cell.pieces.append([])
        whole = given.get("datetime") if tag == "time" else given.get("title")
        if whole:
            self._cell.pieces[-1].append(whole)
            self._given = len(self._open)

    def handle_endtag(self, tag: str) -> None:
        if self._cell is not None and tag in self._open:
            while self._open and self._open[-1] != tag:
                self._open.pop()
            depth = len(self._open)
            self._open.pop()
            if self._unseen_at is not None and depth <= self._unseen_at:
                self._unseen_at = None
            if self._given is not None and depth <= self._given:
                self._given = None
        elif tag in ("td", "th", "tr"):
            self._cell, self._open, self._unseen_at, self._given = None, [], None, None
        elif tag == "table" and self._table is not None:
            self._last, self._table = self._table, None

    def handle_data(self, data: str) -> None:
        if self._cell is not None and self._unseen_at is None and self._given is None:
            self._cell.pieces[-1].append(data)


def _shown(name: str, table: _Table) -> ShownTable:
    heads = _wide(table.heads[-1]) if table.heads else []
    width = max([len(heads), *(len(_wide(row)) for row in (*table.rows, *table.totals))])
    heads += [""] * (width - len(heads))
    body = [_padded(_wide(row), width) for row in table.rows]
    totals = [_padded(_wide(row), width) for row in table.totals]
    # A column of links and forms has a heading for screen readers alone, and no text.
    kept = [at for at in range(width) if heads[at] or any(row[at] for row in (*body, *totals))]
    kept = [at for at in kept if heads[at] or at == 0]
    return ShownTable(
        name=name,
        columns=_apart([heads[at] or "name" for at in kept]),
        rows=tuple(tuple(row[at] for at in kept) for row in body),
        totals=tuple(tuple(row[at] for at in kept) for row in totals),
    )


def _wide(row: list[_Cell]) -> list[str]:
    return [text for cell in row for text in (cell.text(), *[""] * (cell.span - 1))]


def _padded(row: list[str], width: int) -> list[str]:
    return row + [""] * (width - len(row))


def _apart(names: list[str]) -> tuple[str, ...]:
    """The names, with a number behind one that was there before."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return tuple(made)
