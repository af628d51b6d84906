"""Lists of receipts, newest first: filtered, paged by key, never by offset.

Each page walks one index from the cursor on and looks at SCAN_LIMIT rows at most; where rare
matches are further away it says how far it got, and the next page goes on from there. Only the
current receipt of a request is listed: one that a later revision replaced is not. What is looked
at in the walk is what the filter asks for; what is shown is read of the page's receipts alone.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec

from ledger.queries.distinct import distinct
from ledger.reading import fetch
from ledger.receipt_cost import unpriced
from ledger.records import Receipt
from ledger.rows import Stored, select, stored

PAGE_LIMIT = 200
SCAN_LIMIT = 10_000
REQUEST_ID_LIMIT_CHARS = 128
OPTIONS_LIMIT = 200

Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFilter:
    """What to list: each field given has to match; "" matches a receipt that has none.

    Times: since_us <= accepted_at_us < until_us.
    """

    request_id: str | None = None
    tenant_id: str | None = None
    status: str | None = None
    reason_code: str | None = None
    route_id: str | None = None
    logical_model: str | None = None
    identity_id: str | None = None
    priority: str | None = None
    user_path: str | None = None
    release_id: str | None = None
    arm: str | None = None
    degraded: bool | None = None
    since_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place in the list, and the direction in which the page lies from it."""

    accepted_at_us: int
    seq: int
    towards: Literal["older", "newer"]


class Listed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a list shows of a receipt."""

    seq: int
    request_id: str
    accepted_at_us: int
    status: str
    terminal_error_code: str | None
    degraded_from: str | None
    schema_valid: int | None
    tenant_id: str
    logical_model: str
    route_id: str | None
    priority: str
    input_tokens: int
    output_tokens: int
    queue_us: int | None
    first_token_us: int | None
    e2e_us: int
    deadline_us: int
    rate_key: str | None
    cost_total_pico: int
    usage_source: str | None

    @property
    def unpriced(self) -> bool:
        """Whether it ran without a rate."""
        return unpriced(self)


Shown = TypeVar("Shown", Stored[Receipt], Listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptPage(Generic[Shown]):
    """Receipts newest first; the cursors of the pages beside it, None where the list ends.

    `searched_to_us`: this page is not full because the search stopped there, not for want of more.
    """

    receipts: tuple[Shown, ...]
    newer: Cursor | None
    older: Cursor | None
    searched_to_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A page by the seqs of its receipts."""

    seqs: Sequence[int]
    newer: Cursor | None = None
    older: Cursor | None = None
    searched_to_us: int | None = None


# The most selective first: the index of the first whose fields are all given is walked; of none,
# the time's. `completed` is the end of nearly every request: the indexes of a status are without
# it, and as a filter it leaves nearly all.
_INDEXES = (
    ("receipt_reason", ("reason_code",)),
    ("receipt_tenant_status", ("tenant_id", "status")),
    ("receipt_status", ("status",)),
    ("receipt_tenant", ("tenant_id",)),
    ("receipt_route", ("route_id",)),
    ("receipt_model", ("logical_model",)),
)
_MOST = "completed"
_FIELDS = (  # of the filter, and the column that each is compared with
    ("reason_code", "terminal_error_code"),
    *((name, name) for name in ("tenant_id", "status", "route_id", "logical_model")),
    *((name, name) for name in ("identity_id", "priority", "user_path", "release_id", "arm")),
)
_COLUMNS = dict(_FIELDS)
_CURRENT = (
    "NOT EXISTS (SELECT 1 FROM receipt AS later "
    "WHERE later.request_id = found.request_id AND later.revision > found.revision)"
)


def receipt_page(
    connection: sqlite3.Connection,
    wanted: ReceiptFilter,
    cursor: Cursor | None = None,
    *,
    limit: int = 50,
) -> ReceiptPage[Stored[Receipt]]:
    """The page that lies at the cursor; without one the newest. ValueError above PAGE_LIMIT."""
    found = _find(connection, wanted, cursor, limit)
    receipts = _whole(connection, found.seqs)
    return ReceiptPage(
        receipts=receipts,
        newer=found.newer,
        older=found.older,
        searched_to_us=found.searched_to_us,
    )


