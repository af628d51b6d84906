"""The walk over all rows in chain order: each checked against the hash of the one before it.

Blocks in which nothing is wrong are taken whole. Rows are read in blocks of consecutive seq from
all tables, so memory is bounded and no reader holds the write-ahead log for long.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger.blocks import Sound
from ledger.chain import GENESIS, HASH_BYTES, Builder, canonical, leaf_hash, node_hash
from ledger.faults import Fault, Kind
from ledger.rates import RateTable
from ledger.receipt_cost import cost_fault
from ledger.records import CHAINED, ArchivedRow, Receipt, Record, label_field
from ledger.rows import field_names, record_of, select

FAULTS_LIMIT = 100  # enough to see what happened; the exit status needs one

Row = tuple[Any, ...]
Found = tuple[type[Record], Row]


class TooManyFaults(Exception):
    """The verification stops: more of the same would help nobody."""


class Faults(list[Fault]):
    """Faults up to the limit; the one that reaches it raises TooManyFaults."""

    def add(self, fault: Fault) -> None:
        self.append(fault)
        if len(self) >= FAULTS_LIMIT:
            raise TooManyFaults


class Walk:
    """The state of a walk: the chain and tree so far, and the faults found."""

    def __init__(self, tables: Mapping[str, RateTable], faults: Faults) -> None:
        self.builder = Builder()
        self._tables = tables
        self._faults = faults
        # The hash of the row before: as stored, and as computed. A row whose stored hash alone was
        # altered is at fault itself; the row after it, which agrees with the computed one, is not.
        self._before: tuple[bytes, ...] = (GENESIS,)

    def take(self, block: Sound) -> bool:
        """Takes a block that was found sound by itself; False, and nothing, where it doesn't join.

        It has to follow the row before as that is stored: no other row can then be at fault.
        """
        if block.hash_before not in self._before or block.first != self.builder.size + 1:
            return False
        for height, root in block.peaks:
            self.builder.add_subtree(height, root)
        self.builder.entry_hash = block.last_hash
        self._before = (block.last_hash,)
        return True

    def step(self, seq: int, found: Sequence[Found]) -> None:
        """Takes the next row of the chain, as all tables that have its seq have it."""
        if not found:
            what = "no table has this row of the chain"
            self._faults.add(Fault(kind="missing", seq=seq, what=what))
            self._skip(())
            return
        record_type, row = found[0]
        for other, other_row in found[1:]:
            what = f"{record_type.TABLE} has row {seq}, too"
            self._faults.add(fault_at("doubled", other, other_row, what))
        leaf, stored_hash = leaf_of(record_type, row), row[2]
        if isinstance(leaf, str) or type(stored_hash) is not bytes:
            what = leaf if isinstance(leaf, str) else "its hash is no hash: it was altered"
            self._faults.add(fault_at("altered", record_type, row, what))
            self._skip((stored_hash,) if type(stored_hash) is bytes else ())
            return
        links = [node_hash(previous, leaf) for previous in self._before]
        if links and stored_hash not in links:
            what = "its hash is not that of its content and the row before: it was altered"
            self._faults.add(fault_at("altered", record_type, row, what))
        elif record_type is Receipt:
            self._check_receipt(row)
        self._before = tuple({stored_hash, *links})
        self.builder.add_leaf(leaf)
        self.builder.entry_hash = stored_hash

    def _skip(self, before: tuple[bytes, ...]) -> None:
        self._before = before
        self.builder.add_leaf(GENESIS)  # keeps the count; the tree is wrong from here on

    def _check_receipt(self, row: Row) -> None:
        receipt = record_of(Receipt, row)
        what = cost_fault(receipt, self._tables)
        if what is not None:
            self._faults.add(fault_at("cost", Receipt, row, what))
        if receipt.revision == 0 and receipt.resolves_hash is not None:
            what = "the first revision resolves another"
            self._faults.add(fault_at("receipt", Receipt, row, what))


def rows_by_seq(
    connection: sqlite3.Connection, first: int, last: int, faults: Faults
) -> Iterator[tuple[int, list[Found]]]:
    """(seq, the rows of all tables that have it) for each seq from `first` to `last`: a block."""
    block: list[list[Found]] = [[] for _ in range(first, last + 1)]
    for record_type in CHAINED:
        sql = f"{select(record_type)} WHERE seq BETWEEN ? AND ?"
        try:
            rows = rows_as_they_are(connection, sql, (first, last))
        except sqlite3.DatabaseError as error:
            what = f"rows {first} to {last} can't be read: {error}"
            faults.add(Fault(kind="unreadable", table=record_type.TABLE, what=what))
            continue
        for row in rows:
            block[row[0] - first].append((record_type, row))
    yield from enumerate(block, start=first)


def rows_as_they_are(connection: sqlite3.Connection, sql: str, values: Sequence[int]) -> list[Row]:
    """The rows as tuples, also where a text in them is no UTF-8."""
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        return cursor.execute(sql, values).fetchall()
    except sqlite3.OperationalError:
        # Read again so that the row can be named: what can't be decoded becomes lone surrogates,
        # which have no canonical form.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        try:
            return cursor.execute(sql, values).fetchall()
        finally:
            connection.text_factory = str


def fault_at(kind: Kind, record_type: type[Record], row: Row, what: str) -> Fault:
    """A fault of this row, labelled with the field by which a person knows it."""
    field = label_field(record_type)
    value = row[3 + record_type.__struct_fields__.index(field)]
    text = value if isinstance(value, str) else repr(value)
    shown = text.encode("ascii", "backslashreplace").decode()[:80]
    return Fault(
        kind=kind, table=record_type.TABLE, seq=row[0], label=f"{field} {shown}", what=what
    )


def leaf_of(record_type: type[Record], row: Row) -> bytes | str:
    """The row's leaf hash, or why it can have none. Of an archived row, the one that is kept."""
    if record_type is ArchivedRow:
        kept = row[3]
        if type(kept) is bytes and len(kept) == HASH_BYTES:
            return kept
        return "the hash that is kept of it is no hash: it was altered"
    version = row[1]
    if type(version) is not int or not 1 <= version <= record_type.VERSION:
        return f"it is of version {version!r}; this code knows 1 to {record_type.VERSION}"
    values: Row = row[3:]
    if version != record_type.VERSION:
        present = frozenset(field_names(record_type, version))
        named = zip(record_type.__struct_fields__, values, strict=True)
        values = tuple(value for name, value in named if name in present)
    try:
        return leaf_hash(canonical(record_type.TABLE, version, row[0], values))
    except TypeError:
        return "it holds a value that was never written: it was altered"
