"""What was published and is in force: policies, rate tables, tenants, keys, evidence.

Each returns records as they were written; their bodies are decoded by whoever owns the type.
"""

import sqlite3
from typing import TypeVar

from ledger.reading import fetch, fetch_one
from ledger.records import (
    ApiKey,
    EvaluationResult,
    ModelIdentity,
    RateTableRecord,
    Record,
    RoutePolicyRecord,
    Tenant,
)
from ledger.rows import Stored, record_of, select, stored

R = TypeVar("R", bound=Record)


def current_policy(connection: sqlite3.Connection) -> RoutePolicyRecord | None:
    """The policy revision published last; None before the first."""
    sql = f"{select(RoutePolicyRecord)} ORDER BY seq DESC LIMIT 1"
    return _one(connection, RoutePolicyRecord, sql)


def declared_policy(connection: sqlite3.Connection, not_by: str) -> RoutePolicyRecord | None:
    """The policy published last by anyone but this author; None where there is none."""
    sql = f"{select(RoutePolicyRecord)} WHERE published_by <> ? ORDER BY seq DESC LIMIT 1"
    return _one(connection, RoutePolicyRecord, sql, not_by)


def policies_count(connection: sqlite3.Connection) -> int:
    """How many policy revisions were ever published."""
    return int(fetch_one(connection, "SELECT count(*) FROM route_policy")[0])


def policy(connection: sqlite3.Connection, revision: str) -> RoutePolicyRecord | None:
    """The policy of a revision; None where there is none."""
    sql = f"{select(RoutePolicyRecord)} WHERE revision = ?"
    return _one(connection, RoutePolicyRecord, sql, revision)


def policies(connection: sqlite3.Connection) -> list[RoutePolicyRecord]:
    """Every published policy revision, the oldest first."""
    return _all(connection, RoutePolicyRecord, f"{select(RoutePolicyRecord)} ORDER BY seq")


def policies_before(
    connection: sqlite3.Connection, before_seq: int | None, limit: int
) -> list[Stored[RoutePolicyRecord]]:
    """Published policy revisions from before a place in the chain, the newest first."""
    sql = f"{select(RoutePolicyRecord)} WHERE seq < ? ORDER BY seq DESC LIMIT ?"
    rows = fetch(connection, sql, (2**63 - 1 if before_seq is None else before_seq, limit))
    return [stored(RoutePolicyRecord, row) for row in rows]


def rate_table_in_effect(connection: sqlite3.Connection, at_us: int) -> RateTableRecord | None:
    """The table in effect at a time: of those effective by then the latest, else None (CST-1).

    Of two that are effective from the same instant, the one published later.
    """
    sql = (
        f"{select(RateTableRecord)} WHERE effective_from_us <= ? "
        "ORDER BY effective_from_us DESC, seq DESC LIMIT 1"
    )
    return _one(connection, RateTableRecord, sql, at_us)


def rate_table(connection: sqlite3.Connection, version: str) -> RateTableRecord | None:
    """The rate table of a version; None where there is none."""
    return _one(
        connection, RateTableRecord, f"{select(RateTableRecord)} WHERE version = ?", version
    )


def rate_tables(connection: sqlite3.Connection) -> list[RateTableRecord]:
    """Every published rate table, in the order of publication."""
    return _all(connection, RateTableRecord, f"{select(RateTableRecord)} ORDER BY seq")


def tenants(connection: sqlite3.Connection) -> list[Tenant]:
    """Each tenant's revision in force, by tenant_id."""
    sql = (
        f"{select(Tenant)} AS t WHERE revision = "
        "(SELECT max(revision) FROM tenant WHERE tenant_id = t.tenant_id) "
        "ORDER BY tenant_id"
    )
    return _all(connection, Tenant, sql)


def tenant(connection: sqlite3.Connection, tenant_id: str) -> Tenant | None:
    """A tenant's revision in force; None where there is no such tenant."""
    sql = f"{select(Tenant)} WHERE tenant_id = ? ORDER BY revision DESC LIMIT 1"
    return _one(connection, Tenant, sql, tenant_id)


def active_api_keys(connection: sqlite3.Connection) -> list[ApiKey]:
    """The keys that were not revoked; whether one has expired is for who knows the time."""
    sql = (
        f"{select(ApiKey)} WHERE key_id NOT IN (SELECT key_id FROM api_key_revocation) ORDER BY seq"
    )
    return _all(connection, ApiKey, sql)


def identities(connection: sqlite3.Connection) -> list[ModelIdentity]:
    """Every model identity, in the order of registration."""
    return _all(connection, ModelIdentity, f"{select(ModelIdentity)} ORDER BY seq")


def identity(connection: sqlite3.Connection, identity_id: str) -> ModelIdentity | None:
    """The model identity of an id; None where there is none."""
    sql = f"{select(ModelIdentity)} WHERE identity_id = ?"
    return _one(connection, ModelIdentity, sql, identity_id)


def evaluations(
    connection: sqlite3.Connection, upto_seq: int | None = None
) -> tuple[list[EvaluationResult], int]:
    """(evaluations in chain order, the seq of the last of them; 0 of none).

    With `upto_seq`, those that stood in the chain at that place: what a replay needs (RTE-3).
    """
    return records_upto(connection, EvaluationResult, upto_seq)


def records_upto(
    connection: sqlite3.Connection, record_type: type[R], upto_seq: int | None
) -> tuple[list[R], int]:
    """(the records in chain order, the seq of the last of them; 0 of none), up to a place."""
    sql = f"{select(record_type)} WHERE seq <= ? ORDER BY seq"
    rows = fetch(connection, sql, (2**63 - 1 if upto_seq is None else upto_seq,))
    return [record_of(record_type, row) for row in rows], rows[-1]["seq"] if rows else 0


def last_snapshot_revision(connection: sqlite3.Connection, route_id: str) -> int:
    """The highest snapshot revision kept for a route; 0 where none is."""
    sql = "SELECT max(revision) FROM capacity_snapshot WHERE route_id = ?"
    return int(fetch_one(connection, sql, (route_id,))[0] or 0)


def _one(
    connection: sqlite3.Connection, record_type: type[R], sql: str, *values: str | int
) -> R | None:
    row = fetch_one(connection, sql, values)
    return None if row is None else record_of(record_type, row)


def _all(connection: sqlite3.Connection, record_type: type[R], sql: str) -> list[R]:
    return [record_of(record_type, row) for row in fetch(connection, sql)]
