"""Rows ready to be written: checked, hashed, and grouped into few statements. Pure.

SQLite's Python module gives up the interpreter lock for each step of a statement, and takes it
back in competition with the event loop. One INSERT of many rows is one step; so rows go in by
INSERTs of 1, 2, 4 … ROWS_PER_STATEMENT rows, whose text is made once. Columns that are null in
all rows of a commit stand in no statement: to bind a None takes longer than to bind a number.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain as flatten
from operator import itemgetter
from typing import Any, ClassVar

import msgspec
from orjson import dumps

from ledger.chain import Builder, hexadecimal
from ledger.errors import RecordRefused
from ledger.records import Record
from ledger.rows import HEAD_COLUMNS, by_table, columns
from ledger.sharing import rows_of

ROWS_PER_STATEMENT = 64
VARIABLES_LIMIT = 32_766  # SQLite's default of SQLITE_MAX_VARIABLE_NUMBER
SHAPES_LIMIT = 4_096  # distinct patterns of None remembered for one table
SELECTIONS_LIMIT = 12  # sets of columns that one table's statements are made for


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands in the chain, durably."""

    seq: int
    prev_hash: bytes
    entry_hash: bytes


Row = tuple[Any, ...]


class TableRows:
    """The rows of one table in a commit; bit i of `empty`: field i is None in all of them."""

    __slots__ = ("empty", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.empty = -1


Rows = dict[type[Record], TableRows]


class _Layout:
    """What is known of one record type's rows: the shapes that are right, the statements made."""

    known: ClassVar[dict[type[Record], "_Layout"]] = {}

    def __init__(self, record_type: type[Record]) -> None:
        if by_table().get(record_type.TABLE) is not record_type:
            raise RecordRefused(f"{record_type.__name__} is no record of the ledger")
        self.table, self.version = record_type.TABLE, record_type.VERSION
        self.columns = columns(record_type)
        self.empty_of: dict[tuple[type, ...], int] = {}
        self.last_shape: tuple[type, ...] = ()  # most rows are of the same types as the one before
        self.last_empty = 0
        self.selections: dict[int, _Selection] = {0: _Selection(record_type, 0)}
        self.known[record_type] = self

    def check(self, shape: tuple[type, ...]) -> int:
        """The fields that are None in a row of these types, a bit each. RecordRefused where one
        is of a type that its column can't hold."""
        empty = 0
        for place, (column, kind) in enumerate(zip(self.columns, shape, strict=True)):
            if kind is type(None) and column.optional:
                empty |= 1 << place
            elif kind is not column.kind:
                wanted = column.kind.__name__ + (" or None" if column.optional else "")
                raise RecordRefused(
                    f"{self.table}.{column.name} is a {kind.__name__}; it must be {wanted}"
                )
        if len(self.empty_of) < SHAPES_LIMIT:
            self.empty_of[shape] = empty
        return empty


class _Selection:
    """The columns of a table that statements name, when the fields of `empty` are left out."""

    def __init__(self, record_type: type[Record], empty: int) -> None:
        fields = record_type.__struct_fields__
        kept = [place for place in range(len(fields)) if not empty >> place & 1]
        head = len(HEAD_COLUMNS)
        self.pick = itemgetter(*range(head), *(head + place for place in kept))
        self.size = ROWS_PER_STATEMENT
        while self.size * (head + len(kept)) > VARIABLES_LIMIT:
            self.size //= 2
        names = (*HEAD_COLUMNS, *(fields[place] for place in kept))
        self._insert = f"INSERT INTO {record_type.TABLE} ({', '.join(names)}) VALUES "
        self._places = f"({', '.join('?' * len(names))})"
        self.sql = cache(self._sql)

    def _sql(self, size: int) -> str:
        return self._insert + ", ".join([self._places] * size)


def prepare(
    builder: Builder, batch: Sequence[Sequence[Record]], rows: Rows
) -> list[tuple[Appended, ...]]:
    """Each caller's records' places in the chain; rows are added to `rows`, hashes to `builder`.

    Records that share a row (`ledger.sharing`) have one place. Raises RecordRefused, naming table
    and field, for a value that a column can't hold; throw `builder` and `rows` away then.
    """
    written: list[tuple[type[Record], Row]] = []
    places: list[tuple[int, Sequence[int]]] = []  # of each caller: its first row, each record's row
    for records in batch:
        found, row_of = rows_of(records)
        places.append((len(written), row_of))
        written += found
    first, previous = builder.size + 1, builder.entry_hash
    covered, layouts = [], _Layout.known
    for seq, (record_type, values) in enumerate(written, first):
        layout = layouts.get(record_type) or _Layout(record_type)
        shape = tuple(map(type, values))
        if shape != layout.last_shape:
            empty = layout.empty_of.get(shape)
            layout.last_empty = layout.check(shape) if empty is None else empty
            layout.last_shape = shape
        try:
            # As `chain.canonical`, written out for its call: half a microsecond a row.
            covered.append(dumps([layout.table, layout.version, seq, *values], hexadecimal))
        except TypeError as error:
            raise RecordRefused(f"{layout.table}: {error}") from error
        table = rows.get(record_type)
        if table is None:
            table = rows[record_type] = TableRows()
        table.empty &= layout.last_empty
    hashes = builder.add_all(covered)
    appended = []
    for seq, (record_type, values), entry_hash in zip(
        range(first, first + len(written)), written, hashes, strict=True
    ):
        # A bytearray binds in half the time of bytes, which want an adapter.
        rows[record_type].rows.append((seq, record_type.VERSION, bytearray(entry_hash), *values))
        appended.append(Appended(seq, previous, entry_hash))
        previous = entry_hash
    return [tuple([appended[start + row] for row in row_of]) for start, row_of in places]


def inserts(rows: Rows) -> Iterator[tuple[str, Sequence[Any]]]:
    """(SQL, values) of INSERTs that write all the rows: whole statements of 64, 32 … 1 rows."""
    for record_type, table in rows.items():
        selection = _selection(record_type, table.empty)
        size, start, left = selection.size, 0, len(table.rows)
        while left:
            while size > left:
                size //= 2
            part = map(selection.pick, table.rows[start : start + size])
            yield selection.sql(size), tuple(flatten.from_iterable(part))
            start, left = start + size, left - size


def _selection(record_type: type[Record], empty: int) -> _Selection:
    """The columns to be written; those of `empty`, and none beside, may be left out.

    Statements are made for a few sets of columns alone, the first that were asked for: to prepare
    one of 64 rows takes as long as to write them.
    """
    made = _Layout.known[record_type].selections
    found = made.get(empty)
    if found is None and len(made) < SELECTIONS_LIMIT:
        found = made[empty] = _Selection(record_type, empty)
    if found is None:
        fitting = [one for one in made if one & empty == one]
        found = made[max(fitting, key=int.bit_count)]
    return found
