"""The receipts that show a diagnosis most clearly: from a symptom to its proof (DIA-1)."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from ledger.diagnosis import Finding, Row
from ledger.reading import fetch

RECEIPTS_LIMIT = 50_000  # the newest of the window, many more than the diagnosis reads
SHOWN_LIMIT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A receipt that shows the symptom; `value` is what it was chosen for, None if not measured."""

    request_id: str
    tenant_id: str
    value: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """Which receipts show a symptom, and what makes one show it more than another."""

    column: str
    means: str  # the column in words
    where: str = "1"


MARKS: Mapping[Row, _Mark] = {
    "ttft_tail": _Mark(column="first_token_us", means="the latest first token"),
    "decode_slow": _Mark(column="itl_mean_us", means="the slowest tokens"),
    "throughput_collapse": _Mark(column="itl_max_us", means="the longest pause between tokens"),
    "cancels_up": _Mark(
        column="e2e_us",
        means="waited longest before it was given up",
        where="status = 'cancelled' AND terminal_error_code = 'CLIENT_GONE'",
    ),
    "cost_jump": _Mark(
        column="cost_total_pico", means="the dearest answer", where="status = 'completed'"
    ),
    "fallback_schema": _Mark(
        column="e2e_us",
        means="a fallback's answer that breaks its schema",
        where="degraded_from IS NOT NULL AND schema_valid = 0",
    ),
    "billed_after_timeout": _Mark(
        column="cost_total_pico",
        means="the most that was billed without a known end",
        where="status = 'unknown' AND cost_total_pico > 0",
    ),
    "tenant_unfair": _Mark(
        column="queue_us", means="the longest wait of who waits", where="tenant_id = :tenant"
    ),
}


def proving(
    connection: sqlite3.Connection, finding: Finding, start_us: int, end_us: int
) -> tuple[Proof, ...]:
    """The receipts of [start, end) that show a finding most, the clearest first.

    Current receipts of accepted requests, at most SHOWN_LIMIT; empty where none is left to show it.
    """
    mark = MARKS[finding.row]
    sql = (
        f"SELECT request_id, tenant_id, {mark.column} FROM (SELECT * FROM receipt AS found "
        "INDEXED BY receipt_time WHERE accepted_at_us >= :start AND accepted_at_us < :end "
        "AND status <> 'rejected' AND NOT EXISTS (SELECT 1 FROM receipt AS later "
        "WHERE later.request_id = found.request_id AND later.revision > found.revision) "
        f"ORDER BY accepted_at_us DESC LIMIT {RECEIPTS_LIMIT}) "
        f"WHERE {mark.where} AND {mark.column} IS NOT NULL "
        f"ORDER BY {mark.column} DESC, request_id LIMIT :limit"
    )
    values = {
        "start": start_us,
        "end": end_us,
        "limit": SHOWN_LIMIT,
        "tenant": parse_qs(finding.drill).get("tenant", [""])[0],
    }
    return tuple(
        Proof(request_id=row[0], tenant_id=row[1], value=row[2])
        for row in fetch(connection, sql, values)
    )
