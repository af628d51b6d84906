"""The admission book: what is held is never negative and adds up, whatever happens in any order."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Held
from hypothesis.stateful import RuleBasedStateMachine, consumes, invariant, rule

from gateway.book import Book, Hold
from gateway.quota import Quota
from tests.policy_factories import NOW_US, snapshot

TENANTS, ROUTES = ("tenant-a", "tenant-b"), ("fast-v2", "long-context-v4")
LIMIT = 4


def hold(number: int = 1, **changed) -> Hold:
    fields: dict[str, Any] = {
        "reservation_id": f"req_{number}",
        "tenant_id": TENANTS[0],
        "route_id": ROUTES[0],
        "kv_tokens": 1_200,
        "cost_pico": 3_600_000_000,
        "taken_at_us": NOW_US,
    }
    return Hold(**fields | changed)


@pytest.fixture
def book() -> Book:
    made = Book()
    for tenant_id in TENANTS:
        quota = Quota(in_flight_limit=LIMIT, requests_per_minute=10, tokens_per_minute=10_000)
        made.set_quota(tenant_id, quota, now_us=NOW_US, spent_pico=0)
    for route_id in ROUTES:
        made.open_route(route_id)
    return made


def reserved_since(book: Book, route_id: str = ROUTES[0]) -> tuple[int, int]:
    state = next(s for s in book.route_states() if s.route_id == route_id)
    return state.reserved_since_kv_tokens, state.accepted_since


def test_a_hold_takes_a_slot_kv_and_money_and_its_end_gives_them_back(book: Book):
    book.take(hold(), 1_200)
    assert (book.in_flight(), book.kv_held_tokens(), book.pending_pico()) == (
        1,
        1_200,
        3_600_000_000,
    )
    book.settle(hold(), 2_000_000_000, at_us=NOW_US)
    assert (book.in_flight(), book.kv_held_tokens(), book.pending_pico()) == (0, 0, 0)
    assert book.tenant_state(TENANTS[0], NOW_US).spent_pico == 2_000_000_000


def test_one_reservation_is_not_taken_twice(book: Book):
    book.take(hold(), 1_200)
    with pytest.raises(ValueError, match="req_1 is held already"):
        book.take(hold(), 1_200)
    assert (book.in_flight(), book.kv_held_tokens()) == (1, 1_200)


def test_kv_counts_as_reserved_since_until_a_snapshot_can_show_it(book: Book):
    """A snapshot that was observed while the reservation was being recorded doesn't have it."""
    book.take(hold(), 1_200)
    book.observe(snapshot(observed_at_us=NOW_US + 1_000))
    assert reserved_since(book) == (1_200, 1)
    book.sent(hold(), NOW_US + 2_000)
    book.observe(snapshot(observed_at_us=NOW_US + 2_000))
    assert reserved_since(book) == (1_200, 1)
    book.observe(snapshot(observed_at_us=NOW_US + 2_001))
    assert reserved_since(book) == (0, 0)
    assert book.kv_held_tokens() == 1_200


def test_an_unknowns_room_returns_at_its_bound_and_its_money_stays(book: Book):
    book.take(hold(), 1_200)
    book.leave_unknown(hold(), NOW_US + 60_000_000)
    book.give_back_due(NOW_US + 59_999_999)
    assert (book.in_flight(), book.kv_held_tokens()) == (1, 1_200)
    book.give_back_due(NOW_US + 60_000_000)
    assert (book.in_flight(), book.kv_held_tokens(), book.pending_pico()) == (0, 0, 3_600_000_000)
    book.settle_unknown_money(TENANTS[0], 3_600_000_000, 1_000_000_000, at_us=NOW_US)
    state = book.tenant_state(TENANTS[0], NOW_US + 60_000_000)
    assert (state.pending_pico, state.spent_pico) == (0, 1_000_000_000)


def test_a_minute_forgets_requests_and_tokens_as_they_leave_it(book: Book):
    book.take(hold(1), 1_200)
    book.settle(hold(1), 0, at_us=NOW_US)
    book.take(hold(2, taken_at_us=NOW_US + 1), 300)
    state = book.tenant_state(TENANTS[0], NOW_US + 59_999_999)
    assert (state.requests_in_minute, state.tokens_in_minute) == (2, 1_500)
    state = book.tenant_state(TENANTS[0], NOW_US + 60_000_000)
    assert (state.requests_in_minute, state.tokens_in_minute) == (1, 300)


def test_a_tenant_out_of_slots_waits_a_second_and_one_out_of_rate_the_rest_of_its_minute(
    book: Book,
):
    book.change_quota(TENANTS[0], Quota(in_flight_limit=LIMIT, requests_per_minute=LIMIT))
    for number in range(LIMIT):
        book.take(hold(number), 300)
    state = book.tenant_state(TENANTS[0], NOW_US + 20_000_000)
    assert (state.retry_after_ms, state.requests_free_ms) == (1_000, 40_000)


