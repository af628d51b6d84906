"""Routes side by side as columns: what the policy says of them, and what their states say.

A decision over 64 routes reads some thousand fields. As columns they are read once, when a route
changes, and not for every request: the next request finds all but the one or two routes that took
or ended something as the last one left them. States are compared by identity, which is safe
because they are frozen, and a sheet is never changed, only followed by another.
"""

from typing import Final, NamedTuple, TypeAlias

import msgspec

from gateway.policy.values import (
    PredictionBucket,
    Priority,
    PriorityShare,
    Route,
    RouteState,
)
from ledger.rate_lookup import prepared
from ledger.rates import Rate, RateTable

KILO: Final = 1000
Speeds: TypeAlias = tuple[list[int], list[int], list[int]]
NEVER_US: Final = -(1 << 62)
"""When the snapshot of a route without one was observed: before anything that is fresh."""


class Table:
    """The routes of one set of candidates, with the extremes that spare a filter its work."""

    __slots__ = (
        "_by_bucket",
        "_prices",
        "_sheets",
        "_taught",
        "bases_us",
        "common",
        "ids",
        "inter_token_us",
        "least_input",
        "least_output",
        "least_quality",
        "least_total",
        "paces_us",
        "places",
        "queues_us",
        "regions",
        "revisions",
        "routes",
        "tokenizers",
    )

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self.ids = tuple([route.route_id for route in routes])
        self.places = {route_id: place for place, route_id in enumerate(self.ids)}
        self.tokenizers = tuple([route.tokenizer_revision for route in routes])
        self.revisions = tuple(sorted(set(self.tokenizers)))
        self.queues_us = [route.prediction.queue_us for route in routes]
        self.bases_us = [route.prediction.prefill_base_us for route in routes]
        self.paces_us = [route.prediction.prefill_us_per_ktok for route in routes]
        self.inter_token_us = [route.prediction.inter_token_us for route in routes]
        held = [frozenset(route.capabilities) for route in routes]
        self.common = frozenset[str]().union(*held).intersection(*held)
        self.regions = frozenset([route.region for route in routes])
        self.least_quality = min([route.quality_milli for route in routes], default=0)
        self.least_input = min([route.max_input_tokens for route in routes], default=0)
        self.least_output = min([route.max_output_tokens for route in routes], default=0)
        self.least_total = min([route.max_total_tokens for route in routes], default=0)
        self._taught = any(route.prediction.buckets for route in routes)
        self._by_bucket: dict[tuple[int, ...], Speeds] = {}
        self._sheets: dict[Priority, Sheet] = {}
        self._prices: Prices | None = None

    def sheet(self, states: tuple[RouteState, ...], share: PriorityShare) -> "Sheet":
        """Return what the states say of these routes, made from the last sheet where one fits."""
        last = self._sheets.get(share.priority)
        changed = None
        if last is not None and last.share is share:
            if last.states is states:
                return last
            changed = _changed(last.states, states)
        if last is None or changed is None:
            by_id = {state.route_id: state for state in states}
            rows = [_row(each, by_id.get(each.route_id), share) for each in self.routes]
            columns = [list(column) for column in zip(*rows, strict=True)]
            found = Sheet(states, share, columns or [[] for _ in Row._fields])
            if len(by_id) != len(states):
                return found  # a route is there twice: the next one is not told by its place
        else:
            columns = list(last.columns)
            for state in changed:
                place = self.places.get(state.route_id)
                if place is not None:
                    for index, value in enumerate(_row(self.routes[place], state, share)):
                        if columns[index][place] != value:  # mostly two of ten columns
                            columns[index] = columns[index].copy()
                            columns[index][place] = value
            found = Sheet(states, share, columns)
        self._sheets[share.priority] = found
        return found

    def speeds(self, tokens: list[int]) -> Speeds:
        """Return each route's prefill base, its pace per 1,000 tokens and between tokens, in µs.

        They are the declared ones, and of a route with a learned bucket for its tokens that
        bucket's: its prefill as the base, at no pace.
        """
        if not self._taught:
            return self.bases_us, self.paces_us, self.inter_token_us
        buckets = [_bucket(route, count) for route, count in zip(self.routes, tokens, strict=True)]
        key = tuple([-1 if each is None else each.over_tokens for each in buckets])
        found = self._by_bucket.get(key)
        if found is None:
            declared = zip(buckets, self.bases_us, self.paces_us, self.inter_token_us, strict=True)
            speeds = [
                (base_us, pace_us, gap_us) if b is None else (b.prefill_us, 0, b.inter_token_us)
                for b, base_us, pace_us, gap_us in declared
            ]
            found = ([s[0] for s in speeds], [s[1] for s in speeds], [s[2] for s in speeds])
            self._by_bucket[key] = found
        return found

    def prices(self, rates: RateTable) -> "Prices":
        """Return the routes' rates in a table; those of the last table are remembered."""
        last = self._prices
        if last is None or last.table is not rates:
            last = self._prices = Prices(rates, self.routes)
        return last


