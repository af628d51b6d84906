"""A report's bytes as text, as JSON with places, or as CSV rows with places. Pure."""

import csv
import gzip
import io
import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ledger.invoices.fields import Fields, Number, refused_character
from ledger.invoices.values import Unreadable

FILE_LIMIT_BYTES = 32 << 20
TEXT_LIMIT_BYTES = 128 << 20  # of a compressed file, unpacked
CELL_LIMIT_CHARS = 16_384
COLUMNS_LIMIT = 400

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def text_of(content: bytes) -> str:
    """The file's text: unpacked where it is gzip, without a byte order mark.

    Unreadable (FILE_TOO_LARGE, COMPRESSION, ENCODING) for what is too large or is no text.
    """
    if len(content) > FILE_LIMIT_BYTES:
        raise Unreadable(
            "FILE_TOO_LARGE",
            f"it has {len(content):,} bytes; {FILE_LIMIT_BYTES:,} are the limit: split it by month",
        )
    if content.startswith(_GZIP):
        content = _unpacked(content)
    encoding = "utf-16" if content.startswith(_UTF16) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        before = content[: error.start]
        raise Unreadable(
            "ENCODING",
            f"byte {content[error.start]:#04x} is no {encoding[:6].rstrip('-')}; save it as UTF-8",
            before.count(b"\n") + 1,
            error.start - before.rfind(b"\n"),
        ) from None


def _unpacked(content: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as packed:
            text = packed.read(TEXT_LIMIT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(
            "COMPRESSION", f"it starts as gzip and can't be unpacked: {error}"
        ) from None
    if len(text) > TEXT_LIMIT_BYTES:
        raise Unreadable("FILE_TOO_LARGE", f"unpacked it has more than {TEXT_LIMIT_BYTES:,} bytes")
    return text


class _Lines:
    """Where each line of a text starts, so that a place costs no walk through the text."""

    def __init__(self, text: str, first_line: int) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._first = first_line

    def place(self, at: int) -> tuple[int, int]:
        """(line, column) of an offset; the column is counted from 1."""
        index = bisect_right(self._starts, at) - 1
        return self._first + index, at - self._starts[index] + 1


# What tells where objects begin and end: braces outside of strings; and what is no JSON number.
_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}]|-?Infinity|NaN', re.DOTALL)


def _starts(text: str) -> Iterator[int]:
    """Where each object starts, in the order in which they end: as a decoder's hook gets them."""
    open_at: list[int] = []
    for mark in _MARKS.finditer(text):
        if mark[0] == "{":
            open_at.append(mark.start())
        elif mark[0] == "}" and open_at:
            yield open_at.pop()


class Tree:
    """A JSON document: numbers are as they were printed, and objects know their place."""

    def __init__(self, text: str, *, first_line: int = 1) -> None:
        self._lines, self._first = _Lines(text, first_line), first_line
        self._places: dict[int, int] = {}
        starts = _starts(text)

        def placed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            values, at = dict(pairs), next(starts)
            if len(values) != len(pairs):
                names = [name for name, _ in pairs]
                twice = next(name for name in names if names.count(name) > 1)
                message = f"an object has {twice[:60]!r} twice"
                raise Unreadable("DUPLICATE_KEY", message, *self._lines.place(at))
            self._places[id(values)] = at
            return values

        def no_number(name: str) -> Any:
            marks = (mark for mark in _MARKS.finditer(text) if mark[0] == name)
            place = self._lines.place(next(marks).start())
            raise Unreadable("NOT_A_NUMBER", f"{name} is no number of JSON", *place)

        try:
            self.root: Any = json.loads(
                text, parse_float=Number, parse_int=Number, parse_constant=no_number,
                object_pairs_hook=placed,
            )  # fmt: skip
        except json.JSONDecodeError as error:
            line = first_line - 1 + error.lineno
            raise Unreadable("JSON", error.msg, line, error.colno) from None
        except RecursionError:
            raise Unreadable("JSON", "it is nested too deeply", first_line) from None

    def fields(self, value: object, what: str) -> Fields:
        """The object's fields; Unreadable (WRONG_TYPE) where `value` is no object."""
        if not isinstance(value, dict):
            raise Unreadable("WRONG_TYPE", f"{what} must be an object", self._first)
        at = self._places.get(id(value), 0)
        line, column = self._lines.place(at)
        return Fields(value, line=line, column=column)


def csv_rows(text: str | Iterable[str]) -> tuple[tuple[str, ...], Iterator[Fields]]:
    """The names of the columns, and the rows by name; each is checked as it is reached.

    `text`: the whole, or its lines with their ends, which may be read as they are needed.
    """
    lines = io.StringIO(text, newline="") if isinstance(text, str) else text
    reader = csv.reader(lines, strict=True)
    header = tuple(next(_checked(reader), ()))
    if len(header) > COLUMNS_LIMIT:
        raise Unreadable(
            "COLUMNS", f"it has {len(header)} columns; {COLUMNS_LIMIT} are the limit", 1
        )
    for column, name in enumerate(header, start=1):
        found = refused_character(name)
        if found is not None:
            message = f"the column's name has {found}, which is no character of a text"
            raise Unreadable("CHARACTER", message, 1, column)
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        column = len(header) - header[::-1].index(twice)
        raise Unreadable("COLUMNS", f"the column {twice[:60]!r} is there twice", 1, column)
    places = {name: number for number, name in enumerate(header, start=1)}
    return header, _rows(reader, header, places)


def _rows(reader: Any, header: tuple[str, ...], places: Mapping[str, int]) -> Iterator[Fields]:
    started = reader.line_num + 1
    for cells in _checked(reader):
        if len(cells) != len(header) and cells:
            raise Unreadable(
                "ROW_LENGTH",
                f"the row has {len(cells)} cells, the heading {len(header)}",
                started,
                min(len(cells), len(header)) + 1,
            )
        if cells:
            long = next((name for name, cell in zip(header, cells, strict=True)
                         if len(cell) > CELL_LIMIT_CHARS), None)  # fmt: skip
            if long is not None:
                message = f"{long} has more than {CELL_LIMIT_CHARS:,} characters"
                raise Unreadable("TOO_LONG", message, started, places[long])
            yield Fields(dict(zip(header, cells, strict=True)), line=started, columns=places)
        started = reader.line_num + 1


def _checked(reader: Any) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise Unreadable("CSV", str(error), reader.line_num) from None
