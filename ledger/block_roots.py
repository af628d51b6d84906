"""The kept roots of whole blocks of rows: what a proof starts from instead of every row.

The writer keeps the root of each block of BLOCK_ROWS rows in the transaction that ends it. A root
that is missing (of rows older than the table) is computed from its rows; `fill` keeps those, too.
They prove nothing by themselves: what is made of them has to lead to the chain's head.
"""

import sqlite3

from ledger.chain import BLOCK_ROWS, Head
from ledger.errors import LedgerDamaged
from ledger.proofs import root_of
from ledger.reading import fetch, fetch_one
from ledger.walk import Faults, leaf_of, rows_by_seq

CREATE = "CREATE TABLE chain_block (number INTEGER PRIMARY KEY, root BLOB NOT NULL)"
DROP = "DROP TABLE IF EXISTS chain_block"


class Subtrees:
    """Roots of ranges of leaves of a ledger of `head.size` rows; remembers the kept roots."""

    def __init__(self, connection: sqlite3.Connection, head: Head) -> None:
        self._connection = connection
        last = head.size // BLOCK_ROWS
        sql = "SELECT number, root FROM chain_block WHERE number <= ?"
        self._roots = {row[0]: bytes(row[1]) for row in fetch(connection, sql, (last,))}

    def root(self, start: int, end: int) -> bytes:
        """The root of the leaves start <= index < end: a subtree of RFC 6962, so that `start` is a
        multiple of the power of two that it is split at. LedgerDamaged where a row is missing."""
        whole = (end - start) // BLOCK_ROWS
        if not whole:
            return root_of(self.leaves(start, end))
        first = start // BLOCK_ROWS + 1
        roots = [self._block(number) for number in range(first, first + whole)]
        rest = start + whole * BLOCK_ROWS
        if rest < end:
            roots.append(root_of(self.leaves(rest, end)))
        return root_of(roots)

    def leaves(self, start: int, end: int) -> list[bytes]:
        """The leaf hashes of these rows, computed from what the tables hold."""
        faults = Faults()
        leaves = []
        for seq, found in rows_by_seq(self._connection, start + 1, end, faults):
            leaf = leaf_of(*found[0]) if len(found) == 1 else "it isn't there once"
            if isinstance(leaf, str):
                path = fetch_one(self._connection, "PRAGMA database_list")[2]
                raise LedgerDamaged(path, f"row {seq}: {leaf}")
            leaves.append(leaf)
        return leaves

    def _block(self, number: int) -> bytes:
        root = self._roots.get(number)
        if root is None:
            start = (number - 1) * BLOCK_ROWS
            root = self._roots[number] = root_of(self.leaves(start, start + BLOCK_ROWS))
        return root


def fill(connection: sqlite3.Connection, head: Head) -> int:
    """How many missing roots were computed and kept, by the ledger's only writer."""
    kept = {row[0] for row in fetch(connection, "SELECT number FROM chain_block")}
    subtrees = Subtrees(connection, head)
    missing = [n for n in range(1, head.size // BLOCK_ROWS + 1) if n not in kept]
    for number in missing:
        root = subtrees.root((number - 1) * BLOCK_ROWS, number * BLOCK_ROWS)
        connection.execute("INSERT INTO chain_block VALUES (?, ?)", (number, root))
    return len(missing)
