"""What a verification finds wrong, each naming the row at fault. Pure."""

from typing import Literal

from ledger.findings import Finding

Kind = Literal[
    "altered",  # the row isn't what was hashed
    "missing",  # no table has the row any more
    "doubled",  # more than one table has it, or a table has it beyond the chain's end
    "unreadable",  # SQLite can't read the table
    "head",  # the chain's end isn't where chain_head says
    "checkpoint",  # the ledger isn't a continuation of what a checkpoint saw
    "cost",  # a receipt's cost isn't what its usage and rate table give
    "receipt",  # a request hasn't exactly one current final receipt
    "settlement",  # a reservation was settled twice, or a settlement has none
    "archive",  # an archive isn't the file, or hasn't the rows, that the ledger says
    "trigger",  # a table isn't append-only as it must be
]


class Fault(Finding, frozen=True, kw_only=True):
    """One thing that a verification finds wrong."""

    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}: {super().__str__()}"
