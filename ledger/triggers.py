"""The triggers that make the ledger's tables append-only, on every connection (SPEC 2, LED-7).

They are installed after each migration, because a migration that rebuilds a table drops its
triggers silently, and compared at each start.
"""

import sqlite3
from collections.abc import Iterable

from ledger.errors import TriggersDiffer
from ledger.records import CHAINED, Record


def _matches(table: str, fields: Iterable[str]) -> str:
    same = " AND ".join(f"{field} = NEW.{field}" for field in fields)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {same})"


def _triggers_of(record_type: type[Record]) -> dict[str, str]:
    table = record_type.TABLE
    # INSERT OR REPLACE deletes the old row without firing DELETE triggers; what it would replace
    # has to be refused before the row goes in.
    keys = (_matches(table, fields) for fields in (("seq",), *record_type.UNIQUE))
    taken = " OR ".join((*keys, *(f"({condition})" for condition in record_type.TAKEN)))
    return {
        f"{table}_no_update": f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} BEGIN "
        f"SELECT RAISE(ABORT, '{table} is append-only: UPDATE refused'); END",
        f"{table}_no_delete": f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} BEGIN "
        f"SELECT RAISE(ABORT, '{table} is append-only: DELETE refused'); END",
        f"{table}_no_replace": f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
        f"WHEN {taken} BEGIN "
        f"SELECT RAISE(ABORT, '{table} is append-only: a row with this key exists'); END",
    }


def expected_triggers() -> dict[str, str]:
    """The SQL of every trigger that the ledger must have, by name."""
    return {name: sql for record_type in CHAINED for name, sql in _triggers_of(record_type).items()}


def install_statements(present: Iterable[str]) -> tuple[str, ...]:
    """What to execute so that the ledger has exactly these triggers; `present`: names it has."""
    drops = tuple(f'DROP TRIGGER "{name}"' for name in present)
    return (*drops, *expected_triggers().values())


def trigger_differences(connection: sqlite3.Connection) -> tuple[str, ...]:
    """A sentence for each trigger that is missing, altered or foreign; empty when all is well."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    expected = expected_triggers()
    return (
        *(f"{name} is missing" for name in expected if name not in found),
        *(f"{name} was altered" for name, sql in expected.items() if found.get(name, sql) != sql),
        *(f"{name} does not belong here" for name in found if name not in expected),
    )


def check_triggers(connection: sqlite3.Connection) -> None:
    """Returns when every table is guarded; raises TriggersDiffer, naming what differs, if not."""
    differences = trigger_differences(connection)
    if differences:
        raise TriggersDiffer(differences)
