"""Records made into rows: checked, hashed, and grouped into few statements. Pure.

SQLite's Python module gives up the interpreter lock for each step of a statement, and takes it
back in competition with the event loop. One INSERT of many rows is one step; so rows go in by
INSERTs of 1, 2, 4 … ROWS_PER_STATEMENT rows, whose text is made once. Columns that are null in
all rows of a statement don't stand in it: to bind a None takes longer than to bind a number.

Rows are written as they are made, some hundred at a time: what a whole commit's rows would take
of memory, the machine has to hand out anew for each commit, and that takes longer than to fill it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar

import msgspec
from orjson import dumps

from ledger.chain import Builder, hexadecimal
from ledger.errors import RecordRefused
from ledger.records import Record
from ledger.rows import HEAD_COLUMNS, by_table, columns
from ledger.sharing import Row, Values, rows_of

ROWS_PER_STATEMENT = 32  # a prepared one of receipts takes 200 KiB, of twice as many 400
ROWS_AT_A_TIME = 256
VARIABLES_LIMIT = 32_766  # SQLite's default of SQLITE_MAX_VARIABLE_NUMBER
SHAPES_LIMIT = 4_096  # distinct patterns of None remembered for one table
SELECTIONS_LIMIT = 12  # sets of columns that one table's statements are made for


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands in the chain, durably."""

    seq: int
    prev_hash: bytes
    entry_hash: bytes


Insert = tuple[str, Sequence[Any]]  # SQL and its values


class _Waiting:
    """Rows of one table that are in no statement yet; bit i of `empty`: field i is None in all."""

    __slots__ = ("empty", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int, bytes, Values]] = []  # seq, entry_hash, fields
        self.empty = -1


class _Layout:
    """What is known of one record type's rows: the shapes that are right, the statements made."""

    known: ClassVar[dict[type[Record], "_Layout"]] = {}

    def __init__(self, record_type: type[Record]) -> None:
        if by_table().get(record_type.TABLE) is not record_type:
            raise RecordRefused(f"{record_type.__name__} is no record of the ledger")
        self.table, self.version = record_type.TABLE, record_type.VERSION
        self.columns = columns(record_type)
        self.empty_of: dict[tuple[type, ...], int] = {}
        self.last_shape: list[type] = []  # most rows are of the same types as the one before
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
        self.pick: Callable[[Values], Values] = (
            itemgetter(*kept)
            if len(kept) > 1  # of one alone it would give no tuple
            else lambda values: tuple([values[place] for place in kept])
        )
        self.size = ROWS_PER_STATEMENT
        while self.size * (len(HEAD_COLUMNS) + len(kept)) > VARIABLES_LIMIT:
            self.size //= 2
        names = (*HEAD_COLUMNS, *(fields[place] for place in kept))
        self._insert = f"INSERT INTO {record_type.TABLE} ({', '.join(names)}) VALUES "
        self._places = f"({', '.join('?' * len(names))})"
        self.sql = cache(self._sql)

    def _sql(self, size: int) -> str:
        return self._insert + ", ".join([self._places] * size)


def inserts(
    builder: Builder, batch: Sequence[Sequence[Record]], placed: list[tuple[Appended, ...]]
) -> Iterator[Insert]:
    """INSERTs of all rows of the batch, each to be executed as it comes; hashed into `builder`.

    Each caller's records' places are added to `placed`; records that share a row
    (`ledger.sharing`) have one. Raises RecordRefused, naming table and field, for a value that a
    column can't hold; `builder` and what was executed are of no use then.
    """
    waiting: dict[type[Record], _Waiting] = {}
    start, last = 0, len(batch)
    while start < last:
        rows: list[Row] = []
        places: list[tuple[int, Sequence[int]]] = []
        while start < last and len(rows) < ROWS_AT_A_TIME:
            found, row_of = rows_of(batch[start])
            places.append((len(rows), row_of))
            rows += found
            start += 1
        appended = _hashed(builder, rows, waiting)
        placed += [
            tuple(appended[first : first + len(row_of)])
            if type(row_of) is range  # each has a row of its own
            else tuple([appended[first + row] for row in row_of])
            for first, row_of in places
        ]
        for record_type, table in waiting.items():
            if len(table.rows) >= ROWS_PER_STATEMENT:
                yield from _statements(record_type, table, whole=True)
    for record_type, table in waiting.items():
        yield from _statements(record_type, table, whole=False)


def _hashed(
    builder: Builder, rows: Sequence[Row], waiting: dict[type[Record], _Waiting]
) -> list[Appended]:
    """The rows' places in the chain, which they have joined; the rows wait to be written."""
    first, previous = builder.size + 1, builder.entry_hash
    hashes = builder.add_all(_covered(rows, first, waiting))
    appended = []
    for seq, (record_type, values), entry_hash in zip(
        range(first, first + len(rows)), rows, hashes, strict=True
    ):
        waiting[record_type].rows.append((seq, entry_hash, values))
        appended.append(Appended(seq, previous, entry_hash))
        previous = entry_hash
    return appended


def _covered(
    rows: Sequence[Row], first: int, waiting: dict[type[Record], _Waiting]
) -> Iterator[bytes]:
    """What each row's leaf covers, once its values are checked; one at a time, to be forgotten."""
    layouts = _Layout.known
    for seq, (record_type, values) in enumerate(rows, first):
        layout = layouts.get(record_type) or _Layout(record_type)
        shape = [*map(type, values)]  # a tuple of an unknown length takes longer to make
        if shape != layout.last_shape:
            empty = layout.empty_of.get(tuple(shape))
            layout.last_empty = layout.check(tuple(shape)) if empty is None else empty
            layout.last_shape = shape
        table = waiting.get(record_type)
        if table is None:
            table = waiting[record_type] = _Waiting()
        table.empty &= layout.last_empty
        try:
            # As `chain.canonical`, written out for its call: half a microsecond a row.
            yield dumps([layout.table, layout.version, seq, *values], hexadecimal)
        except TypeError as error:
            raise RecordRefused(f"{layout.table}: {error}") from error


def _statements(record_type: type[Record], table: _Waiting, *, whole: bool) -> Iterator[Insert]:
    """INSERTs of a table's waiting rows: of as many as one can take, and with `whole` no others;
    else of all, by statements of 32, 16 … 1 rows."""
    rows, start, left = table.rows, 0, len(table.rows)
    selection = _selection(record_type, table.empty)
    version, pick = record_type.VERSION, selection.pick
    while left:
        size = min(selection.size, 1 << left.bit_length() - 1)
        if whole and size < selection.size:
            break
        bound: list[Any] = []
        for seq, entry_hash, values in rows[start : start + size]:
            # A bytearray binds in half the time of bytes, which want an adapter.
            bound += (seq, version, bytearray(entry_hash))
            bound += pick(values)
        yield selection.sql(size), bound
        start, left = start + size, left - size
    if left:
        del rows[:start]
    else:
        rows.clear()
        table.empty = -1


def _selection(record_type: type[Record], empty: int) -> _Selection:
    """The columns to be written; those of `empty`, and none beside, may be left out.

    Statements are made for a few sets of columns alone, the first that were asked for: to prepare
    one of 32 rows takes as long as to write them.
    """
    made = _Layout.known[record_type].selections
    found = made.get(empty)
    if found is None and len(made) < SELECTIONS_LIMIT:
        found = made[empty] = _Selection(record_type, empty)
    if found is None:
        fitting = [one for one in made if one & empty == one]
        found = made[max(fitting, key=int.bit_count)]
    return found
