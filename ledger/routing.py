"""Which database file holds what: records and rollups in the ledger, logins beside it."""

from typing import Any


class LedgerRouter:
    """Sends the `ledger` app, and nothing else, to the ledger's file."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "ledger" if model._meta.app_label == "ledger" else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return self.db_for_read(model)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "ledger") == (app_label == "ledger")
