"""Decisions made again from the ledger alone: by the same rules (RTE-3) or by others (RTE-4)."""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from gateway.configuration import learned_of
from gateway.policy import attempt_replay
from gateway.policy.comparing import Comparison, Recorded, compare, not_comparable
from gateway.policy.counterfactual import Counterfactual, Summary
from gateway.policy.learning import newest, with_learned
from gateway.policy.replay import (
    CODE_REVISION,
    DecisionInputs,
    decode_decision,
    decode_inputs,
    redecide,
)
from gateway.policy.values import CapacitySnapshot, Decision, Evaluation, Route, RoutePolicy
from ledger.queries import configuration
from ledger.queries import decisions as queries
from ledger.queries.predictions import predictions
from ledger.rates import RateTable
from ledger.records import AttemptDecision, RouteDecision

SNAPSHOTS_KEPT = 4_096
"""Snapshots in memory; neighbouring decisions name the same ones."""


class NotInLedger(LookupError):
    """Something that recorded inputs name is not there; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How a set of decisions compared, with the first that differ."""

    identical: int
    different: int
    not_comparable: int
    first_different: tuple[Comparison, ...]

    @property
    def total(self) -> int:
        return self.identical + self.different + self.not_comparable


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """The rules to decide by instead of the recorded ones; None: the recorded."""

    policy: RoutePolicy | None = None
    rates: RateTable | None = None


