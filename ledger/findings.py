"""What a check of the audit is given and what it finds."""

import sqlite3

import msgspec


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger as a check sees it: the first `size` rows of the chain."""

    connection: sqlite3.Connection
    size: int
    at_rest: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. `table`, `seq` and `label` where a row is at fault."""

    what: str
    table: str = ""
    seq: int | None = None
    label: str = ""

    def __str__(self) -> str:
        row = " ".join(
            part
            for part in (
                self.table,
                "" if self.seq is None else f"seq {self.seq}",
                f"({self.label})" if self.label else "",
            )
            if part
        )
        return f"{row + ': ' if row else ''}{self.what}"
