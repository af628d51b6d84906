"""A block of consecutive rows checked at once: the common case, in which nothing is wrong.

What is checked is what `ledger.walk` checks row by row; where anything at all is out of order no
more is said than that, and the walk goes over the block to name it. A block needs nothing of the
ones before but the hash of the row before it, which is stored: blocks can be checked anywhere.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import Any

import msgspec
import orjson

from ledger.chain import LEAF_PREFIX, NODE_PREFIX
from ledger.rates import RateTable
from ledger.reading import entry_hash_at
from ledger.receipt_cost import Charged, FlatRate, RateName, cost_fault, flat_rates
from ledger.records import RECORDS, ArchivedRow, Receipt, Record
from ledger.rows import columns, field_names

Row = tuple[Any, ...]
Usual = list[RateName]  # the flat rates that priced receipts lately

USUAL_LIMIT = 16  # rates that one statement is given
STATEMENTS_LIMIT = 64
_BATCH = "batch"  # `rates.batch_priced`

_ARCHIVED = f"SELECT seq, entry_hash, leaf FROM {ArchivedRow.TABLE} WHERE seq BETWEEN ? AND ?"


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
    connection: sqlite3.Connection,
    first: int,
    last: int,
    tables: Mapping[str, RateTable],
    usual: Usual | None = None,
) -> Sound | None:
    """The rows `first` to `last`, each of them there once and exact; None where one is not.

    `first` - 1 is a multiple of BLOCK_ROWS, and the block is no longer than that. `usual`: the
    flat rates of the blocks before, of these tables, and then of this one too; it makes the check
    of costs cheaper, not another.
    """
    usual = [] if usual is None else usual
    count = last - first + 1
    leaves: list[bytes] = [b""] * count
    hashes: list[bytes] = [b""] * count
    found = 0
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        for record_type in RECORDS:
            rows = cursor.execute(_covered(record_type), (first, last)).fetchall()
            found += len(rows)
            older = False
            for seq, covered, entry_hash in rows:
                if covered is None:
                    older = True
                else:
                    leaves[seq - first] = sha256(LEAF_PREFIX + covered).digest()
                hashes[seq - first] = entry_hash
            for row in _older(cursor, record_type, first, last) if older else ():
                encoded = orjson.dumps(_of_older(record_type, row), default=bytes.hex)
                leaves[row[2] - first] = sha256(LEAF_PREFIX + encoded).digest()
            if (
                record_type is Receipt
                and rows
                and not _all_exact(cursor, first, last, tables, usual)
            ):
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


def _all_exact(
    cursor: sqlite3.Cursor, first: int, last: int, tables: Mapping[str, RateTable], usual: Usual
) -> bool:
    """Whether each receipt costs what its rates give, and no first revision resolves another.

    SQLite computes those of usual rates, which are nearly all; the others are read and computed,
    and a flat rate that priced one of them is usual from then on.
    """
    flat = flat_rates(tables)
    known: dict[str, Any] = {"first": first, "last": last}
    for number, (version, key) in enumerate(usual):
        known |= {f"v{number}": version, f"k{number}": key}
    sql = _doubtful(tuple([flat[name] for name in usual]))
    for row in cursor.execute(sql, known).fetchall():
        charged = Charged._make(row)
        if charged.revision == 0 and charged.resolves_hash is not None:
            return False
        if cost_fault(charged, tables) is not None:
            return False
        name = (charged.rate_table_version, charged.rate_key or "")
        if name in flat and name not in usual:
            usual.append(name)
            del usual[:-USUAL_LIMIT]
    return True


@lru_cache(STATEMENTS_LIMIT)
def _doubtful(rates: tuple[FlatRate, ...]) -> str:
    """The receipts of a range that are not plainly exact by one of the rates, or by none.

    As `receipt_cost.cost_fault` of a flat rate and of none. A product beyond 64 bits is a float to
    SQLite, which no column then equals; NULL or text where a number belongs is not true either.
    """
    priced = " ".join(
        f"WHEN rate_key = :k{number} AND rate_table_version = :v{number} THEN "
        f"cost_input_pico = (input_tokens - cached_input_tokens) * {rate.input_micro} "
        f"AND cost_cached_input_pico = cached_input_tokens * {rate.cached_micro} "
        f"AND cost_output_pico = output_tokens * {rate.output_micro} "
        f"AND cost_fixed_pico = {rate.fixed_pico} "
        f"AND accepted_at_us >= {rate.from_us} AND accepted_at_us < {rate.until_us} "
        f"{'' if rate.batch else f'AND priority != {_BATCH!r} '}"
        for number, rate in enumerate(rates)
    )
    return (
        f"SELECT {', '.join(Charged._fields)} FROM {Receipt.TABLE} "
        "WHERE seq BETWEEN :first AND :last AND ("
        "(revision > 0 OR resolves_hash IS NULL) AND coalesce(cost_other_pico, 0) = 0 "
        "AND cost_total_pico = cost_input_pico + cost_cached_input_pico + cost_output_pico "
        "+ cost_fixed_pico + cost_retry_and_hedge_pico AND CASE WHEN rate_key IS NULL "
        "THEN cost_input_pico = 0 AND cost_cached_input_pico = 0 AND cost_output_pico = 0 "
        "AND cost_fixed_pico = 0 WHEN usage_json IS NOT NULL OR output_tokens < 0 "
        "OR cached_input_tokens < 0 OR cached_input_tokens > input_tokens THEN 0 "
        f"{priced}END) IS NOT TRUE"
    )


@cache
def _covered(record_type: type[Record]) -> str:
    """The rows of a range: seq, the bytes that the leaf covers (`chain.canonical`), entry_hash.

    SQLite writes the same JSON as the writer did, at half the cost of fetching every field. Where
    it did not, the hash would differ and the walk would say of what. NULL: of an older version.
    """
    values = ", ".join(
        f"CASE typeof({column.name}) WHEN 'blob' THEN lower(hex({column.name})) "
        f"ELSE {column.name} END"
        if column.kind is bytes
        else column.name
        for column in columns(record_type)
    )
    return (
        f"SELECT seq, CASE v WHEN {record_type.VERSION} THEN CAST(json_array("
        f"'{record_type.TABLE}', v, seq, {values}) AS BLOB) END, entry_hash "
        f"FROM {record_type.TABLE} WHERE seq BETWEEN ? AND ?"
    )


def _older(
    cursor: sqlite3.Cursor, record_type: type[Record], first: int, last: int
) -> Iterator[Row]:
    """The rows of a range that another version wrote: table, v, seq and all fields."""
    fields = ", ".join(record_type.__struct_fields__)
    yield from cursor.execute(
        f"SELECT '{record_type.TABLE}', v, seq, {fields} FROM {record_type.TABLE} "
        f"WHERE seq BETWEEN ? AND ? AND v IS NOT {record_type.VERSION}",
        (first, last),
    ).fetchall()


def _of_older(record_type: type[Record], row: Row) -> Row:
    """What the leaf of a row of an older version covers. ValueError for a version never written."""
    version = row[1]
    if type(version) is not int or not 1 <= version < record_type.VERSION:
        raise ValueError(version)
    covered: Row = _picked(record_type, version)(row)
    return covered


@cache
def _picked(record_type: type[Record], version: int) -> Callable[[Row], Any]:
    """Picks table, version, seq and the fields of that version out of a row that was selected."""
    present = frozenset(field_names(record_type, version))
    fields = enumerate(record_type.__struct_fields__, start=3)
    return itemgetter(0, 1, 2, *(place for place, name in fields if name in present))
