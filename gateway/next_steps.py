"""What follows an attempt, asked of the pure policy with the book's state of this moment.

`ask` is synchronous on purpose: deciding and taking happen without an await between them (ADM-7).
It returns what must be durable before the new attempt's bytes leave, and what replay needs.
"""

import orjson

from gateway.book import Hold
from gateway.desk import UNKNOWN_BOUND_US, Desk
from gateway.policy.attempt_replay import CODE_REVISION, StepInputs
from gateway.policy.attempting import Asked, Step, Story, next_step
from gateway.policy.replay import canonical, digest, route_inputs
from gateway.policy.values import AdmissionContext, Route
from gateway.route_health import RouteHealth
from gateway.run import Leg, Run
from gateway.traffic import Traffic
from ledger.records import Attempt, AttemptDecision, Record, Reservation, TraceEvent


class Asker:
    """Asks with one desk, one view of the routes' health and one count of the traffic."""

    def __init__(self, desk: Desk, health: RouteHealth, traffic: Traffic) -> None:
        self._desk, self._health, self._traffic = desk, health, traffic

    def considers(self, run: Run) -> bool:
        """Return whether anything could follow the attempts so far: else nobody need be asked."""
        rules = self._desk.configuration.policy.attempts
        last = run.legs[-1].seen(delivered=False)
        return rules.limit > 1 or bool(last.refused_parameters)

    def hedge_delay_us(self, run: Run) -> int | None:
        """Return how long a first attempt may be silent; None where it is not hedged at all."""
        rules = self._desk.configuration.policy.attempts
        if rules.hedge is None or rules.limit < 2 or run.weighed.request.side_effects:
            return None
        return rules.hedge.delay_us

    def ask(
        self, run: Run, asked: Asked, *, jitter_permille: int, now_us: int
    ) -> tuple[Leg | None, tuple[Record, ...]]:
        """Return the new attempt, with all it holds taken, and the rows that record the answer.

        None: nothing follows; its rows say why.
        """
        step, inputs, states_rows = self._decided(run, asked, jitter_permille, now_us)
        inputs_json, decision_json = canonical(inputs), canonical(step)
        number, run.questions = run.questions, run.questions + 1
        rows: list[Record] = [*states_rows]
        rows.append(
            AttemptDecision(
                request_id=run.request_id,
                number=number,
                asked=asked,
                action=step.action,
                reason=step.reason,
                decided_at_us=now_us,
                ordinal=step.ordinal,
                route_id=step.route_id,
                policy_revision=inputs.policy_revision,
                rate_table_version=inputs.rate_table_version,
                code_revision=CODE_REVISION,
                inputs_json=inputs_json,
                decision_json=decision_json,
                digest=digest(inputs_json, decision_json),
            )
        )
        rows.append(_trace(run, step, inputs, now_us))
        route = self._desk.configuration.routes.get(step.route_id or "")
        if step.ordinal is None or route is None:
            return None, tuple(rows)
        leg = self._take(run, step, route, now_us)
        rows += _attempt_rows(run, leg, now_us)
        return leg, tuple(rows)

    def _decided(
        self, run: Run, asked: Asked, jitter_permille: int, now_us: int
    ) -> tuple[Step, StepInputs, list[Record]]:
        configuration, request = self._desk.configuration, run.weighed.request
        states = self._desk.book.route_states()
        tenant = self._desk.book.tenant_state(request.tenant_id, now_us)
        requests, again, hedges = self._traffic.in_minute(now_us)
        ended_at_us = run.weighed.decided_at_us + request.budget.deadline_us
        story = Story(
            asked=asked,
            attempts=tuple(
                leg.seen(delivered=run.winner is leg and run.direct) for leg in run.legs
            ),
            deadline_left_us=ended_at_us - now_us,
            committed_pico=sum(leg.open_pico for leg in run.legs),
            requests_in_minute=requests,
            again_in_minute=again,
            hedges_in_minute=hedges,
            jitter_permille=jitter_permille,
            cooldowns=self._health.cooldowns(now_us),
        )
        context = AdmissionContext(
            now_us=now_us,
            tenant=tenant,
            route_states=states,
            rates=run.weighed.rates,
            evaluations=configuration.evaluations,
        )
        inputs = StepInputs(
            tenant=tenant,
            now_us=now_us,
            policy_revision=configuration.policy.revision,
            rate_table_version=run.weighed.rates.version,
            evaluations_seq=configuration.evaluations_seq,
            routes=route_inputs(states),
            story=story,
        )
        step = next_step(request, context, configuration.policy, story)
        return step, inputs, self._desk.snapshots_to_file(states)

    def _take(self, run: Run, step: Step, route: Route, now_us: int) -> Leg:
        hold = Hold(
            reservation_id=f"{run.request_id}.{step.ordinal}",
            tenant_id=run.weighed.request.tenant_id,
            route_id=route.route_id,
            kv_tokens=step.reserve_kv_tokens,
            cost_pico=step.cost_pico or 0,
            taken_at_us=now_us,
            probe=step.probe,
        )
        self._desk.book.take(hold, None)
        self._health.sent(route.route_id, now_us)
        if step.action == "hedge":
            self._traffic.hedge(now_us)
        else:
            self._traffic.again(now_us)
        snapshot = next(
            (s.snapshot for s in self._desk.book.route_states() if s.route_id == route.route_id),
            None,
        )
        return Leg(
            request_id=run.request_id,
            ordinal=step.ordinal or 0,
            kind=step.action if step.action != "none" else "retry",
            route=route,
            hold=hold,
            reserved_pico=step.cost_pico or 0,
            input_tokens=step.input_tokens,
            tokenizer_revision=step.tokenizer_revision,
            reasons=(step.action.upper(), step.reason),
            snapshot_revision=snapshot.revision if snapshot else None,
            degraded_from=step.degraded_from,
            without=step.without,
            wait_us=step.wait_us,
        )


