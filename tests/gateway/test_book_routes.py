"""The book by hand: holds that are taken back or resolved, and routes that come, go and rest."""

from typing import Any

import pytest

from gateway.book import Book, Hold
from gateway.quota import Quota
from tests.policy_factories import NOW_US, snapshot

ROUTES = ("a", "b")


def hold(number: int = 1, **changed: Any) -> Hold:
    fields: dict[str, Any] = {
        "reservation_id": f"req_{number}", "tenant_id": "acme", "route_id": "a",
        "kv_tokens": 1_200, "cost_pico": 70, "taken_at_us": NOW_US,
    }  # fmt: skip
    return Hold(**fields | changed)


@pytest.fixture
def book() -> Book:
    made = Book()
    quota = Quota(in_flight_limit=4, tokens_per_minute=10_000)
    made.set_quota("acme", quota, now_us=NOW_US, spent_pico=0)
    for route_id in ROUTES:
        made.open_route(route_id)
    return made


def healthy(book: Book) -> dict[str, bool]:
    return {each.route_id: each.healthy for each in book.route_states()}


def minute(book: Book) -> tuple[int, int]:
    state = book.tenant_state("acme", NOW_US)
    return state.requests_in_minute, state.tokens_in_minute


def test_an_empty_book_has_nothing_to_give_back_and_no_snapshot_to_wait_for():
    empty = Book()
    empty.give_back_due(NOW_US)
    assert not empty.some_observed_before(NOW_US)
    assert not empty.some_observed_before(NOW_US + 1)
    assert empty.route_states() == ()


def test_a_hold_taken_back_leaves_no_trace_in_the_minute_and_one_released_stays_in_it(book: Book):
    book.take(hold(1, taken_at_us=NOW_US - 5), 300)
    book.take(hold(2), 400)
    book.withdraw(hold(2))
    assert minute(book) == (1, 300)
    assert (book.in_flight(), book.pending_pico(), book.held_on("a")) == (1, 70, (1, 1_200))
    book.release(hold(1, taken_at_us=NOW_US - 5))
    assert minute(book) == (1, 300)
    assert (book.in_flight(), book.pending_pico(), book.held_on("a")) == (0, 0, (0, 0))


def test_a_hold_that_was_not_counted_takes_no_other_ones_place_from_the_minute(book: Book):
    book.take(hold(1, taken_at_us=NOW_US - 5), 300)
    book.take(hold(2), None)
    book.withdraw(hold(2))
    assert minute(book) == (1, 300)


def test_an_unknown_that_is_resolved_before_its_bound_gives_its_room_back_once(book: Book):
    """LED-6: the bound that passes later finds nothing to give back."""
    book.take(hold(1), 300)
    book.take(hold(2), 300)
    book.leave_unknown(hold(1), NOW_US + 10)
    book.settle_unknown("req_1", "acme", 70, 30, at_us=NOW_US)
    assert (book.in_flight(), book.kv_held_tokens(), book.pending_pico()) == (1, 1_200, 70)
    book.give_back_due(NOW_US + 10)
    assert (book.in_flight(), book.kv_held_tokens(), book.pending_pico()) == (1, 1_200, 70)
    assert book.tenant_state("acme", NOW_US + 10).spent_pico == 30


def test_an_unknown_from_before_a_restart_is_settled_by_its_money_alone(book: Book):
    book.hold_unknown_money("acme", 70)
    assert (book.in_flight(), book.pending_pico()) == (0, 70)
    book.settle_unknown("req_old", "acme", 70, 30, at_us=NOW_US)
    assert (book.in_flight(), book.pending_pico()) == (0, 0)
    assert book.tenant_state("acme", NOW_US).spent_pico == 30


def test_a_decision_sees_a_tenant_without_the_unknowns_whose_bound_has_passed(book: Book):
    """LED-6: nobody has to have asked for them to be given back."""
    book.take(hold(1), 1)
    book.leave_unknown(hold(1), NOW_US + 10)
    assert book.tenant_state("acme", NOW_US + 9).in_flight == 1
    assert book.tenant_state("acme", NOW_US + 10).in_flight == 0


def test_only_a_tenant_that_was_entered_has_a_quota(book: Book):
    quota = book.quota("acme")
    assert quota is not None
    assert (quota.in_flight_limit, book.quota("nobody")) == (4, None)


def test_unknowns_return_in_the_order_of_their_bounds(book: Book):
    for number, after_us in ((1, 30), (2, 10), (3, 20)):
        book.take(hold(number), 1)
        book.leave_unknown(hold(number), NOW_US + after_us)
    left = []
    for after_us in (9, 10, 20, 29, 30):
        book.give_back_due(NOW_US + after_us)
        left.append(book.in_flight())
    assert left == [3, 2, 1, 1, 0]


def test_a_route_is_forgotten_when_it_is_not_opened_again_and_holds_nothing(book: Book):
    book.take(hold(1, route_id="b"), 1)
    book.set_health("a", healthy=False)
    book.open_routes(("c", "a"))
    assert [each.route_id for each in book.route_states()] == ["c", "a", "b"]
    assert healthy(book) == {"c": True, "a": False, "b": True}  # what is known of a route stays
    book.settle(hold(1, route_id="b"), 0, at_us=NOW_US)
    book.open_routes(("c",))
    assert [each.route_id for each in book.route_states()] == ["c"]
    assert book.held_on("b") == (0, 0)


def test_a_drained_route_is_unhealthy_whatever_its_backend_says_until_it_is_let_go(book: Book):
    book.set_drained(("a",))
    book.set_health("a", healthy=True)
    assert (healthy(book), book.drained()) == ({"a": False, "b": True}, frozenset("a"))
    book.set_drained(("b",))
    assert (healthy(book), book.drained()) == ({"a": True, "b": False}, frozenset("b"))


def test_only_the_routes_that_are_named_are_cooling(book: Book):
    for named in ({"a"}, {"b"}, {"a", "b"}, set[str]()):
        book.set_cooling(named)
        assert {each.route_id for each in book.route_states() if each.cooling} == named


def test_the_oldest_snapshot_says_whether_any_is_older_than_a_moment(book: Book):
    assert book.some_observed_before(1)  # there is none yet
    assert book.observed_before("a", 1)
    book.observe(snapshot("a", observed_at_us=100))
    assert not book.observed_before("a", 100)
    assert book.observed_before("a", 101)
    assert book.some_observed_before(100)
    book.observe(snapshot("b", observed_at_us=200))
    assert not book.some_observed_before(100)
    assert book.some_observed_before(101)
    assert not book.observed_before("no such route", 10**18)
    book.open_routes(("b",))
    assert not book.some_observed_before(200)
    assert book.some_observed_before(201)


def test_each_change_of_what_is_known_of_snapshots_is_counted(book: Book):
    seen = [book.observations]
    book.observe(snapshot("a"))
    seen.append(book.observations)
    book.open_routes(ROUTES)
    seen.append(book.observations)
    assert seen == [0, 1, 2]
    assert book.snapshot_of("a") == snapshot("a")
    assert (book.snapshot_of("b"), book.snapshot_of(None), book.snapshot_of("z")) == (None,) * 3
