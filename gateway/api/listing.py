"""GET /api/v1/receipts, /api/v1/snapshots and /api/v1/requests/{id}/trace: lists by key.

A page names the next one in `next`, to be sent back as `after`; no offset, so nothing is told twice
and nothing left out while new rows come. A key sees its own tenant's receipts and traces; with the
scope `reports` every tenant's. Snapshots are the fleet's.
"""

import asyncio
import sqlite3
from typing import Any

import orjson

from gateway.api import errors
from gateway.api.absent import NO_RECEIPT, absent
from gateway.api.auth import SCOPE_REPORTS
from gateway.api.http import Request, Response
from gateway.api.native import ID_LIMIT_CHARS
from gateway.api.ports import Ports
from gateway.api.problems import Problem, invalid
from gateway.api.receipts import iso_time, milliseconds, receipt_json
from gateway.api.replies import failed_natively
from gateway.submission import Caller
from ledger.money import INT64_MAX
from ledger.queries.configuration import rate_table
from ledger.queries.dossier import dossier
from ledger.queries.receipts import Cursor, ReceiptFilter, receipt_page
from ledger.queries.snapshots import snapshots
from ledger.records import CapacitySnapshotRecord, Receipt, TraceEvent
from ledger.rows import Stored

PAGE_LIMIT = 200
PAGE_DEFAULT = 50
VALUE_LIMIT_CHARS = 200

# A parameter's name, and the field of the filter that it sets.
RECEIPT_FILTERS = {
    "status": "status",
    "reason": "reason_code",
    "route": "route_id",
    "model": "logical_model",
    "identity": "identity_id",
    "priority": "priority",
    "path": "user_path",
    "release": "release_id",
    "arm": "arm",
}
RECEIPT_PARAMETERS = (*RECEIPT_FILTERS, "tenant", "limit", "after")
SNAPSHOT_PARAMETERS = ("route", "limit", "after")
Query = dict[str, str]


