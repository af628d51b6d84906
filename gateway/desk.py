"""The desk: weighs one request against the book and writes down everything the decision saw.

`weigh` is synchronous on purpose: decide and reserve happen without an await between them (ADM-7).
It returns the rows that must be durable before a byte leaves; the live journey and the replay in
virtual time file them in their own ways.
"""

import msgspec
import orjson

from gateway.book import Book, Hold
from gateway.configuration import Configuration
from gateway.policy import replay
from gateway.policy.admission import decide
from gateway.policy.values import (
    AdmissionContext,
    Budget,
    Decision,
    InferenceRequest,
    Route,
    RouteState,
    TenantState,
    TokenCount,
)
from gateway.submission import Submission
from ledger.rates import RateTable
from ledger.records import (
    Attempt,
    CapacitySnapshotRecord,
    Record,
    Reservation,
    RouteDecision,
    TraceEvent,
)

UNKNOWN_BOUND_US = 60_000_000
"""How long past its deadline an unknown's slot and KV stay held (LED-6)."""


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """A decision with the rows that record it; `hold` and `route` of an accepted request only."""

    request: InferenceRequest
    decision: Decision
    rates: RateTable
    policy_revision: str
    snapshot_revision: int | None
    decided_at_us: int
    records: tuple[Record, ...]
    hold: Hold | None = None
    route: Route | None = None


