"""Rows that break a rule between records, each found by one statement (LED-1, LED-5, LED-6).

Each statement selects (seq, the id by which a person knows the row) of the rows at fault, among the
first :size rows of the chain. What is still under way when it is asked breaks none of these.
"""

import sqlite3
from collections.abc import Iterator, Sequence

from ledger.carrying import CARRIED, FIRST_ATTEMPT, source
from ledger.reading import fetch
from ledger.records import (
    CHAINED,
    RECORDS,
    Attempt,
    AttemptEvent,
    Record,
    Reservation,
    Settlement,
    label_field,
)
from ledger.rows import by_table

FOUND_LIMIT = 100  # rows named of one kind: enough to see what happened

Found = tuple[int, str]

# Rows of their own and carried ones (`ledger.carrying`). A receipt that closes its request is its
# attempt's end and its settlement itself: what compares it with those asks for the others only.
_RESERVATIONS, _SETTLEMENTS = source(Reservation), source(Settlement)
_ATTEMPTS, _EVENTS = source(Attempt), source(AttemptEvent)
_NOT_ITSELF = "coalesce(r.closes, 0) = 0"

_ENDED_COST = (
    "(SELECT sum(e.cost_pico) FROM attempt_event AS e "
    "WHERE e.request_id = r.request_id AND e.event = 'ended' AND e.seq < r.seq)"
)
_RESERVED = f"(SELECT reservation_id FROM {_RESERVATIONS} WHERE request_id = r.request_id)"
_CURRENT = (
    "NOT EXISTS (SELECT 1 FROM receipt WHERE request_id = r.request_id AND revision > r.revision)"
)

