"""What a window's receipts and snapshots say, as evidence for a diagnosis (DIA-1)."""

import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ledger.diagnosis import Finding, Picture, diagnose
from ledger.quantiles import nearest_rank_index
from ledger.reading import fetch, fetch_one

RECEIPTS_LIMIT = 4_000  # the newest of a window: more say no more of a p99
SNAPSHOTS_LIMIT = 20_000

Numbers = npt.NDArray[np.float64]  # exact to 2**53; not a number: nothing was measured
Truths = npt.NDArray[np.bool_]

_TEXTS = ("tenant_id", "identity_id", "route_id")
_NUMBERS = {
    "accepted_at_us": "accepted_at_us",
    "snapshot_revision": "snapshot_revision",
    "first_token_us": "first_token_us",
    "queue_us": "queue_us",
    "prefill_us": "prefill_us",
    "itl_mean_us": "itl_mean_us",
    "e2e_us": "e2e_us",
    "deadline_us": "deadline_us",
    "schema_valid": "schema_valid",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cost_total_pico": "cost_total_pico",
    "degraded": "degraded_from IS NOT NULL",
    "completed": "status = 'completed'",
    "priced": "rate_key IS NOT NULL",
    "failed": "status = 'failed'",
    "unknown": "status = 'unknown'",
    "left": "status = 'cancelled' AND terminal_error_code IS 'CLIENT_GONE'",
}
_NEWEST = (
    f"SELECT {', '.join(_TEXTS)}, "
    f"{', '.join(f'{sql} AS {name}' for name, sql in _NUMBERS.items())} "
    "FROM receipt AS found INDEXED BY receipt_time "
    "WHERE accepted_at_us >= ? AND accepted_at_us < ? AND status <> 'rejected' AND NOT EXISTS "
    "(SELECT 1 FROM receipt AS later WHERE later.request_id = found.request_id "
    "AND later.revision > found.revision) ORDER BY accepted_at_us DESC LIMIT ?"
)
# One row of whole columns: SQLite reads them in one step, without the interpreter's lock.
_COLUMNS = (
    f"SELECT {', '.join(f'json_group_array({name})' for name in (*_TEXTS, *_NUMBERS))} "
    f"FROM ({_NEWEST}) AS used"
)
_SNAPSHOTS = (
    "SELECT running_requests, reserved_kv_tokens, free_kv_tokens "
    "FROM capacity_snapshot AS c WHERE route_id = ? AND revision BETWEEN ? AND ? LIMIT ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A window's accepted requests as columns, the newest first."""

    texts: dict[str, list[str | None]]
    numbers: dict[str, Numbers]
    costs_pico: list[int]  # beyond what a float holds exactly

    @property
    def count(self) -> int:
        return len(self.texts["tenant_id"])

    def number(self, name: str) -> Numbers:
        return self.numbers[name]

    def truth(self, name: str) -> Truths:
        true: Truths = self.numbers[name] == 1
        return true


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
    seen = _seen(connection, start_us, end_us)
    if seen.count == RECEIPTS_LIMIT:
        start_us = int(seen.number("accepted_at_us")[-1])
    completed, unknown = seen.truth("completed"), seen.truth("unknown")
    degraded, costly = seen.truth("degraded"), seen.number("cost_total_pico") > 0
    in_time = seen.number("e2e_us") <= seen.number("deadline_us")
    valid = completed & in_time & (seen.number("schema_valid") != 0)
    priced = int((valid & seen.truth("priced")).sum())  # what has no price would make others cheap
    shares = Counter(name or "" for name in seen.texts["identity_id"])
    output, capacity = seen.number("output_tokens"), _snapshots(connection, seen)
    return Picture(
        start_us=start_us,
        end_us=end_us,
        requests=seen.count,
        ttft_p99_us=_quantile(seen.number("first_token_us"), 99),
        queue_p99_us=_quantile(seen.number("queue_us"), 99),
        prefill_p95_us=_quantile(seen.number("prefill_us"), 95),
        itl_p95_us=_quantile(seen.number("itl_mean_us"), 95),
        input_tokens_mean=_mean(seen.number("input_tokens")) or 0.0,
        output_tokens_mean=_mean(output[completed]) or 0.0,
        failed=int(seen.truth("failed").sum()),
        unknown=int(unknown.sum()),
        unknown_billed=int((unknown & costly).sum()),
        user_cancels=int(seen.truth("left").sum()),
        degraded=int((degraded & completed).sum()),
        degraded_schema=_schema(seen, degraded),
        main_schema=_schema(seen, ~degraded),
        cost_per_valid_pico=sum(seen.costs_pico) // priced if priced else None,
        identities={name: count / seen.count for name, count in shares.items()},
        tenants=_tenants(seen),
        tokens_per_second=float(output.sum()) / (max(1, end_us - start_us) / 1e6)
        if seen.count
        else None,
        running_mean=_mean(capacity[:, 0]),
        kv_free_share=_median_free(capacity),
    )


def _seen(connection: sqlite3.Connection, start_us: int, end_us: int) -> Seen:
    row = fetch_one(connection, _COLUMNS, (start_us, end_us, RECEIPTS_LIMIT))
    columns: list[list[Any]] = [msgspec.json.decode(text) for text in row]
    names = (*_TEXTS, *_NUMBERS)
    return Seen(
        costs_pico=columns[names.index("cost_total_pico")],
        texts=dict(zip(_TEXTS, columns, strict=False)),
        numbers={
            name: np.array(column, dtype=np.float64)
            for name, column in zip(_NUMBERS, columns[len(_TEXTS) :], strict=True)
        },
    )


def _snapshots(connection: sqlite3.Connection, seen: Seen) -> Numbers:
    """The snapshots that decisions used, from the first to the last that these requests name.

    Columns: running, reserved KV tokens, free ones.
    """
    revisions = seen.number("snapshot_revision")
    routes = np.array([name or "" for name in seen.texts["route_id"]], dtype=np.str_)
    found: list[tuple[int, ...]] = []
    for route_id in sorted(set(routes.tolist()) - {""}):
        used = _known(revisions[routes == route_id])
        if len(used):
            values = (route_id, int(used.min()), int(used.max()), SNAPSHOTS_LIMIT)
            found += [tuple(row) for row in fetch(connection, _SNAPSHOTS, values)]
    return np.array(found, dtype=np.float64).reshape(-1, 3)


def _known(values: Numbers) -> Numbers:
    known: Numbers = values[~np.isnan(values)]
    return known


def _quantile(values: Numbers, percent: int) -> int | None:
    """The nearest rank of what was measured; None of nothing."""
    ordered = np.sort(_known(values))
    if not len(ordered):
        return None
    return int(ordered[nearest_rank_index(len(ordered), percent, 100)])


def _mean(values: Numbers) -> float | None:
    return float(values.mean()) if len(values) else None


def _schema(seen: Seen, chosen: Truths) -> tuple[int, int]:
    """(broken, judged) of the chosen answers that had to follow a schema."""
    judged = _known(seen.number("schema_valid")[chosen])
    return int((judged == 0).sum()), len(judged)


def _tenants(seen: Seen) -> dict[str, tuple[int, int]]:
    """Requests of each tenant, and the p95 of its time in the queue."""
    tenants = np.array([name or "" for name in seen.texts["tenant_id"]], dtype=np.str_)
    waits = seen.number("queue_us")
    found = {}
    for name in sorted(set(tenants.tolist())):
        mine = waits[tenants == name]
        found[name] = (len(mine), _quantile(mine, 95) or 0)
    return found


def _median_free(capacity: Numbers) -> float | None:
    """The median share of free KV, of the snapshots in which something ran."""
    running, reserved, free = capacity.T
    whole = reserved + free
    counted = (running > 0) & (whole > 0)
    shares = np.sort(free[counted] / whole[counted])
    return float(shares[len(shares) // 2]) if len(shares) else None
