"""What each candidate would cost in time and money, before any filter looks at it (ADM-4)."""

from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.policy.prepared import prepare
from gateway.policy.values import (
    AdmissionContext,
    InferenceRequest,
    Route,
    RoutePolicy,
    RouteState,
)
from ledger.rate_lookup import Priced, prepared, price
from ledger.rates import Rate, Usage, batch_priced, cost_of

KILO: Final = 1000


class Weighing(msgspec.Struct, frozen=True, gc=False):
    """One route on the scale: its facts of this moment and its estimates for this request.

    `tokens` is None where the request was not counted with the route's tokenizer revision; the
    estimates then stand for an empty input and are shown to nobody. `fresh` False: the snapshot is
    missing or too old, and `room_kv`, `waiting` and `oldest_wait_us` say nothing. `cost_pico` None:
    the rate table has no price.
    """

    route: Route
    tokens: int | None
    need_kv: int
    healthy: bool
    fresh: bool
    probes: int
    room_kv: int
    waiting: int
    queue_limit: int
    oldest_wait_us: int
    queue_us: int
    prefill_us: int
    ttft_us: int
    e2e_us: int
    cost_pico: int | None


class Scale:
    """What is the same for every candidate of one decision, looked up once.

    `some_*` say whether any route weighed so far was in that condition: where none was, the filter
    that asks for it has nothing to do.
    """

    __slots__ = (
        "_rates",
        "_states",
        "context",
        "counts",
        "policy",
        "request",
        "share",
        "some_down",
        "some_stale",
        "some_uncounted",
    )

    def __init__(
        self, request: InferenceRequest, context: AdmissionContext, policy: RoutePolicy
    ) -> None:
        self.request, self.context, self.policy = request, context, policy
        self.counts = {count.tokenizer_revision: count.tokens for count in request.input_tokens}
        self.share = prepare(policy, policy.routes).shares[request.priority]
        self.some_down = self.some_stale = self.some_uncounted = False
        self._states = {state.route_id: state for state in context.route_states}
        self._rates = prepared(context.rates)

    def weigh(self, routes: Iterable[Route]) -> list[Weighing]:
        """Return each route's weighing, in the order given.

        ttft = queue + prefill + first_decode + first_byte_network, and e2e = ttft + (output cap
        - 1) x inter_token (ADM-4). Queue = the prediction's + what waits x prefill pace. Fractions
        of a microsecond round up, towards the later finish.
        """
        policy, context, share = self.policy, self.context, self.share
        counts, states, rates = self.counts, self._states, self._rates.plain
        particular = self._rates.particular
        queue_permille, kv_permille = share.queue_permille, share.kv_permille
        output = self.request.budget.max_output_tokens
        oldest_fresh_us = context.now_us - policy.snapshot_max_age_us
        constant_us = policy.first_decode_us + policy.first_byte_network_us
        batch = batch_priced(self.request.priority)
        weighings = []
        for route in routes:
            prediction = route.prediction
            pace = prediction.prefill_us_per_ktok
            route_id = route.route_id
            counted = counts.get(route.tokenizer_revision)
            if counted is None:
                self.some_uncounted = True
            tokens = counted or 0
            state = states.get(route_id) or _unknown(route_id)
            if not (state.healthy and route.enabled):
                self.some_down = True
            snapshot = state.snapshot
            queue_us = prediction.queue_us
            if snapshot is not None and snapshot.observed_at_us >= oldest_fresh_us:
                fresh = True
                room = snapshot.free_kv_tokens - state.reserved_since_kv_tokens
                if kv_permille != KILO:
                    whole = snapshot.free_kv_tokens + snapshot.reserved_kv_tokens
                    room -= whole * (KILO - kv_permille) // KILO
                waiting = snapshot.waiting_requests + state.accepted_since
                oldest_wait_us = snapshot.oldest_wait_us
                queue_us += -(-snapshot.waiting_input_tokens * pace // KILO)
            else:
                fresh, room, waiting, oldest_wait_us = False, 0, 0, 0
                self.some_stale = True
            prefill_us = prediction.prefill_base_us - (-tokens * pace // KILO)
            ttft_us = queue_us + prefill_us + constant_us
            if particular:
                cost = self._particular_cost(route, tokens, batch=batch)
            else:
                rate = rates.get(route_id) or rates.get(route.identity_id)
                cost = None if rate is None else cost_pico(rate, tokens, output, batch=batch)
            weighings.append(
                Weighing(
                    route,
                    counted,
                    tokens + output,
                    state.healthy,
                    fresh,
                    state.probes_in_flight,
                    room,
                    waiting,
                    route.queue_limit * queue_permille // KILO,
                    oldest_wait_us,
                    queue_us,
                    prefill_us,
                    ttft_us,
                    ttft_us + (output - 1) * prediction.inter_token_us,
                    cost,
                )
            )
        return weighings

    def _particular_cost(self, route: Route, tokens: int, *, batch: bool) -> int | None:
        """Return the estimate by a table in which some rate depends on time or place (CST-7)."""
        output = self.request.budget.max_output_tokens
        priced = price(
            self.context.rates,
            (route.route_id, route.identity_id),
            Usage(input_tokens=tokens, output_tokens=output),
            batch=batch,
            at_us=self.context.now_us,
            place=("", route.region, ""),
        )
        return priced.cost.total_pico if isinstance(priced, Priced) else None


def cost_pico(rate: Rate, tokens: int, output: int, *, batch: bool) -> int:
    """Return the estimated cost: the whole output cap, and no input cached.

    A flat rate is multiplied out here, which is a tenth of the time; it equals what
    `ledger.rate_lookup.price` says, and a test holds the two together.
    """
    if not rate.tiers and not batch:
        return (
            tokens * rate.input_micro_per_mtok
            + output * rate.output_micro_per_mtok
            + rate.fixed_pico
        )
    usage = Usage(input_tokens=tokens, output_tokens=output)
    return cost_of(rate, usage, batch=batch).total_pico


def _unknown(route_id: str) -> RouteState:
    """A route that the context says nothing of: nobody vouches for its health."""
    return RouteState(route_id=route_id, healthy=False, snapshot=None)