class Replayer:
    """Makes decisions again over one read-only connection, keeping what many of them name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._policies: dict[str, RoutePolicy] = {}
        self._rates: dict[str, RateTable] = {}
        self._routes: tuple[RoutePolicy, int, tuple[Route, ...]] | None = None  # the last ones
        self._evaluations: dict[int, tuple[Evaluation, ...]] = {}
        self._snapshots: dict[tuple[str, int], CapacitySnapshot] = {}

    def one(self, request_id: str) -> Comparison | None:
        """Return the comparison of one request's decision; None where it has none."""
        stored = queries.decision_of(self._connection, request_id)
        return None if stored is None else self.compare(stored.record)

    def all(
        self, *, since_us: int | None = None, until_us: int | None = None
    ) -> Iterator[Comparison]:
        """Yield the comparison of every decision of since_us <= t < until_us, in chain order."""
        for stored in queries.decisions(self._connection, since_us=since_us, until_us=until_us):
            yield self.compare(stored.record)

    def compare(self, row: RouteDecision) -> Comparison:
        """Return the row next to the decision made again.

        Inputs that can't be read, or that name what the ledger has not, are a difference: the
        decision can't be shown to be what it was.
        """
        recorded = msgspec.convert(row, Recorded, from_attributes=True)
        if recorded.code_revision != CODE_REVISION:
            return not_comparable(recorded.request_id, recorded.code_revision)
        try:
            inputs = decode_inputs(recorded.inputs_json)
            return compare(
                recorded,
                inputs,
                self.policy(inputs.policy_revision),
                self.rates(inputs.rate_table_version),
                self.snapshot,
                self.evaluations(inputs.evaluations_seq),
                self.routes(self.policy(inputs.policy_revision), inputs.predictions_seq),
            )
        except (NotInLedger, msgspec.DecodeError) as gap:
            return Comparison(
                request_id=recorded.request_id, verdict="different", differences=(f"inputs: {gap}",)
            )

    def under(self, row: RouteDecision, other: Other) -> Decision:
        """Return what a recorded decision's inputs lead to under other rules (RTE-4).

        Raises NotInLedger or msgspec.DecodeError where the inputs can't be read.
        """
        inputs = decode_inputs(row.inputs_json)
        policy = other.policy or self.policy(inputs.policy_revision)
        rates = other.rates or self.rates(inputs.rate_table_version)
        evaluations = self.evaluations(inputs.evaluations_seq)
        routes = self.routes(policy, inputs.predictions_seq)
        return redecide(inputs, policy, rates, self.snapshot, evaluations, routes)

    def counterfactual(
        self, other: Other, *, since_us: int | None = None, until_us: int | None = None
    ) -> Summary:
        """Return what the decisions of since_us <= t < until_us would have come to, beside them."""
        made = Counterfactual()
        for stored in queries.decisions(self._connection, since_us=since_us, until_us=until_us):
            row = stored.record
            try:
                recorded, again = decode_decision(row.decision_json), self.under(row, other)
            except (NotInLedger, msgspec.DecodeError):
                made.skip()
            else:
                made.add(recorded, again, same_code=row.code_revision == CODE_REVISION)
        return made.summary()

    def steps(self, request_id: str | None = None) -> Iterator[Comparison]:
        """Yield the comparison of every decision about what follows an attempt (SPEC 6)."""
        for stored in queries.attempt_decisions(self._connection, request_id=request_id):
            yield self.compare_step(stored.record)

    def compare_step(self, row: AttemptDecision) -> Comparison:
        """Return a question after the first attempt next to its answer made again."""
        recorded = msgspec.convert(row, attempt_replay.RecordedStep, from_attributes=True)
        if recorded.code_revision != attempt_replay.CODE_REVISION:
            return not_comparable(
                recorded.request_id, recorded.code_revision, attempt_replay.CODE_REVISION
            )
        try:
            inputs = attempt_replay.decode_step_inputs(recorded.inputs_json)
            admitted = self.inputs(row.request_id)
            if admitted is None:
                raise NotInLedger(f"the ledger has no decision of request {row.request_id!r}")
            again = attempt_replay.step_again(
                admitted.request,
                inputs,
                self.policy(inputs.policy_revision),
                self.rates(inputs.rate_table_version),
                self.snapshot,
                self.evaluations(inputs.evaluations_seq),
            )
            return attempt_replay.compare_step(recorded, inputs, again)
        except (NotInLedger, msgspec.DecodeError) as gap:
            return Comparison(
                request_id=recorded.request_id, verdict="different", differences=(f"inputs: {gap}",)
            )

    def inputs(self, request_id: str) -> DecisionInputs | None:
        """Return what a request's decision was made from; None where it has none."""
        stored = queries.decision_of(self._connection, request_id)
        return None if stored is None else decode_inputs(stored.record.inputs_json)

    def policy(self, revision: str) -> RoutePolicy:
        """Return a published policy; NotInLedger where there is none of the revision."""
        if revision not in self._policies:
            record = configuration.policy(self._connection, revision)
            if record is None:
                raise NotInLedger(f"the ledger has no route policy {revision!r}")
            self._policies[revision] = msgspec.json.decode(record.body_json, type=RoutePolicy)
        return self._policies[revision]

    def rates(self, version: str) -> RateTable:
        """Return a published rate table; NotInLedger where there is none of the version."""
        if version not in self._rates:
            record = configuration.rate_table(self._connection, version)
            if record is None:
                raise NotInLedger(f"the ledger has no rate table {version!r}")
            self._rates[version] = msgspec.json.decode(record.body_json, type=RateTable)
        return self._rates[version]

    def evaluations(self, upto_seq: int) -> tuple[Evaluation, ...]:
        """Return the evaluations that stood in the chain up to a place."""
        if upto_seq not in self._evaluations:
            records, _ = configuration.evaluations(self._connection, upto_seq)
            self._evaluations[upto_seq] = tuple(
                Evaluation(
                    suite=each.suite,
                    identity_id=each.identity_id,
                    score_milli=each.score_milli,
                    passed=bool(each.passed),
                )
                for each in records
            )
        return self._evaluations[upto_seq]

    def routes(self, policy: RoutePolicy, upto_seq: int) -> tuple[Route, ...]:
        """Return a policy's routes with what had been learned of them up to a place (ADM-5)."""
        known = self._routes
        if known is None or known[0] is not policy or known[1] != upto_seq:
            records, _ = predictions(self._connection, upto_seq)
            taught = with_learned(policy, newest(map(learned_of, records)))
            known = self._routes = (policy, upto_seq, taught)
        return known[2]

    def snapshot(self, route_id: str, revision: int) -> CapacitySnapshot:
        """Return a route's snapshot; NotInLedger where there is none of the revision."""
        key = (route_id, revision)
        if key not in self._snapshots:
            record = queries.snapshot(self._connection, route_id, revision)
            if record is None:
                raise NotInLedger(f"the ledger has no snapshot {revision} of route {route_id!r}")
            if len(self._snapshots) >= SNAPSHOTS_KEPT:
                self._snapshots.clear()
            self._snapshots[key] = CapacitySnapshot(
                **{name: getattr(record, name) for name in CapacitySnapshot.__struct_fields__}
            )
        return self._snapshots[key]


def tally(comparisons: Iterable[Comparison], *, keep: int) -> Tally:
    """Return the counts of each verdict, and the first `keep` comparisons that differ."""
    counts = {"identical": 0, "different": 0, "not_comparable": 0}
    kept: list[Comparison] = []
    for each in comparisons:
        counts[each.verdict] += 1
        if each.verdict == "different" and len(kept) < keep:
            kept.append(each)
    return Tally(**counts, first_different=tuple(kept))
