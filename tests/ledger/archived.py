"""A ledger with months of requests, some closed and some not, and archives of it."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

from ledger import records as r
from ledger.archiving import ArchiveManifest, Request, archive
from ledger.rollups.projection import Rollups
from ledger.store import Store
from tests import factories

DAY_US = 86_400_000_000
NOW_US = int(datetime(2026, 3, 10, tzinfo=UTC).timestamp()) * 1_000_000
BEFORE_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
OLD = range(1, 21)  # accepted in November 2025
OPEN = 5  # of them: its unknown is open
SHARED = (6, 7)  # of them: they serve one task
YOUNG = range(31, 36)  # accepted in February 2026
LATER_US = 80 * DAY_US
OF_NO_REQUEST = (
    r.ActionOverride, r.CurrencyRate, r.Discrepancy, r.Draft, r.Invoice, r.InvoiceLine,
    r.Notification, r.PeriodLock, r.PredictionRevision, r.Reconciliation, r.ReconciliationSignOff,
    r.ReleaseRecord, r.RolloutEvaluation, r.RolloutRecord, r.SloEvaluation,
)  # fmt: skip


def moved_on(record, by_us):
    """The record with each of its times `by_us` later."""
    times = {
        name: value + by_us
        for name in record.__struct_fields__
        if name.endswith("at_us") and (value := getattr(record, name)) is not None
    }
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return type(record)(**fields | times)


def commits(number):
    """What is written of one request, commit by commit."""
    shares_rows = number % 3 == 0 and number != OPEN
    made = factories.gateway_records if shares_rows else factories.request_records
    begun, ended = made(number)
    if number == OPEN:
        event = factories.attempt_event(number, outcome="unknown")
        ended = (event, factories.receipt(number, status="unknown"))
    key = factories.any_record(
        r.IdempotencyKey,
        number,
        tenant_id=factories.reservation(number).tenant_id,
        request_id=factories.request_id(number),
    )
    by_us = LATER_US if number in YOUNG else 0
    return [[moved_on(record, by_us) for record in part] for part in ((*begun, key), ended)]


def fill(path):
    """The ledger of OLD and YOUNG, with configuration, keys and outcome reports."""
    with Store.open(path, projections=(Rollups(),)) as store:
        store.append(
            [
                factories.model_identity(),
                factories.rate_table(),
                factories.route_policy(),
                factories.tenant(),
                factories.api_key(),
                factories.control_action(),
            ]
        ).result()
        for number in (*OLD, *YOUNG):
            for commit in commits(number):
                store.append(commit).result()
        for number in (1, 2, *SHARED, 31):
            store.append([outcome(number)]).result()
        store.append(
            [
                *(factories.any_record(kind) for kind in OF_NO_REQUEST),
                factories.api_key_revocation(),
                factories.evaluation(),
                factories.capacity_snapshot(),
                factories.any_record(r.AttemptDecision, request_id=factories.request_id(1)),
            ]
        ).result()


def outcome(number):
    return factories.any_record(
        r.OutcomeReport,
        number,
        request_id=factories.request_id(number),
        tenant_id=factories.receipt(number).tenant_id,
        task_completed=1,
        task_id="shared" if number in SHARED else f"task-{number}",
        reported_at_us=NOW_US,
    )


def ask(**changes):
    return Request(**{"before_us": BEFORE_US, "now_us": NOW_US, "actor": "ops", **changes})


def archived(path, folder, **changes):
    """The manifest of an archive that was made."""
    made = archive(path, folder, ask(**changes))
    assert isinstance(made, ArchiveManifest), made
    return made


def rows(path, sql):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()
