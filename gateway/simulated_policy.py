"""The gateway's own admission as a routing policy of the simulator (SIM-1).

The replicas stand behind one route, as those of a live simulated route do: admission looks at
their loads added up, what it rejects is shed, and what it accepts goes to the replica with the
fewest outstanding requests. A trace's priority under 0 is interactive, 0 normal, over 0 batch.
"""

from collections import Counter
from typing import Final

from gateway.policy.admission import decide
from gateway.policy.values import (
    AdmissionContext,
    Budget,
    InferenceRequest,
    LogicalModel,
    Prediction,
    Priority,
    Route,
    RoutePolicy,
    RouteState,
    TenantState,
    TokenCount,
)
from gateway.providers.simulated import capacity
from ledger.rates import RateTable
from simulator.fleet import Loads, fewest_outstanding
from simulator.replay import Scenario
from simulator.timing import PS_PER_US, TimeModel, attention_pairs
from simulator.traces import NONE

NAME: Final = "gateway"
MODEL: Final = "simulated"
ROUTE: Final = "replicas"
TOKENIZER: Final = "trace"
DAY_US: Final = 86_400_000_000  # the deadline of a request whose trace names none
KILO: Final = 1_000
ANY_TOKENS: Final = 1 << 40


def prediction_of(time: TimeModel) -> Prediction:
    """What a time model says of a request alone on a replica, rounded up to microseconds.

    Prefill: the line through prompts of 1 and 1,001 tokens, each in one iteration; a further token:
    a decode step over 1,000 tokens of context.
    """
    base_ps = time.iteration_ps(1, 0, 0, 0)
    kilo_ps = time.iteration_ps(KILO + 1, 0, 0, attention_pairs(KILO + 1, 0))
    return Prediction(
        revision=time.name,
        queue_us=0,
        prefill_base_us=-(-base_ps // PS_PER_US),
        prefill_us_per_ktok=-(-(kilo_ps - base_ps) // PS_PER_US),
        inter_token_us=-(-time.iteration_ps(0, 1, KILO, 0) // PS_PER_US),
    )


class Admission:
    """A routing callable that asks `decide` with fresh snapshots of every replica.

    A request's output cap is the output that its trace has for it. `shed` counts the rejected by
    reason code.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.shed: Counter[str] = Counter()
        self._replicas = range(scenario.replicas)
        self._routes = (_route(scenario),)
        self._policy = RoutePolicy(
            revision=NAME, models=(_model(self._routes),), routes=self._routes
        )
        self._rates = RateTable(version=NAME, effective_from_us=0, currency="USD", rates=())
        self._tenant = TenantState(tenant_id=MODEL, in_flight=0, in_flight_limit=1)
        trace = scenario.trace
        self._inputs, self._outputs = trace.input_tokens.tolist(), trace.output_tokens.tolist()
        self._arrivals, self._deadlines = trace.arrival_us.tolist(), trace.deadline_us.tolist()
        self._ranks = trace.priority.tolist()

    def __call__(self, job: int, loads: Loads) -> int | None:
        now_us = loads.now_ps // PS_PER_US
        until_us = self._deadlines[job]
        if until_us == NONE:
            until_us = self._arrivals[job] + DAY_US
        asked = _request(
            job, self._inputs[job], self._outputs[job], self._ranks[job], until_us - now_us
        )
        context = AdmissionContext(
            now_us=now_us,
            tenant=self._tenant,
            route_states=(_state(loads, self._replicas),),
            rates=self._rates,
        )
        decision = decide(asked, self._routes, context, self._policy)
        if decision.route_id is None:
            self.shed[str(decision.reason_code)] += 1
            return None
        return fewest_outstanding(loads.outstanding)


def admission(scenario: Scenario) -> Admission:
    """A fresh `Admission` for one run of the scenario."""
    return Admission(scenario)


def _route(scenario: Scenario) -> Route:
    return Route(
        route_id=ROUTE,
        identity_id=scenario.profile.key,
        tokenizer_revision=TOKENIZER,
        provider_kind="simulator",
        address=f"sim:{scenario.profile.key}",
        region="",
        capabilities=(),
        max_input_tokens=ANY_TOKENS,
        max_output_tokens=ANY_TOKENS,
        max_total_tokens=ANY_TOKENS,
        prediction=prediction_of(scenario.profile.time),
    )


def _model(routes: tuple[Route, ...]) -> LogicalModel:
    return LogicalModel(
        name=MODEL,
        primary_routes=tuple(route.route_id for route in routes),
        max_input_tokens=ANY_TOKENS,
        max_output_tokens=ANY_TOKENS,
        max_total_tokens=ANY_TOKENS,
        default_output_tokens=1,
        default_deadline_us=DAY_US,
    )


def _request(
    job: int, input_tokens: int, output_tokens: int, rank: int, left_us: int
) -> InferenceRequest:
    return InferenceRequest(
        request_id=str(job),
        tenant_id=MODEL,
        logical_model=MODEL,
        priority=_priority(rank),
        budget=Budget(
            max_input_tokens=ANY_TOKENS,
            max_output_tokens=output_tokens,
            max_total_tokens=ANY_TOKENS,
            deadline_us=left_us,
        ),
        input_tokens=(TokenCount(tokenizer_revision=TOKENIZER, tokens=input_tokens),),
        counted_by="trace",
    )


def _priority(rank: int) -> Priority:
    if rank < 0:
        return "interactive"
    return "batch" if rank > 0 else "normal"


def _state(loads: Loads, replicas: range) -> RouteState:
    seen = [loads.snapshot(replica) for replica in replicas]
    revision = sum(each.revision for each in seen)
    snapshot = capacity(ROUTE, revision, loads.now_ps // PS_PER_US, seen)
    return RouteState(route_id=ROUTE, healthy=True, snapshot=snapshot)
