"""The admission book: what every tenant and route holds right now, in memory, on the event loop.

Deciding and taking happen without an await between them, so N requests racing for the last slot,
KV room or money get exactly what is there (ADM-7). The ledger makes each hold durable before a
byte leaves; after a restart the book is rebuilt from the ledger.
"""

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from gateway.policy.values import CapacitySnapshot, RouteState, TenantState
from gateway.quota import Quota
from gateway.tenant_account import TenantAccount
from ledger.money import INT64_MAX


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """What one accepted request holds until it is settled."""

    reservation_id: str
    tenant_id: str
    route_id: str
    kv_tokens: int
    cost_pico: int
    taken_at_us: int
    probe: bool = False


@dataclass(slots=True, kw_only=True)
class RouteAccount:
    """A route's side of the book: its last snapshot, and the holds taken since."""

    route_id: str
    healthy: bool = True
    cooling: bool = False  # its provider asked to be left alone for now
    drained: bool = False  # by an operator: what runs there ends, nothing new begins
    snapshot: CapacitySnapshot | None = None
    kv_held_tokens: int = 0
    holds: int = 0
    probes_in_flight: int = 0
    # id -> (when its attempt was sent, None: not yet; KV tokens)
    since: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    reserved_since_kv_tokens: int = 0

    def state(self) -> RouteState:
        return RouteState(
            route_id=self.route_id,
            healthy=self.healthy and not self.drained,
            snapshot=self.snapshot,
            reserved_since_kv_tokens=self.reserved_since_kv_tokens,
            accepted_since=len(self.since),
            probes_in_flight=self.probes_in_flight,
            cooling=self.cooling,
        )


