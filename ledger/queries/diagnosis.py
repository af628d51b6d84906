"""What a window's receipts and snapshots say, as evidence for a diagnosis (DIA-1)."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledger.diagnosis import Finding, Picture, diagnose
from ledger.quantiles import nearest_rank
from ledger.reading import fetch
from ledger.slo import valid_completion

RECEIPTS_LIMIT = 10_000  # the newest of a window: more say no more of a p99
SNAPSHOTS_LIMIT = 20_000


class Seen(NamedTuple):
    """What is read of a receipt."""

    accepted_at_us: int
    tenant_id: str
    identity_id: str | None
    route_id: str | None
    snapshot_revision: int | None
    status: str
    terminal_error_code: str | None
    degraded_from: str | None
    first_token_us: int | None
    queue_us: int | None
    prefill_us: int | None
    itl_mean_us: int | None
    e2e_us: int
    deadline_us: int
    schema_valid: int | None
    input_tokens: int
    output_tokens: int
    cost_total_pico: int


_RECEIPTS = (
    f"SELECT {', '.join(Seen._fields)} FROM receipt AS found INDEXED BY receipt_time "  # noqa: S608 - own names
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND status <> 'rejected' AND NOT EXISTS "
    "(SELECT 1 FROM receipt AS later WHERE later.request_id = found.request_id "
    "AND later.revision > found.revision) ORDER BY accepted_at_us DESC LIMIT ?"
)
_SNAPSHOTS = (
    "SELECT waiting_requests, running_requests, reserved_kv_tokens, free_kv_tokens "
    "FROM capacity_snapshot AS c WHERE route_id = ? AND revision BETWEEN ? AND ? LIMIT ?"
)


def diagnosis(
    connection: sqlite3.Connection, start_us: int, end_us: int
) -> tuple[Picture, Picture, tuple[Finding, ...]]:
    """(the window before, the window, what is wrong in it); both windows are as long."""
    before = picture(connection, 2 * start_us - end_us, start_us)
    now = picture(connection, start_us, end_us)
    return before, now, diagnose(before, now)


def picture(connection: sqlite3.Connection, start_us: int, end_us: int) -> Picture:
    """The evidence of [start, end): accepted requests by their current receipts, snapshots.

    Of more than RECEIPTS_LIMIT requests the newest are read: the picture is of their time, and
    says so by its start.
    """
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples: thousands of rows
    rows = [
        Seen._make(row)
        for row in cursor.execute(_RECEIPTS, (start_us, end_us, RECEIPTS_LIMIT)).fetchall()
    ]
    if len(rows) == RECEIPTS_LIMIT:
        start_us = rows[-1].accepted_at_us
    capacity = _snapshots(connection, rows)
    degraded = [one for one in rows if one.degraded_from is not None]
    valid = sum(valid_completion(one, degraded_is_valid=True) for one in rows)
    unknown = [one for one in rows if one.status == "unknown"]
    shares = Counter(one.identity_id or "" for one in rows)
    seconds = max(1, end_us - start_us) / 1e6
    return Picture(
        start_us=start_us,
        end_us=end_us,
        requests=len(rows),
        ttft_p99_us=_quantile((one.first_token_us for one in rows), 99),
        queue_p99_us=_quantile((one.queue_us for one in rows), 99),
        prefill_p95_us=_quantile((one.prefill_us for one in rows), 95),
        itl_p95_us=_quantile((one.itl_mean_us for one in rows), 95),
        input_tokens_mean=_mean([one.input_tokens for one in rows]) or 0.0,
        output_tokens_mean=_mean([o.output_tokens for o in rows if o.status == "completed"]) or 0.0,
        failed=sum(one.status == "failed" for one in rows),
        unknown=len(unknown),
        unknown_billed=sum(one.cost_total_pico > 0 for one in unknown),
        user_cancels=sum(
            one.status == "cancelled" and one.terminal_error_code == "CLIENT_GONE" for one in rows
        ),
        degraded=sum(one.status == "completed" for one in degraded),
        degraded_schema=_schema(degraded),
        main_schema=_schema([one for one in rows if one.degraded_from is None]),
        cost_per_valid_pico=sum(one.cost_total_pico for one in rows) // valid if valid else None,
        identities={name: count / len(rows) for name, count in shares.items()},
        tenants=_tenants(rows),
        tokens_per_second=sum(one.output_tokens for one in rows) / seconds if rows else None,
        waiting_mean=_mean([one[0] for one in capacity]),
        running_mean=_mean([one[1] for one in capacity]),
        kv_free_share=_median_free(capacity),
    )


def _snapshots(connection: sqlite3.Connection, rows: Iterable[Seen]) -> list[Sequence[int]]:
    """The snapshots that decisions used, from the first to the last that these requests name."""
    used: dict[str, list[int]] = defaultdict(list)
    for one in rows:
        if one.route_id is not None and one.snapshot_revision is not None:
            used[one.route_id].append(one.snapshot_revision)
    found: list[Sequence[int]] = []
    for route_id, revisions in used.items():
        values = (route_id, min(revisions), max(revisions), SNAPSHOTS_LIMIT)
        found += fetch(connection, _SNAPSHOTS, values)
    return found


def _quantile(values: Iterable[int | None], percent: int) -> int | None:
    ordered = sorted(value for value in values if value is not None)
    return nearest_rank(ordered, percent, 100) if ordered else None


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _schema(rows: Iterable[Seen]) -> tuple[int, int]:
    judged = [one.schema_valid for one in rows if one.schema_valid is not None]
    return judged.count(0), len(judged)


def _tenants(rows: Iterable[Seen]) -> dict[str, tuple[int, int]]:
    waits: dict[str, list[int | None]] = defaultdict(list)
    for one in rows:
        waits[one.tenant_id].append(one.queue_us)
    return {name: (len(found), _quantile(found, 95) or 0) for name, found in waits.items()}


def _median_free(capacity: Sequence[Sequence[int]]) -> float | None:
    shares = sorted(
        one[3] / (one[2] + one[3]) for one in capacity if one[1] > 0 and one[2] + one[3] > 0
    )
    return shares[len(shares) // 2] if shares else None
