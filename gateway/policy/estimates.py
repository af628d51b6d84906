"""What each candidate would cost in time and money, before any filter looks at it (ADM-4)."""

import msgspec

from gateway.policy.prepared import Prepared, prepare
from gateway.policy.table import KILO, Sheet, Table
from gateway.policy.values import (
    AdmissionContext,
    Candidate,
    InferenceRequest,
    Route,
    RoutePolicy,
)
from ledger.rate_lookup import Priced, price
from ledger.rates import Rate, Usage, batch_priced, cost_of


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


class Weighings:
    """All candidates of one decision on the scale, side by side.

    A `Weighing` is made only of whoever is asked for. The extremes tell a filter that nobody
    falls without a look at anyone.
    """

    __slots__ = (
        "_known",
        "_sheet",
        "all_open",
        "all_priced",
        "all_up",
        "candidates",
        "costs_pico",
        "counted",
        "e2e_us",
        "least_room_kv",
        "most_cost_pico",
        "most_e2e_us",
        "most_need_kv",
        "output",
        "some_stale",
        "some_uncounted",
        "table",
    )

    def __init__(
        self,
        table: Table,
        sheet: Sheet,
        counted: list[int | None],
        tokens: list[int],
        output: int,
        costs_pico: list[int | None],
        constant_us: int,
        oldest_fresh_us: int,
    ) -> None:
        """Weigh a table's routes with the tokens `counted` for each (None: by nobody; then 0).

        ttft = queue + prefill + first_decode + first_byte_network, and e2e = ttft + (output cap
        - 1) x inter_token (ADM-4). Queue = the prediction's + what waits x prefill pace. Fractions
        of a microsecond round up, towards the later finish.
        """
        self.table, self._sheet = table, sheet
        self.counted, self.output, self.costs_pico = counted, output, costs_pico
        self.some_uncounted = None in counted
        self.some_stale = sheet.oldest_us < oldest_fresh_us
        queue_us, self._known = sheet.queue_us, None
        if self.some_stale:
            self._known = [at_us >= oldest_fresh_us for at_us in sheet.observed_us]
            queue_us = [
                seen_us if known else declared_us
                for seen_us, declared_us, known in zip(
                    queue_us, table.queues_us, self._known, strict=True
                )
            ]
        steps = output - 1
        bases_us, paces_us, inter_token_us = table.speeds(tokens)
        e2e_us: list[int] = []
        candidates: list[Candidate] = []
        for route_id, base_us, pace_us, each_us, waits_us, count, cost in zip(
            table.ids, bases_us, paces_us, inter_token_us, queue_us, tokens,
            costs_pico, strict=True,
        ):  # fmt: skip
            prefill_us = base_us - (-count * pace_us // KILO)
            ttft_us = waits_us + prefill_us + constant_us
            ends_us = ttft_us + steps * each_us
            e2e_us.append(ends_us)
            candidates.append(
                Candidate(
                    route_id, "primary", None, count, ttft_us, ends_us, cost, waits_us, prefill_us
                )
            )
        self.e2e_us, self.candidates = e2e_us, candidates
        self.most_need_kv = output + (max(tokens) if tokens else 0)
        self.most_e2e_us = max(e2e_us) if e2e_us else 0
        self.all_priced = None not in costs_pico
        self.most_cost_pico = max([cost or 0 for cost in costs_pico]) if costs_pico else 0
        self.all_up, self.all_open = sheet.all_up, sheet.all_open
        self.least_room_kv = sheet.least_room_kv

    def one(self, place: int) -> Weighing:
        """Return the weighing at a place of the table."""
        sheet, count, shown = self._sheet, self.counted[place], self.candidates[place]
        fresh = self._known is None or self._known[place]
        return Weighing(
            self.table.routes[place],
            count,
            (count or 0) + self.output,
            bool(sheet.healthy[place]),
            fresh,
            sheet.probes[place],
            sheet.room_kv[place] if fresh else 0,
            sheet.waiting[place] if fresh else 0,
            sheet.queue_limits[place],
            sheet.oldest_wait_us[place] if fresh else 0,
            shown.queue_us or 0,
            shown.prefill_us or 0,
            shown.ttft_us or 0,
            self.e2e_us[place],
            self.costs_pico[place],
        )

    def all(self) -> list[Weighing]:
        """Return every weighing, in the table's order."""
        return [self.one(place) for place in range(len(self.counted))]


class Scale:
    """What is the same for every candidate of one decision, looked up once.

    `some_*` say whether any route weighed so far was in that condition: where none was, the filter
    that asks for it has nothing to do.
    """

    __slots__ = (
        "_batch",
        "_ready",
        "context",
        "counts",
        "policy",
        "request",
        "some_down",
        "some_stale",
        "some_uncounted",
    )

    def __init__(
        self,
        request: InferenceRequest,
        context: AdmissionContext,
        policy: RoutePolicy,
        ready: Prepared | None = None,
    ) -> None:
        self.request, self.context, self.policy = request, context, policy
        self.counts = {count.tokenizer_revision: count.tokens for count in request.input_tokens}
        self.some_down = self.some_stale = self.some_uncounted = False
        self._ready = prepare(policy, policy.routes) if ready is None else ready
        self._batch = batch_priced(request.priority)

    def weighings(self, table: Table) -> Weighings:
        """Return a table's routes weighed."""
        policy, context, counts = self.policy, self.context, self.counts
        if len(table.revisions) == 1:
            counted = [counts.get(table.revisions[0])] * len(table.routes)
        else:
            counted = [counts.get(revision) for revision in table.tokenizers]
        tokens = [count or 0 for count in counted]
        made = Weighings(
            table,
            table.sheet(context.route_states, self._ready.shares[self.request.priority]),
            counted,
            tokens,
            self.request.budget.max_output_tokens,
            self._costs_pico(table, tokens),
            policy.first_decode_us + policy.first_byte_network_us,
            context.now_us - policy.snapshot_max_age_us,
        )
        self.some_down |= not made.all_up
        self.some_stale |= made.some_stale
        self.some_uncounted |= made.some_uncounted
        return made

    def weigh(self, routes: tuple[Route, ...]) -> list[Weighing]:
        """Return each route's weighing, in the order given."""
        return self.weighings(self._ready.table_of(routes)).all()

    def _costs_pico(self, table: Table, tokens: list[int]) -> list[int | None]:
        """Return each route's estimated cost; None where it has no price.

        A rate of the route goes before one of its model identity.
        """
        batch, counts = self._batch, self.counts
        prices = table.prices(self.context.rates)
        if prices.particular:
            return [
                self._particular_cost_pico(route, count)
                for route, count in zip(table.routes, tokens, strict=True)
            ]
        output = self.request.budget.max_output_tokens
        costs: list[int | None] = [
            None
            if rate is None
            else cost_pico(rate, counts.get(revision) or 0, output, batch=batch)
            for revision, rate in prices.kinds
        ]
        if len(costs) == 1:
            return costs * len(tokens)
        return [costs[kind] for kind in prices.kind_of]

    def _particular_cost_pico(self, route: Route, tokens: int) -> int | None:
        """Return the estimate by a table in which some rate depends on time or place (CST-7)."""
        output = self.request.budget.max_output_tokens
        priced = price(
            self.context.rates,
            (route.route_id, route.identity_id),
            Usage(input_tokens=tokens, output_tokens=output),
            batch=self._batch,
            at_us=self.context.now_us,
            place=(route.provider_kind, route.region, ""),
        )
        return priced.cost.total_pico if isinstance(priced, Priced) else None


class LaterScale(Scale):
    """Weighs routes that have to be waited for: the wait is part of their estimates."""

    __slots__ = ("_waits",)

    def __init__(
        self,
        request: InferenceRequest,
        context: AdmissionContext,
        policy: RoutePolicy,
        waits: dict[str, int],
    ) -> None:
        super().__init__(request, context, policy)
        self._waits = waits

    def weigh(self, routes: tuple[Route, ...]) -> list[Weighing]:
        return [self._later(weighing) for weighing in super().weigh(routes)]

    def _later(self, weighing: Weighing) -> Weighing:
        wait_us = self._waits.get(weighing.route.route_id, 0)
        if not wait_us:
            return weighing
        return msgspec.structs.replace(
            weighing, ttft_us=weighing.ttft_us + wait_us, e2e_us=weighing.e2e_us + wait_us
        )


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