class Considered(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was not taken, with what it was made from."""

    request: InferenceRequest
    decision: Decision
    tenant: TenantState
    policy_revision: str
    rate_table_version: str
    decided_at_us: int


class Desk:
    """Decides with one configuration and one book."""

    def __init__(self, configuration: Configuration, book: Book) -> None:
        self.configuration = configuration
        self.book = book
        self._filed_snapshots: dict[str, int] = {}  # route -> the revision the ledger has
        self._looked_at = -1  # the book's observations at the last decision: they are filed
        self._route_texts = replay.RouteTexts()

    def snapshot_filed(self, route_id: str, revision: int) -> None:
        """Tell the desk, of a route that is new to it, which snapshot the ledger has already."""
        self._filed_snapshots.setdefault(route_id, revision)

    def snapshots_lost(self, records: tuple[Record, ...]) -> None:
        """Take back that the snapshots among `records` are filed: their commit has failed."""
        for record in records:
            if isinstance(record, CapacitySnapshotRecord):
                filed = self._filed_snapshots.get(record.route_id, -1)
                self._filed_snapshots[record.route_id] = min(filed, record.revision - 1)
                self._looked_at = -1

    def budget(self, submission: Submission, tenant_id: str) -> Budget:
        """Return the request's budget, gaps filled from the tenant and the model (BUD-2)."""
        model = self.configuration.model(submission.logical_model)
        quota = self.book.quota(tenant_id)
        deadline_us = model.default_deadline_us
        max_cost_pico = None
        if quota is not None:
            deadline_us = quota.default_deadline_us or deadline_us
            max_cost_pico = quota.default_max_cost_pico
        if submission.deadline_ms is not None:
            deadline_us = submission.deadline_ms * 1_000
        elif submission.patience_ms is not None:
            deadline_us = min(deadline_us, submission.patience_ms * 1_000)
        if submission.max_cost_pico is not None:
            max_cost_pico = submission.max_cost_pico
        return Budget(
            max_input_tokens=_given(submission.max_input_tokens, model.max_input_tokens),
            max_output_tokens=_given(submission.max_output_tokens, model.default_output_tokens),
            max_total_tokens=_given(submission.max_total_tokens, model.max_total_tokens),
            deadline_us=deadline_us,
            max_cost_pico=max_cost_pico,
        )

    def request(
        self, submission: Submission, counts: tuple[TokenCount, ...], request_id: str
    ) -> InferenceRequest:
        """Return a submission as admission sees it, with its budget filled in and no text."""
        return InferenceRequest(
            request_id=request_id,
            tenant_id=submission.caller.tenant_id,
            logical_model=submission.logical_model,
            priority=submission.priority,
            budget=self.budget(submission, submission.caller.tenant_id),
            input_tokens=counts,
            required_capabilities=submission.required_capabilities,
            allowed_regions=submission.allowed_regions,
            quality_floor_milli=submission.quality_floor_milli,
            side_effects=submission.side_effects,
            user_path=submission.user_path,
            task_type=submission.task_type,
            session_id=submission.session_id,
            key_id=submission.caller.key_id,
            tags=submission.tags,
            ttft_objective_us=submission.ttft_objective_us,
            tpot_objective_us=submission.tpot_objective_us,
        )

    def consider(self, request: InferenceRequest, now_us: int) -> Considered:
        """Return what would be decided on a request; nothing is taken and nothing recorded."""
        policy, context = self.configuration.policy, self._context(request, now_us)
        return Considered(
            request=request,
            decision=decide(request, self.configuration.candidates, context, policy),
            tenant=context.tenant,
            policy_revision=policy.revision,
            rate_table_version=context.rates.version,
            decided_at_us=now_us,
        )

    def weigh(
        self, request: InferenceRequest, now_us: int, *, trace_id: str | None = None
    ) -> Weighed:
        """Decide on a request and, where it is accepted, take what it reserves."""
        configuration, policy = self.configuration, self.configuration.policy
        context = self._context(request, now_us)
        states, tenant, rates = context.route_states, context.tenant, context.rates
        decision = decide(request, configuration.candidates, context, policy)
        records: list[Record] = self.snapshots_to_file(states)
        records.append(self._decision_record(request, decision, tenant, states, now_us, rates))
        snapshot = self.book.snapshot_of(decision.route_id)
        snapshot_revision = snapshot.revision if snapshot else None
        records.append(self._trace(request, decision, now_us, snapshot_revision, trace_id))
        if decision.status == "rejected" or decision.route_id is None:
            return Weighed(
                request=request, decision=decision, rates=rates, policy_revision=policy.revision,
                snapshot_revision=snapshot_revision, decided_at_us=now_us,
                records=tuple(records),
            )  # fmt: skip
        route = configuration.routes[decision.route_id]
        hold = self._take(request, decision, now_us)
        records += _hold_records(request, decision, route, hold)
        return Weighed(
            request=request, decision=decision, rates=rates, policy_revision=policy.revision,
            snapshot_revision=snapshot_revision, decided_at_us=now_us, records=tuple(records),
            hold=hold, route=route,
        )  # fmt: skip

    def _context(self, request: InferenceRequest, now_us: int) -> AdmissionContext:
        """Return the book and the configuration as a decision on this request sees them now."""
        return AdmissionContext(
            now_us=now_us,
            tenant=self.book.tenant_state(request.tenant_id, now_us, _most_tokens(request)),
            route_states=self.book.route_states(),
            rates=self.configuration.rates_at(now_us),
            evaluations=self.configuration.evaluations,
        )

    def _take(self, request: InferenceRequest, decision: Decision, now_us: int) -> Hold:
        hold = Hold(
            reservation_id=request.request_id,
            tenant_id=request.tenant_id,
            route_id=decision.route_id or "",
            kv_tokens=decision.reserve_kv_tokens,
            cost_pico=decision.cost_pico or 0,
            taken_at_us=now_us,
            probe=decision.probe,
        )
        self.book.take(hold, decision.reserve_kv_tokens)
        return hold

    def snapshots_to_file(self, states: tuple[RouteState, ...]) -> list[Record]:
        """Return the snapshots that this decision saw and the ledger has not (SPEC 2)."""
        rows: list[Record] = []
        filed = self._filed_snapshots
        if self._looked_at == self.book.observations:
            return rows
        self._looked_at = self.book.observations
        for state in states:
            snapshot = state.snapshot
            if snapshot is None or filed.get(state.route_id, -1) >= snapshot.revision:
                continue
            filed[state.route_id] = snapshot.revision
            rows.append(
                CapacitySnapshotRecord(
                    route_id=snapshot.route_id,
                    revision=snapshot.revision,
                    observed_at_us=snapshot.observed_at_us,
                    waiting_requests=snapshot.waiting_requests,
                    running_requests=snapshot.running_requests,
                    waiting_input_tokens=snapshot.waiting_input_tokens,
                    reserved_kv_tokens=snapshot.reserved_kv_tokens,
                    free_kv_tokens=snapshot.free_kv_tokens,
                    recent_output_tokens_per_second=snapshot.recent_output_tokens_per_second,
                    queue_p95_us=snapshot.queue_p95_us,
                    oldest_wait_us=snapshot.oldest_wait_us,
                )
            )
        return rows

    def _decision_record(
        self,
        request: InferenceRequest,
        decision: Decision,
        tenant: TenantState,
        states: tuple[RouteState, ...],
        now_us: int,
        rates: RateTable,
    ) -> RouteDecision:
        inputs_json = replay.encode_inputs(
            request=request,
            tenant=tenant,
            route_states=states,
            now_us=now_us,
            policy_revision=self.configuration.policy.revision,
            rate_table_version=rates.version,
            evaluations_seq=self.configuration.evaluations_seq,
            predictions_seq=self.configuration.predictions_seq,
            texts=self._route_texts,
        )
        decision_json = replay.encode_decision(decision)
        return RouteDecision(
            request_id=request.request_id,
            decided_at_us=now_us,
            status=decision.status,
            reason_code=decision.reason_code,
            route_id=decision.route_id,
            tenant_id=request.tenant_id,
            policy_revision=self.configuration.policy.revision,
            rate_table_version=rates.version,
            code_revision=replay.CODE_REVISION,
            inputs_json=inputs_json,
            decision_json=decision_json,
            digest=replay.digest(inputs_json, decision_json),
        )

    def _trace(
        self,
        request: InferenceRequest,
        decision: Decision,
        now_us: int,
        snapshot_revision: int | None,
        trace_id: str | None,
    ) -> TraceEvent:
        accepted = decision.status == "accepted"
        budget = request.budget
        return TraceEvent(
            event="inference.route.selected" if accepted else "inference.rejected",
            request_id=request.request_id,
            observed_at_us=now_us,
            policy_revision=self.configuration.policy.revision,
            route_id=decision.route_id,
            reasons=" ".join(decision.reasons) if accepted else (decision.reason_code or ""),
            budget_json=orjson.dumps(
                {
                    "deadline_ms": budget.deadline_us / 1_000,
                    "input_tokens": decision.input_tokens,
                    "max_output_tokens": budget.max_output_tokens,
                }
            ).decode(),
            snapshot_revision=snapshot_revision,
            trace_id=trace_id,
        )


def _most_tokens(request: InferenceRequest) -> int:
    """Return what the request takes on the route whose tokenizer counts most."""
    counts = [count.tokens for count in request.input_tokens]
    return max(counts, default=0) + request.budget.max_output_tokens


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _hold_records(
    request: InferenceRequest, decision: Decision, route: Route, hold: Hold
) -> list[Record]:
    """Return the reservation and the first attempt, pending before a byte leaves (LED-6)."""
    bound_us = hold.taken_at_us + request.budget.deadline_us + UNKNOWN_BOUND_US
    return [
        Reservation(
            reservation_id=hold.reservation_id,
            request_id=request.request_id,
            tenant_id=hold.tenant_id,
            route_id=hold.route_id,
            reserved_at_us=hold.taken_at_us,
            kv_tokens=hold.kv_tokens,
            input_tokens=decision.input_tokens,
            output_tokens=request.budget.max_output_tokens,
            cost_pico=hold.cost_pico,
            bound_at_us=bound_us,
        ),
        Attempt(
            attempt_id=f"{request.request_id}.0",
            request_id=request.request_id,
            ordinal=0,
            kind="fallback" if decision.degraded_from else "primary",
            route_id=route.route_id,
            identity_id=route.identity_id,
            provider_kind=route.provider_kind,
            started_at_us=hold.taken_at_us,
        ),
    ]
