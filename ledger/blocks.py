"""A block of consecutive rows checked at once: the common case, in which nothing is wrong.

What is checked is what `ledger.walk` checks row by row; where anything at all is out of order no
more is said than that, and the walk goes over the block to name it. A block needs nothing of the
ones before but the hash of the row before it, which is stored: blocks can be checked anywhere.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from operator import itemgetter
from typing import Any

import msgspec
import orjson

from ledger.chain import LEAF_PREFIX, NODE_PREFIX
from ledger.rates import RateTable
from ledger.reading import entry_hash_at
from ledger.receipt_cost import Charged, cost_fault
from ledger.records import RECORDS, ArchivedRow, Receipt, Record
from ledger.rows import field_names

Row = tuple[Any, ...]

_ARCHIVED = f"SELECT seq, entry_hash, leaf FROM {ArchivedRow.TABLE} WHERE seq BETWEEN ? AND ?"  # noqa: S608 - own name


class Sound(msgspec.Struct, frozen=True, kw_only=True):
    """A block without fault: the hash before it, its last one, and its leaves' perfect subtrees.

    `peaks` are (height, root), the largest first: of a whole block there is one.
    """

    first: int
    last: int
    hash_before: bytes
    last_hash: bytes
    peaks: tuple[tuple[int, bytes], ...]


def check_block(
    connection: sqlite3.Connection, first: int, last: int, tables: Mapping[str, RateTable]
) -> Sound | None:
    """The rows `first` to `last`, each of them there once and exact; None where one is not.

    `first` - 1 is a multiple of BLOCK_ROWS, and the block is no longer than that.
    """
    count = last - first + 1
    leaves: list[bytes] = [b""] * count
    hashes: list[bytes] = [b""] * count
    found = 0
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        for record_type in RECORDS:
            rows = cursor.execute(_select(record_type), (first, last)).fetchall()
            found += len(rows)
            current = record_type.VERSION
            for row in rows:
                covered = row[:-1] if row[1] == current else _of_older(record_type, row)
                place = row[2] - first
                encoded = orjson.dumps(covered, default=bytes.hex)
                leaves[place] = sha256(LEAF_PREFIX + encoded).digest()
                hashes[place] = row[-1]
            if record_type is Receipt and not all(_exact(row, tables) for row in rows):
                return None
        for seq, entry_hash, leaf in cursor.execute(_ARCHIVED, (first, last)).fetchall():
            found += 1
            leaves[seq - first], hashes[seq - first] = bytes(leaf), entry_hash
        hash_before = entry_hash_at(connection, first - 1)
    except (sqlite3.DatabaseError, TypeError, ValueError, LookupError, OverflowError, MemoryError):
        return None  # unreadable, or a value that was never written
    if found != count or hash_before is None or not _chained(hash_before, leaves, hashes):
        return None
    return Sound(
        first=first,
        last=last,
        hash_before=hash_before,
        last_hash=hashes[-1],
        peaks=_subtrees(leaves),
    )


def _chained(before: bytes, leaves: Sequence[bytes], hashes: Sequence[bytes]) -> bool:
    """Whether each row's hash is that of its leaf and the hash of the row before."""
    for leaf, stored in zip(leaves, hashes, strict=True):
        if not leaf or sha256(NODE_PREFIX + before + leaf).digest() != stored:
            return False
        before = stored
    return True


def _subtrees(leaves: Sequence[bytes]) -> tuple[tuple[int, bytes], ...]:
    """(height, root) of the perfect subtrees over the leaves, the largest first."""
    peaks, level, height = [], list(leaves), 0
    while level:
        if len(level) % 2:
            peaks.append((height, level.pop()))
        level = [
            sha256(NODE_PREFIX + left + right).digest()
            for left, right in zip(level[::2], level[1::2], strict=True)
        ]
        height += 1
    return tuple(reversed(peaks))


def _exact(row: Row, tables: Mapping[str, RateTable]) -> bool:
    """Whether a receipt's cost is what its rates give, and a first revision resolves nothing."""
    charged = Charged._make(_charged(row))
    if charged.revision == 0 and charged.resolves_hash is not None:
        return False
    return cost_fault(charged, tables) is None


_charged = itemgetter(*[3 + Receipt.__struct_fields__.index(field) for field in Charged._fields])


@cache
def _select(record_type: type[Record]) -> str:
    """The rows of a range as what their leaf covers, in its order, and then their hash."""
    fields = ", ".join(record_type.__struct_fields__)
    return (
        f"SELECT '{record_type.TABLE}', v, seq, {fields}, entry_hash "  # noqa: S608 - own names
        f"FROM {record_type.TABLE} WHERE seq BETWEEN ? AND ?"
    )


def _of_older(record_type: type[Record], row: Row) -> Row:
    """What the leaf of a row of an older version covers. ValueError for a version never written."""
    version = row[1]
    if type(version) is not int or not 1 <= version < record_type.VERSION:
        raise ValueError(version)
    covered: Row = _covered(record_type, version)(row)
    return covered


@cache
def _covered(record_type: type[Record], version: int) -> Callable[[Row], Any]:
    """Picks table, version, seq and the fields of that version out of a row that was selected."""
    present = frozenset(field_names(record_type, version))
    fields = enumerate(record_type.__struct_fields__, start=3)
    return itemgetter(0, 1, 2, *(place for place, name in fields if name in present))
