"""A ledger with every kind of row in it, and another SQLite client that tampers with it."""

import sqlite3
from pathlib import Path

import msgspec

from ledger import records as r
from ledger.reading import connect_read_only
from ledger.records import RECORDS, Record
from ledger.store import Store
from ledger.verify import Report, verify
from tests import factories

RELATED = frozenset(
    {
        r.ModelIdentity, r.RateTableRecord, r.RoutePolicyRecord, r.Tenant, r.ApiKey,
        r.ApiKeyRevocation, r.EvaluationResult, r.CapacitySnapshotRecord, r.ControlAction,
        r.RouteDecision, r.Reservation, r.Attempt, r.AttemptEvent, r.Settlement, r.Receipt,
        r.TraceEvent,
    }
)  # fmt: skip
UNRELATED = tuple(kind for kind in RECORDS if kind not in RELATED)
"""Kinds of which no rule between records is verified: any two rows will do."""


LATER_RATES = factories.rate_table(
    msgspec.structs.replace(
        factories.RATE_TABLE, version="rates-2", effective_from_us=factories.NOW_US + 10**12
    )
)
"""A second table, in effect after every receipt of `fill`."""


def fill(store: Store) -> None:
    """Two rows and more of every kind, consistent with each other: what verify calls sound."""
    store.append(
        [
            *(factories.model_identity(identity_id=f"mid_{letter}") for letter in "ab"),
            factories.rate_table(),
            LATER_RATES,
            *(factories.route_policy(revision=f"policy-{number}") for number in (1, 2)),
            *(factories.tenant(revision=number) for number in (1, 2)),
            *(factories.api_key(number) for number in (1, 2)),
            *(factories.api_key_revocation(number) for number in (1, 2)),
            *(factories.evaluation(number) for number in (1, 2)),
            *(factories.capacity_snapshot(revision=number) for number in (1, 2)),
            *(factories.control_action(subject=f"policy-{number}") for number in (1, 2)),
            *(factories.any_record(kind, number) for kind in UNRELATED for number in (1, 2)),
        ]
    ).result()
    for number in range(1, 4):
        for commit in factories.request_records(number):
            store.append(commit).result()


def tamper(path: Path, *statements: str) -> None:
    """What someone with the file and a SQLite client does: drops every trigger, then acts."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    drops = [f"DROP TRIGGER {name}" for (name,) in triggers.fetchall()]
    connection.execute("BEGIN")
    for statement in (*drops, *statements):
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.close()


def damage(path: Path, name: str) -> None:
    """What a failing disk does: the first page of this table or index is another."""
    connection = sqlite3.connect(path)
    sql = "SELECT rootpage FROM sqlite_master WHERE name = ?"
    page = connection.execute(sql, (name,)).fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 512)


def verified(path: Path, **options: object) -> Report:
    connection = connect_read_only(path)
    try:
        return verify(connection, **options)  # type: ignore[arg-type] # options of verify
    finally:
        connection.close()


def row_faults(report: Report) -> list[tuple[str, str, int | None]]:
    """(kind, table, seq) of the faults but those of the triggers that the tamperer dropped."""
    return [
        (fault.kind, fault.table, fault.seq) for fault in report.faults if fault.kind != "trigger"
    ]


def seqs(path: Path, table: str) -> list[int]:
    connection = sqlite3.connect(path)
    found = [row[0] for row in connection.execute(f"SELECT seq FROM {table} ORDER BY seq")]
    connection.close()
    return found


TABLES = [record_type.TABLE for record_type in RECORDS]


def text_field(record_type: type[Record]) -> str:
    """A text field of the record that no rule between records depends on."""
    return next(
        name
        for name, kind in record_type.__annotations__.items()
        if kind is str and name not in {"request_id", "reservation_id", "rate_table_version"}
    )