class Book:
    """All holds. Not thread-safe on purpose: one event loop owns it."""

    def __init__(self) -> None:
        self._tenants: dict[str, TenantAccount] = {}
        self._routes: dict[str, RouteAccount] = {}
        self._holds: dict[str, Hold] = {}
        self._bounds: list[tuple[int, str]] = []  # unknown holds whose slot returns at a time
        self._states: dict[str, RouteState] = {}  # in the order the routes were opened
        self._outdated: set[str] = set()
        self._first_period_end_us = 0  # of all accounts
        self._seen: tuple[RouteState, ...] = ()
        self._oldest_us: int | None = None  # of the snapshots; None: to be found anew
        self.observations = 0  # how often what is known of a snapshot has changed

    def set_quota(
        self,
        tenant_id: str,
        quota: Quota,
        *,
        now_us: int,
        spent_pico: int,
        spent_today_pico: int = 0,
    ) -> None:
        """Enter a tenant, or change its quota; holds stay as they are."""
        account = self._tenants.get(tenant_id)
        if account is None:
            account = self._tenants[tenant_id] = TenantAccount(quota=quota)
        account.quota = quota
        account.enter_periods(now_us)
        account.spent_pico, account.spent_today_pico = spent_pico, spent_today_pico
        self._first_period_end_us = 0

    def enter_minute(self, tenant_id: str, requests: Iterable[tuple[int, int]]) -> None:
        """Enter the (time, tokens) of a tenant's requests just before a restart, oldest first."""
        self._tenants[tenant_id].enter_minute(requests)

    def change_quota(self, tenant_id: str, quota: Quota) -> None:
        """Give a tenant another quota of the same time zone; all that it holds or spent stays."""
        self._tenants[tenant_id].quota = quota

    def quota(self, tenant_id: str) -> Quota | None:
        account = self._tenants.get(tenant_id)
        return account.quota if account else None

    def open_route(self, route_id: str) -> None:
        route = self._routes.setdefault(route_id, RouteAccount(route_id=route_id))
        self._states.setdefault(route_id, route.state())
        self._outdated.add(route_id)
        self._oldest_us = None

    def open_routes(self, route_ids: Iterable[str]) -> None:
        """Have a decision see these routes, in this order; a route that holds nothing and is not
        among them is forgotten."""
        wanted = dict.fromkeys(route_ids)
        left = {
            route_id: account
            for route_id, account in self._routes.items()
            if route_id not in wanted and account.holds
        }
        known = self._routes
        self._routes = {
            route_id: known.get(route_id) or RouteAccount(route_id=route_id) for route_id in wanted
        } | left
        self._states = {route_id: route.state() for route_id, route in self._routes.items()}
        self._outdated = set(self._routes)
        self._oldest_us = None
        self.observations += 1

    def observe(self, snapshot: CapacitySnapshot) -> None:
        """Take a route's new snapshot; what was sent before it was observed is part of it."""
        route = self._routes[snapshot.route_id]
        route.snapshot = snapshot
        self._oldest_us = None
        self.observations += 1
        self._outdated.add(route.route_id)
        if route.since:
            seen = [
                key
                for key, (sent_at_us, _) in route.since.items()
                if sent_at_us is not None and sent_at_us < snapshot.observed_at_us
            ]
            for reservation_id in seen:
                route.reserved_since_kv_tokens -= route.since.pop(reservation_id)[1]

    def set_health(self, route_id: str, healthy: bool) -> None:
        route = self._routes[route_id]
        route.healthy = healthy
        self._outdated.add(route_id)

    def set_cooling(self, route_ids: Collection[str]) -> None:
        """Have decisions see that these routes, and no others, asked to be left alone for now."""
        for route in self._routes.values():
            if route.cooling != (route.route_id in route_ids):
                route.cooling = not route.cooling
                self._outdated.add(route.route_id)

    def set_drained(self, route_ids: Collection[str]) -> None:
        """Have these routes, and no others, take nothing new; each goes on counting as unhealthy
        until it is no more among them, whatever its backend says."""
        for route in self._routes.values():
            route.drained = route.route_id in route_ids
        self._outdated.update(self._routes)

    def held_on(self, route_id: str) -> tuple[int, int]:
        """Return the requests that are held on a route, and their KV tokens."""
        route = self._routes.get(route_id)
        return (0, 0) if route is None else (route.holds, route.kv_held_tokens)

    def observed_before(self, route_id: str, at_us: int) -> bool:
        """Return whether a route's snapshot is older than that, or there is none yet."""
        route = self._routes.get(route_id)
        return route is not None and _observed_us(route) < at_us

    def some_observed_before(self, at_us: int) -> bool:
        """Return whether any route's is: what most decisions need to know."""
        if self._oldest_us is None:
            self._oldest_us = min(map(_observed_us, self._routes.values()), default=INT64_MAX)
        return self._oldest_us < at_us

    def drained(self) -> frozenset[str]:
        return frozenset(route.route_id for route in self._routes.values() if route.drained)

    def tenant_state(self, tenant_id: str, now_us: int, tokens: int = 0) -> TenantState:
        """Return the tenant as a decision sees it at `now_us`, about a request of `tokens`."""
        self.give_back_due(now_us)
        return self._tenants[tenant_id].state(tenant_id, now_us, tokens)

    def snapshot_of(self, route_id: str | None) -> CapacitySnapshot | None:
        """Return a route's last snapshot; None where there is none, or no such route."""
        route = None if route_id is None else self._routes.get(route_id)
        return None if route is None else route.snapshot

    def route_states(self) -> tuple[RouteState, ...]:
        """Return every open route as a decision sees it, in the order they were opened."""
        if self._outdated:
            for route_id in self._outdated:
                self._states[route_id] = self._routes[route_id].state()
            self._outdated.clear()
            self._seen = tuple(self._states.values())
        return self._seen

    def take(self, hold: Hold, tokens: int | None) -> None:
        """Take a slot, KV room and money at once; the decision has checked that they are there.

        `tokens` count towards the tenant's minute, as one request; None: it was counted before.
        """
        if hold.reservation_id in self._holds:
            raise ValueError(f"{hold.reservation_id} is held already")
        self._holds[hold.reservation_id] = hold
        account = self._tenants[hold.tenant_id]
        account.in_flight += 1
        account.pending_pico += hold.cost_pico
        if tokens is not None:
            account.count(hold.taken_at_us, tokens)
        route = self._routes[hold.route_id]
        route.kv_held_tokens += hold.kv_tokens
        route.holds += 1
        route.probes_in_flight += hold.probe
        route.since[hold.reservation_id] = (None, hold.kv_tokens)
        route.reserved_since_kv_tokens += hold.kv_tokens
        self._outdated.add(hold.route_id)

    def sent(self, hold: Hold, at_us: int) -> None:
        """Note that the backend has the attempt: only snapshots observed later can show it.

        Until then its KV counts as reserved since, however long the ledger takes (ADM-3).
        """
        since = self._routes[hold.route_id].since
        if hold.reservation_id in since:
            since[hold.reservation_id] = (at_us, hold.kv_tokens)

    def settle(self, hold: Hold, spent_pico: int, *, at_us: int) -> None:
        """Give back slot, KV and money of a hold whose end is known; post what was spent.

        `at_us`: when it was settled, as its Settlement says; that day and month are charged.
        """
        self._give_back_room(hold)
        account = self._tenants[hold.tenant_id]
        account.pending_pico -= hold.cost_pico
        account.spend(spent_pico, at_us)

    def release(self, hold: Hold) -> None:
        """Give back all that a hold took: nothing of it ran, so nothing was spent."""
        self._give_back_room(hold)
        self._tenants[hold.tenant_id].pending_pico -= hold.cost_pico

    def withdraw(self, hold: Hold) -> None:
        """Take back the hold that was taken last, its place in the minute too: nothing ran."""
        self.release(hold)
        account = self._tenants[hold.tenant_id]
        if account.recent and account.recent[-1][0] == hold.taken_at_us:
            account.tokens_in_minute -= account.recent.pop()[1]

    def leave_unknown(self, hold: Hold, bound_us: int) -> None:
        """Keep an unknown's money held; slot and KV return once `bound_us` has passed (LED-6)."""
        heapq.heappush(self._bounds, (bound_us, hold.reservation_id))

    def hold_unknown_money(self, tenant_id: str, cost_pico: int) -> None:
        """Enter the money of an unknown from before a restart, whose room is given back already."""
        self._tenants[tenant_id].pending_pico += cost_pico

    def settle_unknown(
        self, reservation_id: str, tenant_id: str, cost_pico: int, spent_pico: int, *, at_us: int
    ) -> None:
        """Settle a resolved unknown: its money, and its room where the bound is still to come."""
        hold = self._holds.get(reservation_id)
        if hold is not None:
            self._give_back_room(hold)
        self.settle_unknown_money(tenant_id, cost_pico, spent_pico, at_us=at_us)

    def settle_unknown_money(
        self, tenant_id: str, cost_pico: int, spent_pico: int, *, at_us: int
    ) -> None:
        """Release the money of a resolved unknown and post what it is now known to have spent."""
        account = self._tenants[tenant_id]
        account.pending_pico -= cost_pico
        account.spend(spent_pico, at_us)

    def in_flight(self, tenant_id: str | None = None) -> int:
        """Return the slots held, of one tenant or of all."""
        accounts = self._tenants.values() if tenant_id is None else [self._tenants[tenant_id]]
        return sum(account.in_flight for account in accounts)

    def kv_held_tokens(self) -> int:
        return sum(route.kv_held_tokens for route in self._routes.values())

    def pending_pico(self) -> int:
        return sum(account.pending_pico for account in self._tenants.values())

    def give_back_due(self, now_us: int) -> None:
        """Give back slot and KV of the unknowns whose bound has passed; their money stays held.

        Every account begins its new day or month too, so that what is spent from then on is its.
        """
        if now_us >= self._first_period_end_us:
            for account in self._tenants.values():
                account.roll(now_us)
            ends_us = [account.day_end_us for account in self._tenants.values()]
            self._first_period_end_us = min(ends_us, default=now_us)
        while self._bounds and self._bounds[0][0] <= now_us:
            hold = self._holds.get(heapq.heappop(self._bounds)[1])
            if hold is not None:
                self._give_back_room(hold)

    def _give_back_room(self, hold: Hold) -> None:
        if self._holds.pop(hold.reservation_id, None) is None:
            return  # an unknown whose bound passed first: its room is back already
        self._tenants[hold.tenant_id].in_flight -= 1
        route = self._routes[hold.route_id]
        route.kv_held_tokens -= hold.kv_tokens
        route.holds -= 1
        route.probes_in_flight -= hold.probe
        since = route.since.pop(hold.reservation_id, None)
        if since is not None:
            route.reserved_since_kv_tokens -= since[1]
        self._outdated.add(hold.route_id)


def _observed_us(route: RouteAccount) -> int:
    return 0 if route.snapshot is None else route.snapshot.observed_at_us
