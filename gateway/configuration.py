"""What is in force: the published policy, rate tables and evidence, as the ledger has them."""

import sqlite3
from bisect import bisect_right
from dataclasses import dataclass

import msgspec

from gateway.policy.learning import Learned, newest, with_learned
from gateway.policy.values import (
    Evaluation,
    LogicalModel,
    PredictionBucket,
    Route,
    RoutePolicy,
)
from ledger.queries import configuration as stored
from ledger.queries.predictions import predictions
from ledger.rates import RateTable
from ledger.records import ModelIdentity, PredictionRevision


class NotConfigured(Exception):
    """Nothing is published yet; the message says what is missing and how to publish it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One consistent reading of the ledger's configuration records."""

    policy: RoutePolicy
    routes: dict[str, Route]
    models: dict[str, LogicalModel]
    identities: dict[str, ModelIdentity]
    rate_tables: tuple[RateTable, ...]  # by effective_from_us
    evaluations: tuple[Evaluation, ...]
    evaluations_seq: int  # chain position up to which evaluations were read
    tokenizer_revisions: tuple[str, ...]  # of all routes, each once
    taught: tuple[Route, ...] | None = None  # the policy's routes with what was learned of them
    predictions_seq: int = 0  # chain position up to which predictions were read

    @property
    def candidates(self) -> tuple[Route, ...]:
        """Return the routes that decisions are made among."""
        return self.policy.routes if self.taught is None else self.taught

    def model(self, name: str) -> LogicalModel:
        return self.models[name]

    def rates_at(self, at_us: int) -> RateTable:
        """Return the table in effect at a time: the last one effective at or before it."""
        if self.rate_tables and self.rate_tables[-1].effective_from_us <= at_us:
            return self.rate_tables[-1]
        position = bisect_right(self.rate_tables, at_us, key=lambda table: table.effective_from_us)
        if position == 0:
            raise NotConfigured(f"no rate table is in effect at {at_us} µs; publish an earlier one")
        return self.rate_tables[position - 1]


def policy_in_force(connection: sqlite3.Connection) -> RoutePolicy | None:
    """Return the route policy that decides now; None where none was ever published."""
    record = stored.current_policy(connection)
    return None if record is None else msgspec.json.decode(record.body_json, type=RoutePolicy)


def places_in_force(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Return (provider kind, region) of each route in force, by route_id."""
    policy = policy_in_force(connection)
    routes = () if policy is None else policy.routes
    return {route.route_id: (route.provider_kind, route.region) for route in routes}


def load(connection: sqlite3.Connection) -> Configuration:
    """Return what is in force. Raises NotConfigured where no policy or no rate table is."""
    policy = policy_in_force(connection)
    if policy is None:
        raise NotConfigured(
            "no route policy is published; run `make demo` for the demonstration's, or apply your "
            "own: `manage.py fleet apply FILE --reason R`"
        )
    tables = [
        msgspec.json.decode(table.body_json, type=RateTable)
        for table in stored.rate_tables(connection)
    ]
    if not tables:
        raise NotConfigured("no rate table is published; run `make demo` or publish one")
    evaluations, evaluations_seq = evaluations_of(connection)
    revisions, predictions_seq = predictions(connection)
    taught = with_learned(policy, newest(map(learned_of, revisions)))
    return Configuration(
        policy=policy,
        routes={route.route_id: route for route in taught},
        models={model.name: model for model in policy.models},
        identities={row.identity_id: row for row in stored.identities(connection)},
        rate_tables=tuple(sorted(tables, key=lambda table: table.effective_from_us)),
        evaluations=evaluations,
        evaluations_seq=evaluations_seq,
        tokenizer_revisions=tuple(sorted({route.tokenizer_revision for route in policy.routes})),
        taught=taught,
        predictions_seq=predictions_seq,
    )


def evaluations_of(connection: sqlite3.Connection) -> tuple[tuple[Evaluation, ...], int]:
    """Return (all evidence in the ledger's order, the chain position up to which it was read)."""
    results, upto_seq = stored.evaluations(connection)
    found = tuple(
        Evaluation(
            suite=row.suite,
            identity_id=row.identity_id,
            score_milli=row.score_milli,
            passed=bool(row.passed),
        )
        for row in results
    )
    return found, upto_seq


def learned_of(record: PredictionRevision) -> Learned:
    """Return a recorded prediction as a value."""
    return Learned(
        route_id=record.route_id,
        revision=record.revision,
        identity_id=record.identity_id,
        buckets=msgspec.json.decode(record.body_json, type=tuple[PredictionBucket, ...]),
    )


def is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether nothing was ever published or entered."""
    return stored.current_policy(connection) is None and not stored.tenants(connection)
