"""The state of each provider's books: what was imported, compared, signed and closed (REC-3)."""

import sqlite3
from dataclasses import dataclass

from ledger.money import INT64_MAX, parse_units
from ledger.queries import invoices as reports
from ledger.queries import reconciliation as stored
from ledger.reconcile.running import PeriodOf
from ledger.records import Invoice, PeriodLock, Reconciliation

RUNS_LIMIT = 24
INVOICES_LIMIT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run by its sums, and how far it got. `newest`: no later run of its period."""

    run: Reconciliation
    difference_pico: int
    signed_by: str | None
    locked_by: str | None
    newest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """One provider: newest first."""

    provider: str
    invoices: tuple[Invoice, ...]
    runs: tuple[RunState, ...]
    lock: PeriodLock | None  # of the latest closed period


def overview(
    connection: sqlite3.Connection,
    *,
    provider: str | None = None,
    period: PeriodOf | None = None,
) -> tuple[Books, ...]:
    """Every provider of whom something was imported, by name; or the one that is named.

    Of a period: its runs, by its name, the imports that speak of a part of it, and the providers
    that have either.
    """
    names = reports.providers(connection)
    found = [_books(connection, name, period) for name in names if provider in (None, name)]
    return tuple(one for one in found if period is None or one.invoices or one.runs)


def _books(connection: sqlite3.Connection, provider: str, period: PeriodOf | None) -> Books:
    states: list[RunState] = []
    seen: set[str] = set()
    name = None if period is None else period.name
    for found in stored.runs(connection, provider=provider, period=name)[:RUNS_LIMIT]:
        run = found.record
        signed = stored.sign_off(connection, run.run_id)
        lock = stored.lock_of_run(connection, run.run_id)
        states.append(
            RunState(
                run=run,
                difference_pico=parse_units(run.difference),
                signed_by=None if signed is None else signed.signed_by,
                locked_by=None if lock is None else lock.locked_by,
                newest=run.period not in seen,
            )
        )
        seen.add(run.period)
    return Books(
        provider=provider,
        invoices=_imports(connection, provider, period),
        runs=tuple(states),
        lock=stored.last_lock(connection, provider),
    )


def _imports(
    connection: sqlite3.Connection, provider: str, period: PeriodOf | None
) -> tuple[Invoice, ...]:
    if period is None:
        newest = reports.invoices(connection, provider=provider, limit=INVOICES_LIMIT)
        return tuple(one.record for one in newest)
    oldest_first = reports.invoices_of_period(
        connection, provider, period.start_us, period.end_us, INT64_MAX
    )
    return tuple(oldest_first[::-1][:INVOICES_LIMIT])
