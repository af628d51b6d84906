"""What can go wrong with the ledger as a whole, each with what to do about it."""


class LedgerError(Exception):
    """Any fault of the ledger; never carries a value of a record. `code` is stable."""

    code = "LEDGER_FAULT"


class LedgerInUse(LedgerError):
    """Another process holds the ledger (one process owns it, see docs)."""

    code = "LEDGER_IN_USE"

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(
            f"The ledger {path} is in use by process {owner}. One process owns a ledger: stop that "
            f"one, or name another file with WEIGHBRIDGE_DB."
        )
        self.path = path
        self.owner = owner


class LedgerNotReady(LedgerError):
    """There is no migrated ledger at the path, or none that may be opened."""

    code = "LEDGER_NOT_READY"

    def __init__(
        self, path: str, what: str, do: str = "Run: python manage.py migrate --database ledger"
    ) -> None:
        super().__init__(f"The ledger {path} can't be opened: {what}. {do}".rstrip())
        self.path = path


class LedgerUnreadable(LedgerError):
    """The file at the path is no database, or too damaged to be opened as one."""

    code = "LEDGER_UNREADABLE"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"The ledger {path} can't be read: {what}. Where it is the file that was meant, it is "
            f"damaged: restore the last backup."
        )
        self.path = path


class LedgerDamaged(LedgerError):
    """The file contradicts itself: it must not be written to."""

    code = "LEDGER_DAMAGED"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"The ledger {path} is damaged: {what}. Nothing was written. "
            f"Run: python manage.py verify_ledger"
        )
        self.path = path


class ArchivesNeeded(LedgerError):
    """Rollups can't be made again without the receipts that are in archives."""

    code = "ARCHIVES_NEEDED"

    def __init__(self) -> None:
        super().__init__(
            "The sums of the archived months were kept by an older version, and their receipts "
            "are in archives. Run: python manage.py rebuild_rollups --archive FILE, with every "
            "archive that ledger_health lists"
        )


class TriggersDiffer(LedgerError):
    """The triggers that make tables append-only are not those that this code installs."""

    code = "TRIGGERS_DIFFER"

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(
            f"{len(differences)} trigger(s) of the ledger differ: {'; '.join(differences[:5])}. "
            f"Run verify_ledger, then migrate --database ledger, which installs them again."
        )
        self.differences = differences


class LedgerUnavailable(LedgerError):
    """Nothing can be recorded now: a full or failing disk, a full queue, a closed store.

    `code` is stable and says which: one of `WRITE_FAULTS`, QUEUE_FULL, or CLOSED.
    """

    def __init__(self, what: str, code: str = "CLOSED") -> None:
        super().__init__(what)
        self.code = code


WRITE_FAULTS: dict[str, str] = {
    "DISK_FULL": "free space on the ledger's disk; the server goes on by itself",
    "FILE_READ_ONLY": "make the file and its folder writable for the server's user",
    "FILE_LOCKED": "end the other program that holds a lock on the file",
    "FILE_MOVED": "put the ledger's file back, or stop the server and name it with WEIGHBRIDGE_DB",
    "FILE_CORRUPT": "stop the server, run verify_ledger, restore the last backup",
    "DISK_FAULT": "look at the disk and the system's log; the server tries again by itself",
}
"""What can keep the ledger from being written, and what to do about each."""

_BY_SQLITE_NAME: tuple[tuple[str, str], ...] = (
    ("SQLITE_FULL", "DISK_FULL"),
    ("SQLITE_READONLY", "FILE_READ_ONLY"),
    ("SQLITE_CANTOPEN", "FILE_READ_ONLY"),
    ("SQLITE_PERM", "FILE_READ_ONLY"),
    ("SQLITE_BUSY", "FILE_LOCKED"),
    ("SQLITE_LOCKED", "FILE_LOCKED"),
    ("SQLITE_CORRUPT", "FILE_CORRUPT"),
    ("SQLITE_NOTADB", "FILE_CORRUPT"),
)


def write_fault_of(error: BaseException) -> str:
    """The code, a key of `WRITE_FAULTS`, of what SQLite or the system reported."""
    if isinstance(error, LedgerDamaged | LedgerUnreadable | TriggersDiffer):
        return "FILE_CORRUPT"
    if isinstance(error, LedgerNotReady | FileNotFoundError):
        return "FILE_MOVED"
    if isinstance(error, LedgerUnavailable):
        return error.code
    name = getattr(error, "sqlite_errorname", "")
    for prefix, code in _BY_SQLITE_NAME:
        if name.startswith(prefix):
            return code
    return "DISK_FAULT"


class RecordRefused(LedgerError):
    """These records can't stand in the ledger (a key exists, a value doesn't fit); others can."""

    code = "RECORD_REFUSED"
