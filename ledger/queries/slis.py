"""Service level indicators by slice, exact, from the receipts of a window (SLO-1, SLO-7)."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from ledger.quantiles import interval_ranks, nearest_rank
from ledger.slo import CAPACITY_CODES, user_cancelled_unserved, valid_completion

ROWS_LIMIT = 4_000  # receipts, the newest of the window: read one by one while a page waits
SLICES_LIMIT = 200
Slice = Literal[
    "identity",
    "route",
    "arm",
    "tenant",
    "priority",
    "user_path",
    "input_tokens",
    "output_tokens",
    "degraded",
]
SLICES: tuple[Slice, ...] = get_args(Slice)
TOKEN_BOUNDS = (256, 1_024, 4_096, 16_384)  # upper bounds of buckets, exclusive


class Row(NamedTuple):
    """What is read of a receipt."""

    tenant_id: str
    identity_id: str | None
    route_id: str | None
    release_id: str | None
    arm: str | None
    priority: str
    user_path: str
    status: str
    degraded_from: str | None
    first_token_us: int | None
    queue_us: int | None
    itl_mean_us: int | None
    e2e_us: int
    deadline_us: int
    schema_valid: int | None
    terminal_error_code: str | None
    cancel_ack_us: int | None
    input_tokens: int
    output_tokens: int
    cost_total_pico: int
    rate_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Indicators:
    """One slice. Quantiles are nearest rank; None: nothing was measured, which is no zero."""

    name: str  # the slice's value
    received: int
    accepted: int
    ttft_us: Mapping[int, int]  # percent -> µs, of 50, 95, 99; empty: nothing was measured
    ttft_p99_interval_us: tuple[int | None, int | None]  # in which it lies at 95 %; None: unbounded
    itl_p95_us: int | None
    queue_p95_us: int | None
    cancel_ack_p95_us: int | None
    valid: int  # of `judged`, valid completions (SLO-0)
    judged: int
    degraded: int  # of `completed`
    completed: int
    rejected: Mapping[str, int]  # by reason
    rejected_for_capacity: int  # policy and budget rejections are none of these
    cost_pico: int
    valid_priced: int  # of `valid`: a rate said what it cost

    @property
    def cost_per_valid_pico(self) -> int | None:
        """What a valid result cost, with what was spent on the others; rounded down.

        Of results that have a price; None where none has."""
        return self.cost_pico // self.valid_priced if self.valid_priced else None


_SQL = (
    f"SELECT accepted_at_us, {', '.join(Row._fields)} "
    "FROM receipt AS found INDEXED BY receipt_time "
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND NOT EXISTS (SELECT 1 "
    "FROM receipt AS later WHERE later.request_id = found.request_id "
    "AND later.revision > found.revision) ORDER BY accepted_at_us DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliced:
    """The indicators of each value of a slice, and from when on its receipts were read."""

    slices: tuple[Indicators, ...]
    start_us: int
    whole: bool  # False: the window has more than ROWS_LIMIT, and the newest stand for them


def indicators(connection: sqlite3.Connection, start_us: int, end_us: int, by: Slice) -> Sliced:
    """The indicators of each value of a slice in [start, end), the busiest first.

    Of more than ROWS_LIMIT receipts the newest are read, exactly: the answer says since when.
    """
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples: thousands of rows
    rows = cursor.execute(_SQL, (start_us, end_us, ROWS_LIMIT + 1)).fetchall()
    whole = len(rows) <= ROWS_LIMIT
    value_of, parts = _VALUE[by], defaultdict[str, list[Row]](list)
    for _, *values in rows[:ROWS_LIMIT]:
        row = Row._make(values)
        parts[value_of(row)].append(row)
    found = [_indicators(name, part) for name, part in parts.items()]
    found.sort(key=lambda one: (-one.received, one.name))
    return Sliced(
        slices=tuple(found[:SLICES_LIMIT]),
        start_us=start_us if whole else rows[ROWS_LIMIT - 1][0],
        whole=whole,
    )


def _indicators(name: str, rows: list[Row]) -> Indicators:
    accepted = [row for row in rows if row.status != "rejected"]
    judged = [row for row in accepted if not user_cancelled_unserved(row)]
    completed = [row for row in accepted if row.status == "completed"]
    rejected = Counter(row.terminal_error_code or "" for row in rows if row.status == "rejected")
    first = sorted(row.first_token_us for row in accepted if row.first_token_us is not None)
    return Indicators(
        name=name,
        received=len(rows),
        accepted=len(accepted),
        ttft_us={percent: nearest_rank(first, percent, 100) for percent in (50, 95, 99) if first},
        ttft_p99_interval_us=_interval(first, 99),
        itl_p95_us=_p95(row.itl_mean_us for row in accepted),
        queue_p95_us=_p95(row.queue_us for row in accepted),
        cancel_ack_p95_us=_p95(row.cancel_ack_us for row in accepted),
        valid=sum(valid_completion(row) for row in judged),
        judged=len(judged),
        degraded=sum(row.degraded_from is not None for row in completed),
        completed=len(completed),
        rejected=dict(sorted(rejected.items(), key=lambda item: (-item[1], item[0]))),
        rejected_for_capacity=sum(rejected[code] for code in CAPACITY_CODES),
        cost_pico=sum(row.cost_total_pico for row in rows),
        valid_priced=sum(valid_completion(row) for row in judged if row.rate_key is not None),
    )


def _interval(ordered: Sequence[int], percent: int) -> tuple[int | None, int | None]:
    low, high = interval_ranks(len(ordered), percent, 100)
    return (
        None if low is None else ordered[low - 1],
        None if high is None else ordered[high - 1],
    )


def _p95(values: Iterable[int | None]) -> int | None:
    ordered = sorted(value for value in values if value is not None)
    return nearest_rank(ordered, 95, 100) if ordered else None


def _bucket(tokens: int) -> str:
    for bound in TOKEN_BOUNDS:
        if tokens < bound:
            return f"under {bound}"
    return f"{TOKEN_BOUNDS[-1]} and more"


_VALUE: Mapping[Slice, Callable[[Row], str]] = {
    "identity": lambda row: row.identity_id or "",
    "route": lambda row: row.route_id or "",
    "arm": lambda row: f"{row.release_id}/{row.arm}" if row.release_id and row.arm else "",
    "tenant": lambda row: row.tenant_id,
    "priority": lambda row: row.priority,
    "user_path": lambda row: row.user_path,
    "input_tokens": lambda row: _bucket(row.input_tokens),
    "output_tokens": lambda row: _bucket(row.output_tokens),
    "degraded": lambda row: "degraded" if row.degraded_from is not None else "normal",
}
