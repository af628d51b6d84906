"""Rows and records: which columns a record has, in which order, and how a row becomes a record.

Every table has `seq`, `v` and `entry_hash`, then the record's fields in order. Pure.
"""

from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from ledger.records import RECORDS, Record

R = TypeVar("R", bound=Record)

HEAD_COLUMNS: tuple[str, ...] = ("seq", "v", "entry_hash")


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a record as the database keeps it."""

    name: str
    kind: type  # int, str or bytes
    optional: bool
    since: int  # the record version that brought it


class Stored(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A record as it stands in the ledger: with its place and its hash in the chain."""

    record: R
    seq: int
    entry_hash: bytes


@cache
def columns(record_type: type[Record]) -> tuple[Column, ...]:
    """The record's fields in order. TypeError for a type that no column can hold exactly."""
    hints = get_type_hints(record_type)
    return tuple(_column(record_type, name, hints[name]) for name in record_type.__struct_fields__)


@cache
def field_names(record_type: type[Record], version: int) -> tuple[str, ...]:
    """The fields that the record had at `version`, in order: what that version's hash covers."""
    return tuple(column.name for column in columns(record_type) if column.since <= version)


@cache
def by_table() -> dict[str, type[Record]]:
    """Every record type by its table's name."""
    return {record_type.TABLE: record_type for record_type in RECORDS}


@cache
def select(record_type: type[Record]) -> str:
    """`SELECT seq, v, entry_hash, <fields> FROM <table>`, to be followed by WHERE and ORDER BY."""
    names = ", ".join((*HEAD_COLUMNS, *record_type.__struct_fields__))
    return f"SELECT {names} FROM {record_type.TABLE}"


def record_of(record_type: type[R], row: Sequence[Any]) -> R:
    """The record in a row that `select` fetched; fields younger than the row take their default."""
    version = row[1]
    if version == record_type.VERSION:
        return record_type(**dict(zip(record_type.__struct_fields__, row[3:], strict=True)))
    present = frozenset(field_names(record_type, version))
    named = zip(record_type.__struct_fields__, row[3:], strict=True)
    return record_type(**{name: value for name, value in named if name in present})


def stored(record_type: type[R], row: Sequence[Any]) -> Stored[R]:
    """The record in a row that `select` fetched, with its seq and entry_hash."""
    return Stored(record=record_of(record_type, row), seq=row[0], entry_hash=row[2])


def _column(record_type: type[Record], name: str, hint: Any) -> Column:
    optional = False
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        optional = len(kinds) < len(get_args(hint))
        hint = kinds[0] if len(kinds) == 1 else hint
    if hint not in (int, str, bytes):
        raise TypeError(f"{record_type.__name__}.{name} is {hint}: use int, str or bytes, or None")
    since = record_type.SINCE.get(name, 1)
    return Column(name=name, kind=hint, optional=optional, since=since)
