"""What verification asks of the rows beside their hashes: the rules that make a receipt final.

They are those of the audit (`ledger.invariants`) that say whether a row may stand where it does;
verification reports them as faults, in its own words.
"""

import sqlite3

from ledger.faults import Fault, Kind
from ledger.queries import violations as v
from ledger.reading import fetch_one

_RULES: tuple[tuple[Kind, str, str, str], ...] = (
    (
        "receipt",
        "receipt",
        v.RECEIPT_REVISIONS,
        "its request's revisions are not 0, 1, 2 … once each",
    ),
    (
        "receipt",
        "receipt",
        v.RESOLVES_NO_UNKNOWN,
        "it doesn't resolve its request's receipt before it, or that was no unknown",
    ),
    ("settlement", "settlement", v.SETTLED_TWICE, "its reservation was settled before"),
    (
        "settlement",
        "settlement",
        v.SETTLED_WITHOUT_RESERVATION,
        "there is no such reservation",
    ),
)
_AT_REST: tuple[Kind, str, str, str] = (
    "receipt",
    "route_decision",
    v.WITHOUT_RECEIPT,
    "the request has no receipt",
)


def audit(
    connection: sqlite3.Connection, size: int, *, at_rest: bool
) -> tuple[int, tuple[Fault, ...]]:
    """(decided requests without a receipt, the faults) among the first `size` rows.

    Requests without a receipt are faults when the ledger is `at_rest`: nothing runs, and what a
    crash left open was filed as unknown.
    """
    unfinished = int(
        fetch_one(connection, f"SELECT count(*) FROM ({v.WITHOUT_RECEIPT})", {"size": size})[0]
    )
    rules = (*_RULES, _AT_REST) if at_rest and unfinished else _RULES
    return unfinished, tuple(
        Fault(kind=kind, table=table, seq=seq, label=label, what=what)
        for kind, table, sql, what in rules
        for seq, label in v.violations(connection, sql, size)
    )