def test_a_new_month_starts_with_nothing_spent_and_keeps_what_is_pending(book: Book):
    book.take(hold(1), 1_200)
    book.take(hold(2), 1_200)
    book.settle(hold(1), 5, at_us=NOW_US)
    state = book.tenant_state(TENANTS[0], NOW_US + 32 * 86_400_000_000)
    assert (state.spent_pico, state.pending_pico, state.in_flight) == (0, 3_600_000_000, 1)


class Holding(RuleBasedStateMachine):
    """Takes, sends, settles, loses sight of and observes in any order, beside a plain model."""

    holds = Held("holds")

    def __init__(self) -> None:
        super().__init__()
        self.book, self.now_us, self.number = Book(), NOW_US, 0
        for tenant_id in TENANTS:
            quota = Quota(in_flight_limit=LIMIT)
            self.book.set_quota(tenant_id, quota, now_us=NOW_US, spent_pico=0)
        for route_id in ROUTES:
            self.book.open_route(route_id)
        self.with_room: dict[str, Hold] = {}
        self.with_money: dict[str, Hold] = {}
        self.bounds: dict[str, int] = {}
        self.unseen: dict[str, int | None] = {}
        self.spent = dict.fromkeys(TENANTS, 0)

    @rule(
        target=holds,
        tenant_id=st.sampled_from(TENANTS),
        route_id=st.sampled_from(ROUTES),
        kv_tokens=st.integers(1, 10_000),
        cost_pico=st.integers(0, 10**15),
        probe=st.booleans(),
    )
    def take(self, tenant_id, route_id, kv_tokens, cost_pico, probe):
        self.number += 1
        taken = hold(
            self.number, tenant_id=tenant_id, route_id=route_id, kv_tokens=kv_tokens,
            cost_pico=cost_pico, taken_at_us=self.now_us, probe=probe,
        )  # fmt: skip
        self.book.take(taken, kv_tokens)
        self.with_room[taken.reservation_id] = self.with_money[taken.reservation_id] = taken
        self.unseen[taken.reservation_id] = None
        return taken

    @rule(taken=holds)
    def send(self, taken):
        self.book.sent(taken, self.now_us)
        if taken.reservation_id in self.unseen:
            self.unseen[taken.reservation_id] = self.now_us

    @rule(taken=consumes(holds), spent_pico=st.integers(0, 10**15))
    def settle(self, taken, spent_pico):
        self.book.settle(taken, spent_pico, at_us=self.now_us)
        self.room_returns(taken.reservation_id)
        del self.with_money[taken.reservation_id]
        self.spent[taken.tenant_id] += spent_pico

    @rule(taken=holds, after_us=st.integers(1, 1_000))
    def lose_sight(self, taken, after_us):
        if taken.reservation_id not in self.bounds:
            self.bounds[taken.reservation_id] = self.now_us + after_us
            self.book.leave_unknown(taken, self.now_us + after_us)

    @rule(us=st.integers(0, 500))
    def pass_time(self, us):
        self.now_us += us
        self.book.give_back_due(self.now_us)
        for reservation_id, bound_us in list(self.bounds.items()):
            if bound_us <= self.now_us:
                self.room_returns(reservation_id)

    @rule(route_id=st.sampled_from(ROUTES))
    def observe(self, route_id):
        self.book.observe(snapshot(route_id, observed_at_us=self.now_us))
        for reservation_id, sent_at_us in list(self.unseen.items()):
            on_route = self.with_room[reservation_id].route_id == route_id
            if on_route and sent_at_us is not None and sent_at_us < self.now_us:
                del self.unseen[reservation_id]

    def room_returns(self, reservation_id: str) -> None:
        self.with_room.pop(reservation_id, None)
        self.unseen.pop(reservation_id, None)
        self.bounds.pop(reservation_id, None)

    @invariant()
    def the_book_holds_what_the_model_holds(self):
        for tenant_id in TENANTS:
            own = [h for h in self.with_room.values() if h.tenant_id == tenant_id]
            assert self.book.in_flight(tenant_id) == len(own)
        assert self.book.in_flight() == len(self.with_room)
        assert self.book.kv_held_tokens() == sum(h.kv_tokens for h in self.with_room.values())
        assert self.book.pending_pico() == sum(h.cost_pico for h in self.with_money.values())
        for state in self.book.route_states():
            own = [h for h in self.with_room.values() if h.route_id == state.route_id]
            unseen = [h.kv_tokens for h in own if h.reservation_id in self.unseen]
            assert (state.reserved_since_kv_tokens, state.accepted_since) == (
                sum(unseen), len(unseen),
            )  # fmt: skip
            assert state.probes_in_flight == sum(h.probe for h in own)

    @invariant()
    def each_tenants_money_is_its_own(self):
        for tenant_id in TENANTS:
            state = self.book.tenant_state(tenant_id, NOW_US)
            own = [h.cost_pico for h in self.with_money.values() if h.tenant_id == tenant_id]
            assert (state.pending_pico, state.spent_pico) == (sum(own), self.spent[tenant_id])


TestHolding = Holding.TestCase
