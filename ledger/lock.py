"""The lock that makes one process the owner of a ledger file."""

import fcntl
import os
from pathlib import Path

from ledger.errors import LedgerInUse


class LedgerLock:
    """An exclusive flock on `<ledger>.lock`; the kernel lets go of it when its process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> "LedgerLock":
        """The lock of the ledger at `path`; LedgerInUse, naming the owner, where it is taken.

        It lies beside the file itself: whoever reaches that by a link finds the same lock.
        """
        file = path.resolve()
        lock_path = file.with_name(file.name + ".lock")
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise LedgerInUse(str(path), owner) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        return cls(descriptor)

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    def release(self) -> None:
        """Lets go of the lock; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
