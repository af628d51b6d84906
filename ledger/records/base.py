"""What every append-only record is: its table, version, keys and indexes.

To add a record: a class in a module of this package, its name in `RECORDS`, `manage.py
makemigrations`. To add a field: append it with a default, raise the record's VERSION, name the
field and that version in SINCE, and make the migration; older rows keep their version and hash.

Integers, text, bytes and None alone: no float, no decimal, no time but integer microseconds UTC.
Fields named `*_json` hold canonical JSON text.
"""

from typing import ClassVar, TypeAlias

import msgspec

Unique: TypeAlias = tuple[tuple[str, ...], ...]


class Index:
    """An index that is not unique. `present`: it holds only rows where its first field is set.
    `unless`: a field and the value that rows it holds don't have there.

    As SQLite's rowid, `seq` is the last part of every index: one on a time serves `ORDER BY time,
    seq` as well.
    """

    __slots__ = ("fields", "name", "present", "unless")

    def __init__(
        self,
        name: str,
        *fields: str,
        present: bool = False,
        unless: tuple[str, str] | None = None,
    ) -> None:
        self.name = name
        self.fields = fields
        self.present = present
        self.unless = unless


Indexes: TypeAlias = tuple[Index, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An append-only row. The store adds `seq`, `v` and `entry_hash`."""

    TABLE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    SINCE: ClassVar[dict[str, int]] = {}  # field -> version that brought it, where that is not 1
    UNIQUE: ClassVar[Unique] = ()  # each a set of fields that identifies a row
    INDEXES: ClassVar[Indexes] = ()
    TAKEN: ClassVar[tuple[str, ...]] = ()  # SQL over NEW: its key stands in another table
    LABEL: ClassVar[str] = ""  # the field by which a person knows a row; empty: the first


def label_field(record_type: type[Record]) -> str:
    """The field by which a person knows a row of this table, for reports and errors."""
    return record_type.LABEL or record_type.__struct_fields__[0]
