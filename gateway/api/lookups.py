"""What a receipt only names, looked up: model identities and a rate table's currency.

Both are immutable once published, so each is read from the ledger once.
"""

from typing import TypeVar

from gateway.api.ports import Ports
from gateway.api.receipts import filed_json
from gateway.submission import Filed
from ledger.queries.configuration import identity as stored_identity
from ledger.queries.configuration import rate_table as stored_rate_table
from ledger.records import ModelIdentity

KEPT_LIMIT = 1_024
NO_CURRENCY = "units"


class Lookups:
    """Keeps what it has read; forgets a kind when it holds more than KEPT_LIMIT of it."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._identities: dict[str, ModelIdentity] = {}
        self._currencies: dict[str, str] = {}

    def receipt(self, filed: Filed) -> dict[str, object]:
        """Returns the JSON of a receipt that was just made durable."""
        return filed_json(
            filed,
            identity=self.identity(filed.receipt.identity_id),
            currency=self.currency(filed.receipt.rate_table_version),
        )

    def identity(self, identity_id: str | None) -> ModelIdentity | None:
        """Returns the identity; None where there is none. One read of some 20 µs, then none."""
        if identity_id is None:
            return None
        found = self._identities.get(identity_id)
        if found is None:
            found = stored_identity(self._ports.reader(), identity_id)
            if found is not None:
                _keep(self._identities, identity_id, found)
        return found

    def currency(self, rate_table_version: str) -> str:
        """Returns the currency (or abstract unit) of a rate table."""
        found = self._currencies.get(rate_table_version)
        if found is None:
            table = stored_rate_table(self._ports.reader(), rate_table_version)
            if table is None:
                return NO_CURRENCY
            found = table.currency
            _keep(self._currencies, rate_table_version, found)
        return found


V = TypeVar("V")


def _keep(kept: dict[str, V], key: str, value: V) -> None:
    if len(kept) >= KEPT_LIMIT:
        kept.clear()
    kept[key] = value
