"""Model identities by id: immutable, so each is read from the ledger once."""

from gateway.api.ports import Ports
from ledger.queries.configuration import identity as stored_identity
from ledger.records import ModelIdentity

KEPT_LIMIT = 1_024


class Identities:
    """Looks identities up for receipts; forgets all when it holds more than KEPT_LIMIT."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._kept: dict[str, ModelIdentity] = {}

    def get(self, identity_id: str | None) -> ModelIdentity | None:
        """Returns the identity; None where there is none. One read of some 20 µs, then none."""
        if identity_id is None:
            return None
        found = self._kept.get(identity_id)
        if found is None:
            found = stored_identity(self._ports.reader(), identity_id)
            if found is not None:
                if len(self._kept) >= KEPT_LIMIT:
                    self._kept.clear()
                self._kept[identity_id] = found
        return found