# Nearly all have one revision, which needs no look at whether several are distinct.
RECEIPT_REVISIONS = (
    "SELECT min(seq), request_id FROM receipt WHERE seq <= :size GROUP BY request_id "
    "HAVING min(revision) != 0 OR max(revision) != count(*) - 1 OR (max(revision) > 0 "
    "AND (SELECT count(DISTINCT revision) FROM receipt AS r WHERE r.request_id = "
    "receipt.request_id AND r.seq <= :size) != count(*)) ORDER BY 1"
)
# A retry or a hedge that was unknown beside an answer is resolved too: by an attempt's new end.
RESOLVES_NO_UNKNOWN = (
    "SELECT r.seq, r.request_id FROM receipt AS r LEFT JOIN receipt AS p "
    "ON p.request_id = r.request_id AND p.revision = r.revision - 1 "
    "WHERE r.seq <= :size AND r.revision > 0 AND (p.entry_hash IS NOT r.resolves_hash "
    "OR (p.status IS NOT 'unknown' AND (p.status IS NOT r.status OR NOT EXISTS "
    "(SELECT 1 FROM attempt_event AS e WHERE e.request_id = r.request_id AND e.event = 'ended' "
    "AND e.seq > p.seq AND e.seq < r.seq)))) ORDER BY r.seq"
)
WITHOUT_RECEIPT = (
    "SELECT seq, request_id FROM route_decision AS d WHERE seq <= :size AND NOT EXISTS "
    "(SELECT 1 FROM receipt WHERE request_id = d.request_id) ORDER BY seq"
)
RECEIPT_WITHOUT_DECISION = (
    "SELECT seq, request_id FROM receipt AS r WHERE seq <= :size AND NOT EXISTS "
    "(SELECT 1 FROM route_decision WHERE request_id = r.request_id) ORDER BY seq"
)
SETTLED_TWICE = (
    "SELECT max(seq), reservation_id FROM settlement WHERE seq <= :size "
    "GROUP BY reservation_id HAVING count(*) > 1 UNION ALL "
    "SELECT max(s.seq, r.seq), s.reservation_id FROM settlement AS s JOIN receipt AS r "
    "ON r.request_id = s.reservation_id AND r.closes = 1 WHERE max(s.seq, r.seq) <= :size "
    "ORDER BY 1"
)
SETTLED_WITHOUT_RESERVATION = (
    f"SELECT seq, reservation_id FROM {_SETTLEMENTS} AS s WHERE seq <= :size AND NOT EXISTS "
    f"(SELECT 1 FROM {_RESERVATIONS} WHERE reservation_id = s.reservation_id) ORDER BY seq"
)
# What was reserved is posted, released or written off, and an overrun is its own entry.
SETTLEMENT_UNBALANCED = (
    f"SELECT s.seq, s.reservation_id FROM {_SETTLEMENTS} AS s "
    f"JOIN {_RESERVATIONS} AS r ON r.reservation_id = s.reservation_id "
    "WHERE s.seq <= :size AND (s.kind NOT IN ('posted', 'voided', 'written_off') "
    "OR s.overrun_pico != max(0, s.cost_pico - r.cost_pico) OR s.cost_pico < 0 "
    "OR (s.kind = 'voided' AND s.cost_pico != 0)) ORDER BY s.seq"
)
# A request can have several reservations, one for each attempt. An attempt that was lost beside the
# one that answered is settled by evidence later: the receipt says what was known at its time.
SETTLEMENT_IS_NOT_RECEIPT = (
    "SELECT r.seq, r.request_id FROM receipt AS r WHERE r.seq <= :size AND r.status != 'unknown' "
    f"AND {_NOT_ITSELF} AND {_CURRENT} AND (SELECT sum(cost_pico) FROM settlement "
    f"WHERE reservation_id IN {_RESERVED} AND kind != 'written_off') != r.cost_total_pico "
    f"AND NOT EXISTS (SELECT 1 FROM {_RESERVATIONS} AS v JOIN open_hold AS h "
    "ON h.reservation_id = v.reservation_id "
    "WHERE v.request_id = r.request_id) AND (r.revision > 0 OR NOT EXISTS "
    f"(SELECT 1 FROM settlement WHERE reservation_id IN {_RESERVED} "
    "AND settled_by != 'gateway')) ORDER BY r.seq"
)
# The receipt that resolves an unknown costs what the evidence says, not what was seen at the time.
RECEIPT_IS_NOT_ATTEMPTS = (
    "SELECT r.seq, r.request_id FROM receipt AS r WHERE r.seq <= :size AND r.revision = 0 "
    f"AND {_NOT_ITSELF} AND r.attempts > 0 AND {_ENDED_COST} != r.cost_total_pico ORDER BY r.seq"
)
KEY_WITHOUT_REQUEST = (
    "SELECT seq, request_id FROM idempotency_key AS k WHERE seq <= :size AND NOT EXISTS "
    "(SELECT 1 FROM route_decision WHERE request_id = k.request_id "
    "AND tenant_id = k.tenant_id) AND NOT EXISTS (SELECT 1 FROM archived_request "
    "WHERE request_id = k.request_id AND tenant_id = k.tenant_id) ORDER BY seq"
)
# A request without a receipt is under way; one with a receipt and open money has to be an unknown,
# or to have an attempt that is one or that is under way.
HELD_BUT_NOT_UNKNOWN = (
    "SELECT h.seq, h.reservation_id FROM open_hold AS h "
    f"JOIN {_RESERVATIONS} AS v ON v.seq = h.seq "
    f"JOIN receipt AS r ON r.request_id = v.request_id AND {_CURRENT} "
    "WHERE h.seq <= :size AND r.status != 'unknown' AND NOT EXISTS "
    f"(SELECT 1 FROM {_ATTEMPTS} AS a WHERE a.request_id = v.request_id "
    f"AND NOT EXISTS (SELECT 1 FROM {_EVENTS} AS e WHERE e.request_id = a.request_id "
    "AND e.attempt_id = a.attempt_id AND e.event = 'ended' AND e.outcome != 'unknown')) "
    "ORDER BY h.seq"
)
NOT_HELD_BUT_UNKNOWN = (
    "SELECT r.seq, r.request_id FROM receipt AS r WHERE r.seq <= :size AND r.status = 'unknown' "
    f"AND {_CURRENT} AND EXISTS (SELECT 1 FROM {_RESERVATIONS} WHERE request_id = r.request_id) "
    f"AND NOT EXISTS (SELECT 1 FROM {_RESERVATIONS} AS v JOIN open_hold AS h "
    "ON h.reservation_id = v.reservation_id WHERE v.request_id = r.request_id) "
    f"AND NOT EXISTS (SELECT 1 FROM settlement WHERE reservation_id IN {_RESERVED} "
    "AND kind = 'written_off') ORDER BY r.seq"
)

ORPHANS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("reservation", ("request_id",), "route_decision"),
    ("attempt", ("request_id",), "reservation"),
    ("attempt_event", ("attempt_id", "request_id"), "attempt"),
    ("trace_event", ("request_id",), "route_decision"),
    ("api_key_revocation", ("key_id",), "api_key"),
    ("outcome_report", ("request_id",), "route_decision"),
)
"""(table, fields, the table that must have a row with the same): children and their parents."""

ORDERED: tuple[tuple[str, str], ...] = (
    ("receipt", "ended_at_us < accepted_at_us"),
    ("reservation", "bound_at_us < reserved_at_us"),
)
"""(table, what no row of it may be): times within a row."""

LATER: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("settlement", "settled_at_us", "reservation", "reserved_at_us", ("reservation_id",)),
    ("attempt_event", "at_us", "attempt", "started_at_us", ("attempt_id", "request_id")),
    ("receipt", "ended_at_us", "route_decision", "decided_at_us", ("request_id",)),
)
"""(table, its time, the table it follows, that one's time, the fields they share)."""

