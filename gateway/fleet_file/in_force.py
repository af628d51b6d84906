"""The fleet that a ledger has in force: what an export writes and a file is compared with."""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable

import msgspec

from gateway.control.publication import DERIVED_BY
from gateway.fleet_file.document import Evidence, Fleet
from gateway.fleet_file.identities import ID_PREFIX, Identity, identity_of
from gateway.fleet_file.objectives import objective_of
from gateway.policy.values import RoutePolicy
from gateway.quota import Quota
from ledger.queries import configuration as stored
from ledger.queries.objectives import declared_until, objectives
from ledger.rates import RateTable
from ledger.records import EvaluationResult, ModelIdentity

DIGEST_DIGITS = 16


def fleet_in_force(connection: sqlite3.Connection, now_us: int) -> Fleet:
    """Return the fleet at a time: the rate table in effect and those to come, newest evidence."""
    policy = declared_policy(connection)
    tables = tables_from(connection, now_us)
    taken = {rate.key for table in tables for rate in table.rates}
    taken |= {route.route_id for route in (policy.routes if policy else ())}
    return Fleet(
        tenants={
            each.tenant_id: msgspec.json.decode(each.body_json, type=Quota)
            for each in stored.tenants(connection)
        },
        identities=identity_names(stored.identities(connection), taken),
        rate_tables=tables,
        evaluations=tuple(evidence_of(each) for each in newest(stored.evaluations(connection)[0])),
        objectives={each.slo_id: objective_of(each) for each in objectives(connection)},
        policy=policy,
    )


def declared_policy(connection: sqlite3.Connection) -> RoutePolicy | None:
    """Return the policy that was declared last; None before the first.

    While objectives act, what is in force is derived from it (gateway.control.publication).
    """
    record = stored.declared_policy(connection, DERIVED_BY)
    return None if record is None else msgspec.json.decode(record.body_json, type=RoutePolicy)


def tables_from(connection: sqlite3.Connection, at_us: int) -> tuple[RateTable, ...]:
    """Return the rate table in effect at a time, then those that take effect later."""
    current = stored.rate_table_in_effect(connection, at_us)
    later = [each for each in stored.rate_tables(connection) if each.effective_from_us > at_us]
    later.sort(key=lambda each: each.effective_from_us)
    records = ([current] if current else []) + later
    return tuple(msgspec.json.decode(each.body_json, type=RateTable) for each in records)


def identity_names(records: Iterable[ModelIdentity], taken: set[str]) -> dict[str, Identity]:
    """Return identities by a name that a person can read, or by their id where it isn't unique."""
    rows = list(records)
    names = {row.identity_id: _name(row) for row in rows}
    used = Counter(names.values())
    plain = {
        identity_id: name
        for identity_id, name in names.items()
        if used[name] == 1 and name not in taken and not name.startswith(ID_PREFIX)
    }
    return {plain.get(row.identity_id, row.identity_id): identity_of(row) for row in rows}


def _name(record: ModelIdentity) -> str:
    return f"{record.logical_model}/{record.serving_config_revision}"


def newest(results: Iterable[EvaluationResult]) -> list[EvaluationResult]:
    """Return the last result of each suite and identity: what the edges go by (FBK-1)."""
    last = {(each.suite, each.identity_id): each for each in results}
    return list(last.values())


def evidence_of(record: EvaluationResult) -> Evidence:
    return Evidence(
        evaluation_id=record.evaluation_id,
        suite=record.suite,
        identity_id=record.identity_id,
        score_milli=record.score_milli,
        passed=bool(record.passed),
        measured_at_us=record.measured_at_us,
        evidence=record.evidence,
    )


def plan_id(connection: sqlite3.Connection, text: str) -> str:
    """Return what stands for a file and for all that it was compared with.

    It changes with anything that is published, so that what is applied is what was looked at.
    """
    policy = stored.declared_policy(connection, DERIVED_BY)
    seen = (
        policy.revision if policy else None,
        [(each.tenant_id, each.revision) for each in stored.tenants(connection)],
        [each.version for each in stored.rate_tables(connection)],
        [each.identity_id for each in stored.identities(connection)],
        stored.evaluations(connection)[1],
        declared_until(connection),
        hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
    )
    return hashlib.sha256(msgspec.json.encode(seen)).hexdigest()[:DIGEST_DIGITS]