def receipt_list(
    connection: sqlite3.Connection,
    wanted: ReceiptFilter,
    cursor: Cursor | None = None,
    *,
    limit: int = 50,
) -> ReceiptPage[Listed]:
    """As `receipt_page`, of each receipt what a list shows: half the time of a page."""
    found = _find(connection, wanted, cursor, limit)
    return ReceiptPage(
        receipts=_listed(connection, found.seqs),
        newer=found.newer,
        older=found.older,
        searched_to_us=found.searched_to_us,
    )


def _find(
    connection: sqlite3.Connection, wanted: ReceiptFilter, cursor: Cursor | None, limit: int
) -> _Found:
    if not 1 <= limit <= PAGE_LIMIT:
        raise ValueError(f"a page has 1 to {PAGE_LIMIT} receipts, not {limit}")
    if wanted.request_id is not None:
        return _Found(seqs=_of_request(connection, wanted))
    newest_first = cursor is None or cursor.towards == "older"
    index, walked = _index(wanted)
    left = [one for one in _FIELDS if one[0] not in walked]  # the index gives the others
    walk, walk_values = _walk(wanted, cursor, index, walked, left)
    rest, rest_values = _rest(wanted, left)
    keys = fetch(
        connection,
        f"SELECT found.accepted_at_us, found.seq FROM ({walk}) AS found "
        f"WHERE {' AND '.join((*rest, _CURRENT))} LIMIT ?",
        (*walk_values, *rest_values, limit + 1),
    )
    shown, more = keys[:limit], len(keys) > limit
    end = shown[-1] if more else None
    stopped = None if more else _stopped_at(connection, walk, walk_values)
    if stopped is not None:
        end = stopped
    beyond = None if end is None else _cursor(end, "older" if newest_first else "newer")
    if not newest_first:
        shown.reverse()
    back = _back(shown, cursor, newest_first=newest_first)
    return _Found(
        seqs=[key[1] for key in shown],
        newer=back if newest_first else beyond,
        older=beyond if newest_first else back,
        searched_to_us=None if stopped is None else int(stopped[0]),
    )


def _index(wanted: ReceiptFilter) -> tuple[str, tuple[str, ...]]:
    """The index to walk along, and the fields of the filter that it answers."""
    for name, fields in _INDEXES:
        given = [getattr(wanted, field) for field in fields]
        if all(given) and not ("status" in fields and wanted.status == _MOST):
            return name, fields
    return "receipt_time", ()


def _walk(
    wanted: ReceiptFilter,
    cursor: Cursor | None,
    index: str,
    walked: tuple[str, ...],
    left: Sequence[tuple[str, str]],
) -> tuple[str, list[Value]]:
    """The bounded walk along the index, in the page's direction, and its values."""
    conditions = [f"{_COLUMNS[field]} = ?" for field in walked]
    values: list[Value] = [getattr(wanted, field) for field in walked]
    if "status" in walked:
        conditions.append(f"NOT (status = '{_MOST}')")  # as the index says it
    if wanted.since_us is not None:
        conditions.append("accepted_at_us >= ?")
        values.append(wanted.since_us)
    if wanted.until_us is not None:
        conditions.append("accepted_at_us < ?")
        values.append(wanted.until_us)
    newest_first = cursor is None or cursor.towards == "older"
    if cursor is not None:
        sign = "<" if newest_first else ">"
        conditions += [f"accepted_at_us {sign}= ?", f"(accepted_at_us, seq) {sign} (?, ?)"]
        values += [cursor.accepted_at_us, cursor.accepted_at_us, cursor.seq]
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    order = "DESC" if newest_first else "ASC"
    # No more than is asked for: SQLite reads each of these columns of every row it walks over.
    asked = [column for field, column in left if getattr(wanted, field) is not None]
    columns = dict.fromkeys(("request_id", "revision", *asked))
    if wanted.degraded is not None:
        columns["degraded_from"] = None
    sql = (
        f"SELECT seq, accepted_at_us, {', '.join(columns)} "
        f"FROM receipt INDEXED BY {index} {where}"
        f"ORDER BY accepted_at_us {order}, seq {order} LIMIT {SCAN_LIMIT}"
    )
    return sql, values