class Lists:
    """Answers from the ledger, off the event loop."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def receipts(self, request: Request, caller: Caller) -> Response:
        query = _query(request)
        if isinstance(query, Problem):
            return _refused(query)
        tenant_id = caller.tenant_id
        if SCOPE_REPORTS in caller.scopes:
            tenant_id = query.get("tenant", "")
        elif query.get("tenant", tenant_id) != tenant_id:
            message = f"A key without the scope {SCOPE_REPORTS!r} sees its own tenant's receipts."
            return failed_natively(errors.of_http("SCOPE_MISSING", message))
        fields = {RECEIPT_FILTERS[name]: query[name] for name in RECEIPT_FILTERS if name in query}
        wanted = ReceiptFilter(tenant_id=tenant_id or None, **fields)  # type: ignore[arg-type]  # texts alone
        return await self._page(query, lambda limit, at: self._receipts(wanted, limit, at))

    async def snapshots(self, request: Request, caller: Caller) -> Response:
        query = _query(request)
        if isinstance(query, Problem):
            return _refused(query)
        route_id = query.get("route")
        return await self._page(query, lambda limit, at: self._snapshots(route_id, limit, at))

    async def trace(self, request: Request, caller: Caller) -> Response:
        """What was observed of one request, oldest first; no text of it."""
        if len(request.parameter) > ID_LIMIT_CHARS:
            return failed_natively(errors.of_http("NOT_FOUND", NO_RECEIPT))
        shown = await asyncio.to_thread(self._trace, caller.tenant_id, request.parameter)
        if isinstance(shown, errors.Failure):
            return failed_natively(shown)
        return Response(body=orjson.dumps(shown))

    async def _page(self, query: Query, read: Any) -> Response:
        limit = _number(query.get("limit", str(PAGE_DEFAULT)))
        if limit is None or not 1 <= limit <= PAGE_LIMIT:
            return _refused(invalid(f"limit is a number from 1 to {PAGE_LIMIT}.", "limit"))
        after = _place(query["after"]) if "after" in query else None
        if "after" in query and after is None:
            return _refused(invalid("after is what a page gave as next.", "after"))
        return Response(body=orjson.dumps(await asyncio.to_thread(read, limit, after)))

    def _receipts(
        self, wanted: ReceiptFilter, limit: int, after: tuple[int, int] | None
    ) -> dict[str, Any]:
        connection = self._ports.reader()
        cursor = None
        if after is not None:
            cursor = Cursor(accepted_at_us=after[0], seq=after[1], towards="older")
        page = receipt_page(connection, wanted, cursor, limit=limit)
        currencies: dict[str, str] = {}
        older = page.older
        return {
            "receipts": [_receipt(connection, each, currencies) for each in page.receipts],
            "next": None if older is None else f"{older.accepted_at_us}.{older.seq}",
        }

    def _snapshots(
        self, route_id: str | None, limit: int, after: tuple[int, int] | None
    ) -> dict[str, Any]:
        before_seq = None if after is None else after[1]
        rows = snapshots(self._ports.reader(), route_id, before_seq=before_seq, limit=limit)
        more = len(rows) == limit
        return {
            "snapshots": [_snapshot(row) for row in rows],
            "next": f"{rows[-1].record.observed_at_us}.{rows[-1].seq}" if more else None,
        }

    def _trace(self, tenant_id: str, request_id: str) -> dict[str, Any] | errors.Failure:
        found = dossier(self._ports.reader(), request_id)
        if found is None or found.current.record.tenant_id != tenant_id:
            return absent(self._ports.reader(), tenant_id, request_id)
        events = [_trace_event(each.record) for each in found.trace_events]
        return {"request_id": request_id, "events": events}


def _query(request: Request) -> Query | Problem:
    """Returns each parameter's last value; a problem for one that is too long.

    That each is known and has a value was seen before (`gateway.api.asked`).
    """
    query = {name: values[-1] for name, values in request.query().items()}
    for name, value in query.items():
        if len(value) > VALUE_LIMIT_CHARS:
            return invalid(f"{name}: it has at most {VALUE_LIMIT_CHARS} characters.", name)
    return query


def _refused(problem: Problem) -> Response:
    return failed_natively(errors.of_problem(problem))


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    return int(text) if int(text) <= INT64_MAX else None


def _place(text: str) -> tuple[int, int] | None:
    first, _, second = text.partition(".")
    at, seq = _number(first), _number(second)
    return None if at is None or seq is None else (at, seq)


def _receipt(
    connection: sqlite3.Connection, row: Stored[Receipt], currencies: dict[str, str]
) -> dict[str, Any]:
    version = row.record.rate_table_version
    if version not in currencies:
        table = rate_table(connection, version)
        currencies[version] = table.currency if table else "units"
    return receipt_json(
        row.record,
        seq=row.seq,
        prev_hash=None,  # of a list; a single receipt has it
        entry_hash=row.entry_hash,
        currency=currencies[version],
    )


def _snapshot(row: Stored[CapacitySnapshotRecord]) -> dict[str, Any]:
    record = row.record
    return {
        "route_id": record.route_id,
        "revision": record.revision,
        "observed_at": iso_time(record.observed_at_us),
        "waiting_requests": record.waiting_requests,
        "running_requests": record.running_requests,
        "waiting_input_tokens": record.waiting_input_tokens,
        "reserved_kv_tokens": record.reserved_kv_tokens,
        "free_kv_tokens": record.free_kv_tokens,
        "recent_output_tokens_per_second": record.recent_output_tokens_per_second,
        "queue_p95_ms": milliseconds(record.queue_p95_us),
        "oldest_wait_ms": milliseconds(record.oldest_wait_us),
        "rejected_by_reason": orjson.loads(record.rejected_by_reason_json),
        "seq": row.seq,
    }


def _trace_event(record: TraceEvent) -> dict[str, Any]:
    return {
        "event": record.event,
        "observed_at": iso_time(record.observed_at_us),
        "policy_revision": record.policy_revision,
        "route_id": record.route_id,
        "reasons": record.reasons.split(),
        "budget": orjson.loads(record.budget_json),
        "snapshot_revision": record.snapshot_revision,
        "trace_id": record.trace_id,
    }
