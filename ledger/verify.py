"""The chain proves itself: every hash and every cost computed again, in chain order (LED-2, LED-7).

Rows younger than the head that was read first are left for next time: a ledger can be verified
while it is written.
"""

import sqlite3
from collections.abc import Callable

import msgspec

from ledger.attempt_costs import attempt_cost_faults
from ledger.audits import audit
from ledger.block_pool import checked_blocks
from ledger.chain import BadHead, Builder, Checkpoint, Head
from ledger.faults import Fault
from ledger.queries.archives import archived_rows
from ledger.rates import RateTable
from ledger.reading import fetch, read_head
from ledger.records import CHAINED, RateTableRecord
from ledger.rows import record_of, select
from ledger.triggers import trigger_differences
from ledger.walk import (
    FAULTS_LIMIT,
    Faults,
    TooManyFaults,
    Walk,
    fault_at,
    rows_as_they_are,
    rows_by_seq,
)

BREAKS_THE_TREE = frozenset({"missing", "altered", "doubled", "unreadable", "head"})


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification found. `root` is in hexadecimal, and None where rows are at fault."""

    rows: int
    root: str | None
    faults: tuple[Fault, ...]
    unfinished: int  # decided requests without a receipt: in flight, or left by a crash
    archived: int = 0  # rows of which the hashes alone are here: their content wasn't checked

    @property
    def sound(self) -> bool:
        return not self.faults


def verify(
    connection: sqlite3.Connection,
    *,
    checkpoint: Checkpoint | None = None,
    at_rest: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
) -> Report:
    """Every fault of the ledger, rows first, in chain order; FAULTS_LIMIT at most.

    `checkpoint`: exported earlier and kept elsewhere; the ledger has to continue it. `at_rest`: no
    server runs and recovery is done, so that a request without a receipt is a fault, too.
    """
    faults = Faults()
    tables = _rate_tables(connection)
    walk = Walk(tables, faults)
    unfinished = 0
    try:
        head = _starting_head(connection, faults)
        _check_end(connection, head, faults)
        if checkpoint is not None and checkpoint.size > head.size:
            what = f"it saw {checkpoint.size} rows; the ledger has {head.size}: its tail was cut"
            faults.add(Fault(kind="checkpoint", what=what))
        for first, last, sound in checked_blocks(connection, head.size, tables):
            seen = checkpoint is not None and first <= checkpoint.size < last
            if seen or sound is None or not walk.take(sound):
                for seq, found in rows_by_seq(connection, first, last, faults):
                    walk.step(seq, found)
                    if seen and checkpoint is not None and seq == checkpoint.size:
                        _check_checkpoint(walk.builder, checkpoint, faults)
            if checkpoint is not None and last == checkpoint.size:
                _check_checkpoint(walk.builder, checkpoint, faults)
            progress(last)
        if BREAKS_THE_TREE.isdisjoint(fault.kind for fault in faults):
            _check_head(head, walk.builder, faults)
        unfinished, found_faults = audit(connection, head.size, at_rest=at_rest)
        for fault in (*found_faults, *attempt_cost_faults(connection, head.size, tables)):
            faults.add(fault)
        for difference in trigger_differences(connection):
            faults.add(Fault(kind="trigger", what=difference))
    except TooManyFaults:
        pass
    intact = BREAKS_THE_TREE.isdisjoint(fault.kind for fault in faults)
    return Report(
        rows=walk.builder.size,
        root=walk.builder.root.hex() if intact else None,
        faults=tuple(faults),
        unfinished=unfinished,
        archived=archived_rows(connection, walk.builder.size),
    )


def _starting_head(connection: sqlite3.Connection, faults: Faults) -> Head:
    """The head as the last commit left it; where it is gone, or far beyond the last row, one that
    ends there: a walk over rows that nobody ever wrote would not end."""
    head = read_head(connection)
    sql = " UNION ALL ".join(f"SELECT max(seq) FROM {kind.TABLE}" for kind in CHAINED)
    last = max(row[0] or 0 for row in fetch(connection, sql))
    what = "its row is gone or was altered"
    if head is not None:
        if head.size <= last + FAULTS_LIMIT:
            return head
        what = f"it counts {head.size:,} rows; the last is row {last:,}"
    faults.add(Fault(kind="head", table="chain_head", what=what))
    return Head(size=last)


def _check_end(connection: sqlite3.Connection, head: Head, faults: Faults) -> None:
    """Names rows that stand after the chain's end when no writer put them there."""
    for record_type in CHAINED:
        sql = f"{select(record_type)} WHERE seq > ? ORDER BY seq LIMIT ?"
        beyond = rows_as_they_are(connection, sql, (head.size, FAULTS_LIMIT))
        now = read_head(connection) or head
        for row in beyond:
            if row[0] > now.size:
                what = f"the chain ends at {now.size}: the store never wrote this row"
                faults.add(fault_at("doubled", record_type, row, what))


def _check_checkpoint(builder: Builder, checkpoint: Checkpoint, faults: Faults) -> None:
    root = builder.root.hex()
    if root != checkpoint.root:
        what = (
            f"the first {checkpoint.size} rows have the root {root}, the checkpoint has "
            f"{checkpoint.root}: what it saw was rewritten"
        )
        faults.add(Fault(kind="checkpoint", what=what))


def _check_head(head: Head, builder: Builder, faults: Faults) -> None:
    """With every row in order, the head must be exactly where they lead."""
    try:
        stated = Builder(head).root
    except BadHead as error:
        faults.add(Fault(kind="head", table="chain_head", what=str(error)))
        return
    if head.entry_hash != builder.entry_hash or stated != builder.root:
        what = f"it doesn't agree with row {head.size}, the last: head or rows were rewritten"
        faults.add(Fault(kind="head", table="chain_head", what=what))


def _rate_tables(connection: sqlite3.Connection) -> dict[str, RateTable]:
    """The rate tables by version; one that can't be read is absent, and its receipts say so."""
    tables = {}
    for row in rows_as_they_are(connection, f"{select(RateTableRecord)} WHERE seq > ?", (0,)):
        try:
            record = record_of(RateTableRecord, row)
            tables[record.version] = msgspec.json.decode(record.body_json, type=RateTable)
        except (msgspec.DecodeError, TypeError, UnicodeError):
            continue
    return tables