def _attempt_rows(run: Run, leg: Leg, now_us: int) -> tuple[Record, ...]:
    """Return the reservation and the attempt, pending before a byte leaves (LED-6)."""
    budget, hold = run.weighed.request.budget, leg.hold
    bound_us = run.weighed.decided_at_us + budget.deadline_us + UNKNOWN_BOUND_US
    return (
        Reservation(
            reservation_id=hold.reservation_id,
            request_id=run.request_id,
            tenant_id=hold.tenant_id,
            route_id=hold.route_id,
            reserved_at_us=now_us,
            kv_tokens=hold.kv_tokens,
            input_tokens=leg.input_tokens,
            output_tokens=budget.max_output_tokens,
            cost_pico=hold.cost_pico,
            bound_at_us=bound_us,
        ),
        Attempt(
            attempt_id=leg.attempt_id,
            request_id=run.request_id,
            ordinal=leg.ordinal,
            kind=leg.kind,
            route_id=leg.route.route_id,
            identity_id=leg.route.identity_id,
            provider_kind=leg.route.provider_kind,
            started_at_us=now_us,
        ),
    )


def _trace(run: Run, step: Step, inputs: StepInputs, now_us: int) -> TraceEvent:
    reasons = [step.reason, *(f"{each.action}:{each.reason}" for each in step.refusals)]
    snapshot = next((s for s in inputs.routes if s.route_id == step.route_id), None)
    context = run.submission.trace
    return TraceEvent(
        event=f"inference.attempt.{'refused' if step.action == 'none' else step.action}",
        request_id=run.request_id,
        observed_at_us=now_us,
        policy_revision=inputs.policy_revision,
        route_id=step.route_id,
        reasons=" ".join(reasons),
        budget_json=orjson.dumps(
            {
                "deadline_ms": inputs.story.deadline_left_us / 1_000,
                "input_tokens": step.input_tokens,
                "max_output_tokens": run.weighed.request.budget.max_output_tokens,
            }
        ).decode(),
        snapshot_revision=snapshot.snapshot_revision if snapshot else None,
        trace_id=context.trace_id if context else None,
    )
