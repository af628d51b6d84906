"""The state of each provider's books: what was imported, compared, signed and closed (REC-3)."""

import sqlite3
from dataclasses import dataclass

from ledger.money import parse_units
from ledger.queries import invoices as reports
from ledger.queries import reconciliation as stored
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


def overview(connection: sqlite3.Connection) -> tuple[Books, ...]:
    """Every provider of whom something was imported, by name."""
    return tuple(_books(connection, provider) for provider in reports.providers(connection))


def _books(connection: sqlite3.Connection, provider: str) -> Books:
    imports = reports.invoices(connection, provider=provider, limit=INVOICES_LIMIT)
    states: list[RunState] = []
    seen: set[str] = set()
    for found in stored.runs(connection, provider=provider)[:RUNS_LIMIT]:
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
        invoices=tuple(one.record for one in imports),
        runs=tuple(states),
        lock=stored.last_lock(connection, provider),
    )