def _bucket(route: Route, tokens: int) -> PredictionBucket | None:
    for each in route.prediction.buckets:
        if each.over_tokens < tokens <= each.upto_tokens:
            return each
    return None


class Prices:
    """The rates of a table's routes: the route's own before its identity's, None of an unpriced.

    Routes that count with one tokenizer and pay the same have one cost: `kinds` are those pairs
    of tokenizer revision and rate, and `kind_of` has the place of each route's among them. None of
    it holds where rates are `particular`: they then depend on time or place.
    """

    __slots__ = ("kind_of", "kinds", "particular", "table")

    def __init__(self, table: RateTable, routes: tuple[Route, ...]) -> None:
        self.table, known = table, prepared(table)
        self.particular, by_key = known.particular, known.plain
        kinds: dict[tuple[str, str], int] = {}
        self.kinds: list[tuple[str, Rate | None]] = []
        self.kind_of: list[int] = []
        for route in routes:
            rate = by_key.get(route.route_id) or by_key.get(route.identity_id)
            same = "" if rate is None else repr(msgspec.structs.replace(rate, key=""))
            kind = kinds.setdefault((route.tokenizer_revision, same), len(kinds))
            if kind == len(self.kinds):
                self.kinds.append((route.tokenizer_revision, rate))
            self.kind_of.append(kind)


class Row(NamedTuple):
    """One route's state for one priority; `shut`: its queue is too long or too old.

    Of a route without a snapshot `observed_us` is NEVER_US, and what a snapshot says is 0.
    """

    up: bool
    healthy: bool
    shut: bool
    observed_us: int
    probes: int
    room_kv: int
    waiting: int
    queue_limit: int
    oldest_wait_us: int
    queue_us: int


class Sheet:
    """The states of a table's routes at one moment, for one priority, as columns of `Row`."""

    __slots__ = (
        "all_open",
        "all_up",
        "columns",
        "healthy",
        "least_room_kv",
        "observed_us",
        "oldest_us",
        "oldest_wait_us",
        "probes",
        "queue_limits",
        "queue_us",
        "room_kv",
        "share",
        "states",
        "waiting",
    )

    def __init__(
        self, states: tuple[RouteState, ...], share: PriorityShare, columns: list[list[int]]
    ) -> None:
        self.states, self.share, self.columns = states, share, columns
        up, self.healthy, shut, self.observed_us, self.probes = columns[:5]
        self.room_kv, self.waiting, self.queue_limits = columns[5:8]
        self.oldest_wait_us, self.queue_us = columns[8:]
        self.all_up, self.all_open = False not in up, True not in shut
        self.oldest_us = min(self.observed_us, default=NEVER_US)
        self.least_room_kv = min(self.room_kv, default=0)


def _changed(old: tuple[RouteState, ...], new: tuple[RouteState, ...]) -> list[RouteState] | None:
    """Return the new states that differ; None where they are of other routes than the old ones."""
    if len(old) != len(new):
        return None
    changed = []
    for was, state in zip(old, new, strict=True):
        if was is not state:
            if was.route_id != state.route_id:
                return None
            changed.append(state)
    return changed


def _row(route: Route, state: RouteState | None, share: PriorityShare) -> Row:
    """Return a route's row; of a route without a state nobody vouches for its health."""
    healthy = state is not None and state.healthy
    probes = 0 if state is None else state.probes_in_flight
    queue_us = route.prediction.queue_us
    limit = route.queue_limit * share.queue_permille // KILO
    snapshot = None if state is None else state.snapshot
    if state is None or snapshot is None:
        return Row(healthy and route.enabled, healthy, False, NEVER_US, probes, 0, 0, limit, 0,
                   queue_us)  # fmt: skip
    room_kv = snapshot.free_kv_tokens - state.reserved_since_kv_tokens
    if share.kv_permille != KILO:
        whole = snapshot.free_kv_tokens + snapshot.reserved_kv_tokens
        room_kv -= whole * (KILO - share.kv_permille) // KILO
    waiting = snapshot.waiting_requests + state.accepted_since
    oldest_wait_us = snapshot.oldest_wait_us
    pace_us = route.prediction.prefill_us_per_ktok
    return Row(
        healthy and route.enabled,
        healthy,
        waiting >= limit or oldest_wait_us > route.queue_age_limit_us,
        snapshot.observed_at_us,
        probes,
        room_kv,
        waiting,
        limit,
        oldest_wait_us,
        queue_us - (-snapshot.waiting_input_tokens * pace_us // KILO),
    )