NEGATIVE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reservation", ("cost_pico", "kv_tokens", "input_tokens", "output_tokens")),
    (
        "receipt",
        (
            "cost_input_pico", "cost_cached_input_pico", "cost_output_pico", "cost_fixed_pico",
            "cost_retry_and_hedge_pico", "cost_total_pico", "input_tokens", "output_tokens",
            "cached_input_tokens", "e2e_us",
        ),
    ),
    ("attempt_event", ("cost_pico", "input_tokens", "cached_input_tokens", "output_tokens")),
)  # fmt: skip
"""(table, fields that are amounts, counts or durations): below nought is never right (CST-6)."""


_KEYS_CARRIED = (
    ("reservation", "reservation_id", "route_decision",
     "c.request_id = o.reservation_id AND c.hold_kv_tokens IS NOT NULL"),
    ("attempt", "attempt_id", "route_decision",
     f"c.request_id = o.request_id AND o.attempt_id = c.request_id || '{FIRST_ATTEMPT}' "
     "AND c.attempt_kind IS NOT NULL"),
    ("settlement", "reservation_id", "receipt",
     "c.request_id = o.reservation_id AND c.closes = 1"),
)  # fmt: skip
"""(table, its key, a table whose rows can carry such a record, where one has the same key)."""


def violations(connection: sqlite3.Connection, sql: str, size: int) -> list[Found]:
    """(seq, label) of the rows that a statement of this module finds; FOUND_LIMIT at most."""
    return [
        (int(seq), str(label))
        for seq, label in fetch(connection, f"{sql} LIMIT {FOUND_LIMIT}", {"size": size})
    ]


def orphans(table: str, fields: Sequence[str], parent: str) -> str:
    same = " AND ".join(f"{field} = c.{field}" for field in fields)
    return (
        f"SELECT seq, {fields[0]} FROM {rows_of(table)} AS c WHERE seq <= :size AND NOT EXISTS "
        f"(SELECT 1 FROM {rows_of(parent)} WHERE {same}) ORDER BY seq"
    )


def rows_of(table: str) -> str:
    """What to ask for the rows of a record: its table, and where others carry it, those as well."""
    record_type = by_table()[table]
    return source(record_type) if record_type in CARRIED else table


def out_of_order(table: str, condition: str) -> str:
    label = label_of(table)
    return (
        f"SELECT seq, {label} FROM {rows_of(table)} WHERE seq <= :size AND {condition} ORDER BY seq"
    )


def too_early(table: str, time: str, parent: str, parent_time: str, fields: Sequence[str]) -> str:
    same = " AND ".join(f"p.{field} = c.{field}" for field in fields)
    return (
        f"SELECT c.seq, c.{fields[0]} FROM {rows_of(table)} AS c "
        f"JOIN {rows_of(parent)} AS p ON {same} "
        f"WHERE c.seq <= :size AND c.{time} < p.{parent_time} ORDER BY c.seq"
    )


def negative(table: str, fields: Sequence[str]) -> str:
    return out_of_order(table, "(" + " OR ".join(f"{field} < 0" for field in fields) + ")")


def repeated_keys() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(table, fields, statement) for every key of every record: it finds the later of two rows."""
    for record_type in RECORDS:
        for fields in record_type.UNIQUE:
            names = ", ".join(fields)
            yield (
                record_type.TABLE,
                fields,
                f"SELECT max(seq), {fields[0]} FROM {record_type.TABLE} WHERE seq <= :size "
                f"GROUP BY {names} HAVING count(*) > 1 ORDER BY 1",
            )
    for table, field, carrier, key in _KEYS_CARRIED:
        yield (
            table,
            (field,),
            f"SELECT max(o.seq, c.seq), o.{field} FROM {table} AS o JOIN {carrier} AS c "
            f"ON {key} WHERE max(o.seq, c.seq) <= :size ORDER BY 1",
        )


def rows_beyond_and_within(connection: sqlite3.Connection, size: int) -> tuple[int, int]:
    """(rows of all tables up to `size`, the highest seq of any): the chain's rows, counted."""
    counts = [_count(connection, record_type, size) for record_type in CHAINED]
    return sum(count for count, _ in counts), max(last for _, last in counts)


def _count(connection: sqlite3.Connection, record_type: type[Record], size: int) -> tuple[int, int]:
    sql = (
        f"SELECT (SELECT count(*) FROM {record_type.TABLE} WHERE seq <= ?), "
        f"(SELECT coalesce(max(seq), 0) FROM {record_type.TABLE})"
    )
    row = fetch(connection, sql, (size,))[0]
    return row[0], row[1]


def label_of(table: str) -> str:
    """The column by which a person knows a row of a table."""
    return next(label_field(kind) for kind in RECORDS if table == kind.TABLE)
