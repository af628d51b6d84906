"""What can go wrong with the ledger as a whole, each with what to do about it."""


class LedgerError(Exception):
    """Any fault of the ledger; never carries a value of a record."""


class LedgerInUse(LedgerError):
    """Another process holds the ledger (one process owns it, see docs)."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(
            f"The ledger {path} is in use by process {owner}. One process owns a ledger: stop that "
            f"one, or name another file with WEIGHBRIDGE_DB."
        )
        self.path = path
        self.owner = owner


class LedgerNotReady(LedgerError):
    """There is no migrated ledger at the path."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"The ledger {path} can't be opened: {what}. "
            f"Run: python manage.py migrate --database ledger"
        )
        self.path = path


class LedgerDamaged(LedgerError):
    """The file contradicts itself: it must not be written to."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"The ledger {path} is damaged: {what}. Nothing was written. "
            f"Run: python manage.py verify_ledger"
        )
        self.path = path


class TriggersDiffer(LedgerError):
    """The triggers that make tables append-only are not those that this code installs."""

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(
            f"{len(differences)} trigger(s) of the ledger differ: {'; '.join(differences[:5])}. "
            f"Run verify_ledger, then migrate --database ledger, which installs them again."
        )
        self.differences = differences


class LedgerUnavailable(LedgerError):
    """Nothing can be recorded now: a full or failing disk, a full queue, a closed store."""


class RecordRefused(LedgerError):
    """These records can't stand in the ledger (a key exists, a value doesn't fit); others can."""