def _rest(wanted: ReceiptFilter, left: Sequence[tuple[str, str]]) -> tuple[list[str], list[Value]]:
    """The conditions on what the walk finds, and their values."""
    conditions, values = list[str](), list[Value]()
    for field, column in left:
        value = getattr(wanted, field)
        if value == "":
            conditions.append(f"found.{column} IS NULL")
        elif value is not None:
            conditions.append(f"found.{column} = ?")
            values.append(value)
    if wanted.degraded is not None:
        conditions.append(f"found.degraded_from IS {'NOT ' if wanted.degraded else ''}NULL")
    return conditions, values


def _stopped_at(
    connection: sqlite3.Connection, walk: str, values: Sequence[Value]
) -> sqlite3.Row | None:
    """The last key that the walk looked at, where its limit and not the list's end stopped it."""
    keys = fetch(
        connection,
        f"SELECT accepted_at_us, seq FROM ({walk})",
        values,
    )
    return keys[-1] if len(keys) == SCAN_LIMIT else None


def _back(
    shown: Sequence[sqlite3.Row], cursor: Cursor | None, *, newest_first: bool
) -> Cursor | None:
    """The cursor of the page that the reader came from; None on the newest page."""
    if cursor is None:
        return None
    if not shown:
        return Cursor(
            accepted_at_us=cursor.accepted_at_us,
            seq=cursor.seq,
            towards="newer" if newest_first else "older",
        )
    return _cursor(shown[0], "newer") if newest_first else _cursor(shown[-1], "older")


def _cursor(key: sqlite3.Row, towards: Literal["older", "newer"]) -> Cursor:
    return Cursor(accepted_at_us=key[0], seq=key[1], towards=towards)


def _whole(connection: sqlite3.Connection, seqs: Sequence[int]) -> tuple[Stored[Receipt], ...]:
    if not seqs:
        return ()
    marks = ", ".join("?" * len(seqs))
    rows = fetch(connection, f"{select(Receipt)} WHERE seq IN ({marks})", seqs)
    by_seq = {row[0]: stored(Receipt, row) for row in rows}
    return tuple(by_seq[seq] for seq in seqs)


# As one text of JSON, which SQLite writes in half the time that Python takes to fetch the columns.
_LIST = f"SELECT json_group_array(json_array({', '.join(Listed.__struct_fields__)})) FROM receipt"
_decode_list = msgspec.json.Decoder(list[Listed]).decode


def _listed(connection: sqlite3.Connection, seqs: Sequence[int]) -> tuple[Listed, ...]:
    if not seqs:
        return ()
    marks = ", ".join("?" * len(seqs))
    rows = fetch(connection, f"{_LIST} WHERE seq IN ({marks})", seqs)
    by_seq = {one.seq: one for one in _decode_list(rows[0][0])}
    return tuple(by_seq[seq] for seq in seqs)


def _of_request(connection: sqlite3.Connection, wanted: ReceiptFilter) -> list[int]:
    """The current receipt of the request that is asked for by its id, whatever else is asked."""
    request_id = (wanted.request_id or "")[:REQUEST_ID_LIMIT_CHARS]
    sql = "SELECT seq FROM receipt WHERE request_id = ? ORDER BY revision DESC LIMIT 1"
    return [row[0] for row in fetch(connection, sql, (request_id,))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the filters can offer: the values that occur, in order."""

    tenants: tuple[str, ...]
    routes: tuple[str, ...]
    logical_models: tuple[str, ...]
    reason_codes: tuple[str, ...]


def filter_options(connection: sqlite3.Connection) -> Options:
    """The values that receipts have, found by skipping along the indexes: no scan."""
    return Options(
        tenants=_values(connection, "tenant_id", "receipt_tenant"),
        routes=_values(connection, "route_id", "receipt_route"),
        logical_models=_values(connection, "logical_model", "receipt_model"),
        reason_codes=_values(connection, "terminal_error_code", "receipt_reason"),
    )


def _values(connection: sqlite3.Connection, column: str, index: str) -> tuple[str, ...]:
    return distinct(connection, "receipt", column, index, limit=OPTIONS_LIMIT)
