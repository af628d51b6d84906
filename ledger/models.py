"""Django's view of the ledger's tables, made from `ledger.records`: migrations need it, alone.

Nothing reads or writes through these classes at run time: `ledger.store` writes, `ledger.queries`
reads. `seq` is SQLite's rowid (an `integer` primary key), given by the store and never by SQLite.
"""

from typing import Any

from django.db import models

from ledger.records import RECORDS, Index, Record
from ledger.rows import Column, columns

_FIELDS: "dict[type, type[models.Field[Any, Any]]]" = {
    int: models.BigIntegerField,
    str: models.TextField,
    bytes: models.BinaryField,
}


def _field(column: Column) -> "models.Field[Any, Any]":
    # A column that came later is nullable, so that adding it rebuilds no table (and drops no
    # trigger); rows older than it are read without it.
    return _FIELDS[column.kind](null=column.optional or column.since > 1)


def _index(index: Index) -> models.Index:
    condition = models.Q((f"{index.fields[0]}__isnull", False)) if index.present else None
    if index.unless is not None:
        condition = ~models.Q(index.unless)
    return models.Index(fields=index.fields, name=index.name, condition=condition)


def _model(record_type: type[Record]) -> type[models.Model]:
    """The model of an append-only table: seq, v, entry_hash, then the record's fields."""
    meta = {
        "db_table": record_type.TABLE,
        "indexes": [_index(index) for index in record_type.INDEXES],
        "constraints": [
            models.UniqueConstraint(fields=fields, name=f"{record_type.TABLE}_u{number}")
            for number, fields in enumerate(record_type.UNIQUE, start=1)
        ],
    }
    attributes: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": record_type.__doc__,
        "Meta": type("Meta", (), meta),
        "seq": models.IntegerField(primary_key=True),
        "v": models.SmallIntegerField(),
        "entry_hash": models.BinaryField(),
    }
    attributes |= {column.name: _field(column) for column in columns(record_type)}
    return type(record_type.__name__, (models.Model,), attributes)


MODELS: dict[str, type[models.Model]] = {
    record_type.TABLE: _model(record_type) for record_type in RECORDS
}


class ChainHead(models.Model):
    """The one row that moves with every commit: `ledger.chain.Head`."""

    id = models.IntegerField(primary_key=True)
    size = models.BigIntegerField()
    entry_hash = models.BinaryField()
    frontier = models.BinaryField()

    class Meta:
        db_table = "chain_head"
