"""The gateway's own admission and order as a routing policy of the simulator (SIM-1).

Each replica stands for a route of its own, all of one model. What admission rejects is shed; what
it accepts goes where it says. A trace's priority under 0 is interactive, 0 normal, over 0 batch.
"""

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
from simulator.fleet import Loads
from simulator.fleet import Route as Routing
from simulator.replay import Scenario
from simulator.timing import PS_PER_US, TimeModel, attention_pairs
from simulator.traces import NONE

NAME: Final = "gateway"
MODEL: Final = "simulated"
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


def admission(scenario: Scenario) -> Routing:
    """A routing callable that asks `decide` with fresh snapshots of every replica.

    A request's output cap is the output that its trace has for it.
    """
    routes = tuple(_route(scenario, number) for number in range(scenario.replicas))
    places = {route.route_id: place for place, route in enumerate(routes)}
    policy = RoutePolicy(revision=NAME, models=(_model(routes),), routes=routes)
    rates = RateTable(version=NAME, effective_from_us=0, currency="USD", rates=())
    tenant = TenantState(tenant_id=MODEL, in_flight=0, in_flight_limit=1)
    trace = scenario.trace
    inputs, outputs = trace.input_tokens.tolist(), trace.output_tokens.tolist()
    arrivals, deadlines = trace.arrival_us.tolist(), trace.deadline_us.tolist()
    ranks = trace.priority.tolist()

    def route(job: int, loads: Loads) -> int | None:
        now_us = loads.now_ps // PS_PER_US
        until_us = arrivals[job] + DAY_US if deadlines[job] == NONE else deadlines[job]
        asked = _request(job, inputs[job], outputs[job], ranks[job], until_us - now_us)
        states = tuple([_state(loads, place, each.route_id) for place, each in enumerate(routes)])
        context = AdmissionContext(now_us=now_us, tenant=tenant, route_states=states, rates=rates)
        chosen = decide(asked, routes, context, policy).route_id
        return None if chosen is None else places[chosen]

    return route


def _route(scenario: Scenario, number: int) -> Route:
    return Route(
        route_id=f"replica-{number:03}",
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


def _state(loads: Loads, place: int, route_id: str) -> RouteState:
    seen = loads.snapshot(place)
    snapshot = capacity(route_id, seen.revision, seen.observed_ps // PS_PER_US, (seen,))
    return RouteState(route_id=route_id, healthy=True, snapshot=snapshot)
