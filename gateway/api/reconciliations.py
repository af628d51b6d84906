"""What providers' invoices came to against what we ran, as data (REC-3).

GET /api/v1/reconciliations          each provider's imports, runs and the last closed period;
                                     ?provider= and ?period= choose
GET /api/v1/reconciliations/{id}     a run: opening, movements, closing, its largest differences

They are of all tenants, so they need a scope that reads every tenant's reports. What compares,
signs and closes is an operation (docs/operations.md). Money is an exact decimal string in units of
the run's currency beside the integer in pico units.
"""

import asyncio
import sqlite3
from typing import Any, Final

import msgspec

from gateway.api import errors
from gateway.api.http import Request, Response
from gateway.api.ports import Ports
from gateway.api.problems import invalid
from gateway.api.receipts import iso_time
from gateway.api.replies import failed_natively
from gateway.submission import Caller
from ledger.money import units_text
from ledger.reconcile.overview import Books, overview
from ledger.reconcile.reports import Found, Movement, Report, report
from ledger.reconcile.running import PeriodOf, period_of
from ledger.reconcile.values import Refused
from ledger.records import Invoice, PeriodLock, ReconciliationSignOff

RECONCILIATIONS: Final = "/api/v1/reconciliations"
RECONCILIATIONS_PARAMETERS: Final = ("provider", "period")
ID_LIMIT_CHARS: Final = 128


class Reconciliations:
    """Answers from the ledger, off the event loop."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def listed(self, request: Request, caller: Caller) -> Response:
        """Those of `provider` and of `period`: runs by its name, imports by its time in UTC."""
        query = {name: values[-1].strip() for name, values in request.query().items()}
        period = period_of(query["period"]) if "period" in query else None
        if isinstance(period, Refused):
            message = "period: write a month such as 2026-09, or days: 2026-09-01..2026-09-07."
            return failed_natively(errors.of_problem(invalid(message, "period")))
        body = await asyncio.to_thread(
            lambda: _overview(self._ports.reader(), query.get("provider"), period)
        )
        return Response(body=msgspec.json.encode(body))

    async def one(self, request: Request, caller: Caller) -> Response:
        run_id = request.parameter[: ID_LIMIT_CHARS + 1]
        found = await asyncio.to_thread(lambda: report(self._ports.reader(), run_id))
        if found is None:
            message = "There is no such run; GET /api/v1/reconciliations lists them."
            return failed_natively(errors.of_http("NOT_FOUND", message))
        return Response(body=msgspec.json.encode(report_json(found)))


def _overview(
    connection: sqlite3.Connection, provider: str | None = None, period: PeriodOf | None = None
) -> dict[str, Any]:
    found = overview(connection, provider=provider, period=period)
    return {"providers": [_books(one) for one in found]}


def _books(books: Books) -> dict[str, Any]:
    return {
        "provider": books.provider,
        "invoices": [_invoice(one) for one in books.invoices],
        "runs": [
            {
                "run_id": each.run.run_id,
                "period": each.run.period,
                "zone": each.run.zone,
                "currency": each.run.currency,
                "ran_at": iso_time(each.run.ran_at_us),
                "ran_by": each.run.ran_by,
                **_money("difference", each.difference_pico),
                "signed_by": each.signed_by,
                "locked_by": each.locked_by,
                "newest": each.newest,
            }
            for each in books.runs
        ],
        "last_lock": _lock(books.lock),
    }


def _invoice(one: Invoice) -> dict[str, Any]:
    return {
        "invoice_id": one.invoice_id,
        "format": one.format,
        "role": one.role,
        "from": iso_time(one.start_us),
        "to": iso_time(one.end_us),
        "lines": one.lines,
        "totals": msgspec.json.decode(one.totals_json),
        "imported_at": iso_time(one.imported_at_us),
        "imported_by": one.imported_by,
    }


def report_json(found: Report) -> dict[str, Any]:
    """Returns a run's report; `discrepancies` are the largest, of `discrepancies_found`."""
    return {
        "run_id": found.run_id,
        "provider": found.provider,
        "period": found.period,
        "zone": found.zone,
        "from": iso_time(found.start_us),
        "to": iso_time(found.end_us),
        "currency": found.currency,
        "verdict": found.verdict,
        **_money("opening", found.opening_pico),
        **_money("ours", found.ours_pico),
        **_money("theirs", found.theirs_pico),
        **_money("difference", found.difference_pico),
        **_money("adjustments", found.adjustments_pico),
        **_money("unexplained", found.unexplained_pico),
        **_money("closing", found.closing_pico),
        "movements": [_movement(one) for one in found.movements],
        "material": found.material,
        "discrepancies": [_discrepancy(one) for one in found.found],
        "discrepancies_found": found.found_count,
        "apart": found.apart,
        "invoices": list(found.invoices),
        "digest": found.digest,
        "ran_at": iso_time(found.ran_at_us),
        "ran_by": found.ran_by,
        "signed": _signed(found.signed),
        "lock": _lock(found.lock),
    }


def _movement(one: Movement | Found) -> dict[str, Any]:
    return {
        "class": one.class_name,
        "detail": one.detail,
        "late": one.late,
        "attempts": one.attempts,
        "lines": one.lines,
        **_money("ours", one.ours_pico),
        **_money("theirs", one.theirs_pico),
        **_money("difference", one.difference_pico),
    }


def _discrepancy(one: Found) -> dict[str, Any]:
    return {
        **_movement(one),
        "material": one.material,
        "request_ids": list(one.request_ids),
        "line_ids": list(one.line_ids),
    }


def _signed(one: ReconciliationSignOff | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"signed_by": one.signed_by, "signed_at": iso_time(one.signed_at_us)}


def _lock(one: PeriodLock | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "period": one.period,
        "locked_by": one.locked_by,
        "locked_at": iso_time(one.locked_at_us),
    }


def _money(name: str, pico: int) -> dict[str, Any]:
    return {f"{name}_units": units_text(pico), f"{name}_pico": pico}
