"""The ledger's app: every migration of its file ends with its triggers in place."""

from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.core.management.base import CommandError
from django.db import connections
from django.db.models.signals import post_migrate, pre_migrate

LEDGER_ALIAS = "ledger"


def refuse_while_in_use(using: str, **_: Any) -> None:
    """Stops a migration of a ledger that a running server owns."""
    from ledger.errors import LedgerInUse
    from ledger.lock import LedgerLock  # imported late: apps load before settings are complete

    name = connections[LEDGER_ALIAS].settings_dict["NAME"]
    if using == LEDGER_ALIAS and Path(name).exists():
        try:
            LedgerLock.take(Path(name)).release()
        except LedgerInUse as error:
            raise CommandError(str(error)) from error


def install_triggers(using: str, **_: Any) -> None:
    """Makes the tables append-only and the file's journal a write-ahead log."""
    from ledger.triggers import install_statements

    if using != LEDGER_ALIAS:
        return
    with connections[LEDGER_ALIAS].cursor() as cursor:
        tables = set(connections[LEDGER_ALIAS].introspection.table_names(cursor))
        if "chain_head" not in tables:  # migrated back to nothing
            return
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        present = [row[0] for row in cursor.fetchall()]
        cursor.execute("BEGIN IMMEDIATE")
        for statement in install_statements(present):
            cursor.execute(statement)
        cursor.execute("COMMIT")
        cursor.execute("PRAGMA journal_mode=WAL")


def renew_rollups(using: str, **_: Any) -> None:
    """Makes the rollups again where this code keeps other columns than the file's.

    They are a projection: no migration changes their tables. Runs after the last migration, when
    the records have all columns that this code reads.
    """
    from ledger.rollups.rebuild import is_current, rebuild

    if using != LEDGER_ALIAS:
        return
    connections[LEDGER_ALIAS].ensure_connection()
    connection = connections[LEDGER_ALIAS].connection
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'chain_head'").fetchall()
    if there and not is_current(connection):
        rebuild(connection)


class LedgerConfig(AppConfig):
    name = "ledger"

    def ready(self) -> None:
        pre_migrate.connect(refuse_while_in_use, sender=self)
        post_migrate.connect(install_triggers, sender=self)
        post_migrate.connect(renew_rollups, sender=self)
