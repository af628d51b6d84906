"""Rows ready to be written: checked, hashed, and grouped into few statements. Pure.

SQLite's Python module gives up the interpreter lock for each step of a statement, and takes it
back in competition with the event loop. One INSERT of many rows is one step; so rows go in by
INSERTs of 1, 2, 4 … ROWS_PER_STATEMENT rows, whose text is made once.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain as flatten
from typing import Any

import msgspec

from ledger.chain import Builder, canonical
from ledger.errors import RecordRefused
from ledger.records import Record
from ledger.rows import HEAD_COLUMNS, by_table, columns
from ledger.sharing import rows_of

ROWS_PER_STATEMENT = 64
VARIABLES_LIMIT = 32_766  # SQLite's default of SQLITE_MAX_VARIABLE_NUMBER
SHAPES_LIMIT = 4_096  # distinct patterns of None remembered for one table


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands in the chain, durably."""

    seq: int
    prev_hash: bytes
    entry_hash: bytes


Row = tuple[Any, ...]
Rows = dict[type[Record], list[Row]]

_good_shapes: dict[type[Record], set[tuple[type, ...]]] = {}


def prepare(builder: Builder, records: Sequence[Record], rows: Rows) -> tuple[Appended, ...]:
    """Each record's place in the chain; its row is added to `rows`, its hash to `builder`.

    Records that share a row (`ledger.sharing`) have one place. Raises RecordRefused, naming table
    and field, for a value that a column can't hold; throw `builder` and `rows` away then.
    """
    appended = []
    seq, previous = builder.size, builder.entry_hash
    written, row_of = rows_of(records)
    for record_type, values in written:
        shape = tuple(map(type, values))
        good = _good_shapes.get(record_type)
        if good is None or shape not in good:
            _check_shape(record_type, shape)
        seq += 1
        version = record_type.VERSION
        try:
            covered = canonical(record_type.TABLE, version, seq, values)
        except TypeError as error:
            raise RecordRefused(f"{record_type.TABLE}: {error}") from error
        entry_hash = builder.add(covered)
        table_rows = rows.get(record_type)
        if table_rows is None:
            table_rows = rows[record_type] = []
        table_rows.append((seq, version, entry_hash, *values))
        appended.append(Appended(seq, previous, entry_hash))
        previous = entry_hash
    return tuple(map(appended.__getitem__, row_of))


def inserts(rows: Rows) -> Iterator[tuple[str, Sequence[Any]]]:
    """(SQL, values) of INSERTs that write all the rows: whole statements of 64, 32 … 1 rows."""
    for record_type, table_rows in rows.items():
        size = _largest(record_type)
        start = 0
        while start < len(table_rows):
            while size > len(table_rows) - start:
                size //= 2
            part = table_rows[start : start + size]
            yield _insert(record_type, size), tuple(flatten.from_iterable(part))
            start += size


@cache
def _largest(record_type: type[Record]) -> int:
    size = ROWS_PER_STATEMENT
    while size * (len(HEAD_COLUMNS) + len(columns(record_type))) > VARIABLES_LIMIT:
        size //= 2
    return size


@cache
def _insert(record_type: type[Record], size: int) -> str:
    names = (*HEAD_COLUMNS, *record_type.__struct_fields__)
    places = f"({', '.join('?' * len(names))})"
    return (
        f"INSERT INTO {record_type.TABLE} ({', '.join(names)}) VALUES {', '.join([places] * size)}"
    )


def _check_shape(record_type: type[Record], shape: tuple[type, ...]) -> None:
    if by_table().get(record_type.TABLE) is not record_type:
        raise RecordRefused(f"{record_type.__name__} is no record of the ledger")
    for column, kind in zip(columns(record_type), shape, strict=True):
        if kind is not column.kind and not (column.optional and kind is type(None)):
            wanted = column.kind.__name__ + (" or None" if column.optional else "")
            raise RecordRefused(
                f"{record_type.TABLE}.{column.name} is a {kind.__name__}; it must be {wanted}"
            )
    good = _good_shapes.setdefault(record_type, set())
    if len(good) < SHAPES_LIMIT:
        good.add(shape)
