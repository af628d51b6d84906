"""RTY-2: breakers and cooldowns by hand, without a request: when each begins, ends and is told."""

import json
from concurrent.futures import Future

import pytest

from gateway import metrics
from gateway.book import Book
from gateway.policy.retrying import Cooldown
from gateway.policy.values import AttemptRules, BreakerRule
from gateway.route_health import COOLDOWNS_LIMIT, RouteHealth
from ledger.errors import LedgerUnavailable
from tests.policy_factories import NOW_US, policy, route

RULE = BreakerRule(failures=2, window_us=60_000_000, open_us=10_000_000)
OPENED_US = NOW_US + RULE.open_us


class Routes:
    """The health of some routes, what the book sees of it, and what was written of its changes."""

    def __init__(self, *route_ids, rule=RULE):
        self.book, self.told, self.taken = Book(), [], Future()
        self.book.open_routes(route_ids)
        self.route_ids = route_ids
        self.health = RouteHealth(self.book, self.policy(rule), self.append)

    def policy(self, rule):
        return policy(*map(route, self.route_ids), attempts=AttemptRules(breaker=rule))

    def append(self, records):
        self.told += records
        return self.taken

    def end(self, route_id, reason=None, *, at_us=NOW_US, retry_after_ms=None, sent_us=None):
        self.health.ended(
            route_id,
            "unknown" if reason else "completed",
            reason,
            retry_after_ms,
            evidence="an attempt",
            now_us=at_us,
            sent_us=sent_us,
        )

    def cut(self, route_id):
        for _ in range(RULE.failures):
            self.end(route_id, "PROVIDER_SILENT")

    def passing(self):
        return {each.route_id for each in self.book.route_states() if each.healthy}

    def cooling(self):
        return {each.route_id for each in self.book.route_states() if each.cooling}


def test_a_probe_that_never_left_makes_room_for_another():
    on = Routes("a")
    on.cut("a")
    on.health.tick(OPENED_US - 1)
    assert on.passing() == set()
    on.health.tick(OPENED_US)
    assert on.passing() == {"a"}
    on.health.sent("a", OPENED_US)
    assert on.passing() == set()
    on.health.unsent("a", OPENED_US)
    assert (on.passing(), on.health.states()) == ({"a"}, {"a": "half_open"})


def test_a_pause_that_ends_leaves_the_routes_beside_it_as_they_are():
    on = Routes("a", "b", "c")
    on.cut("a")
    on.health.tick(OPENED_US)
    on.health.sent("a", OPENED_US)
    on.end("b", "PROVIDER_SILENT", at_us=OPENED_US)
    on.end("b", "PROVIDER_SILENT", at_us=OPENED_US)
    on.health.sent("c", OPENED_US)
    before, told = on.health.breakers(), len(on.told)
    on.health.tick(OPENED_US + 1)
    assert (on.health.breakers(), on.passing(), len(on.told)) == (before, {"c"}, told)


def test_without_a_rule_no_breaker_is_left_over_for_the_next_one():
    on = Routes("a", "b")
    on.cut("a")
    on.health.reconfigure(on.policy(None))
    assert (on.passing(), on.health.states()) == ({"a", "b"}, {"a": "closed", "b": "closed"})
    on.health.sent("a", OPENED_US)
    on.end("a", at_us=OPENED_US)
    on.health.reconfigure(on.policy(RULE))
    assert on.passing() == {"a", "b"}


def test_a_route_that_stays_keeps_its_breaker_and_one_that_went_is_asked_nothing():
    on = Routes("a", "b")
    on.cut("a")
    on.route_ids = ("a",)
    on.health.reconfigure(on.policy(RULE))
    on.health.sent("b", NOW_US)
    on.end("b", "PROVIDER_SILENT")
    assert on.health.states() == {"a": "open"}
    assert on.passing() == {"b"}  # as the book knew it, until it forgets the route


@pytest.mark.parametrize("rule", [RULE, None])
def test_what_was_drained_is_let_go_as_its_breaker_has_it(rule):
    on = Routes("a", "b", rule=rule)
    on.cut("a")
    on.book.set_drained(("a", "b"))
    on.health.reconfigure(on.policy(rule))
    assert on.passing() == set()
    on.book.set_drained(())
    assert on.passing() == ({"a", "b"} if rule is None else {"b"})


def test_each_change_is_told_with_what_the_breaker_was_and_is():
    on = Routes("a")
    on.cut("a")
    (opened,) = on.told
    assert (opened.action, opened.subject, opened.acted_at_us) == ("route_breaker", "a", NOW_US)
    assert (opened.actor, opened.reason) == ("circuit breaker", "PROVIDER_SILENT")
    assert json.loads(opened.before_json) == {"state": "closed", "good": 0, "bad": 1, "until_us": 0}
    assert json.loads(opened.after_json) == {
        "state": "open",
        "good": 0,
        "bad": 0,
        "until_us": OPENED_US,
    }


def test_a_ledger_that_does_not_take_the_news_is_logged_and_the_route_is_cut(caplog):
    on = Routes("a")
    on.taken.set_exception(LedgerUnavailable("the disk is full", "DISK_FULL"))
    on.cut("a")
    assert on.passing() == set()
    (error,) = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert error == "a route's change of health is not in the ledger: LedgerUnavailable"


def test_news_that_the_ledger_took_is_no_error(caplog):
    on = Routes("a")
    on.taken.set_result(())
    on.cut("a")
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_each_change_is_counted():
    def openings():
        name = 'weighbridge_breaker_changes_total{route="a",state="open"} '
        lines = metrics.exposition().decode().splitlines()
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    before = openings()
    Routes("a").cut("a")
    assert openings() == before + 1


def test_a_cooldown_lasts_as_long_as_was_asked_and_ends_for_its_route_alone():
    on = Routes("a", "b")
    on.end("b", "PROVIDER_OVERLOADED", retry_after_ms=20)
    on.end("a", "PROVIDER_OVERLOADED", retry_after_ms=10)
    assert on.cooling() == {"a", "b"}
    a = Cooldown(route_id="a", until_us=NOW_US + 10_000)
    b = Cooldown(route_id="b", until_us=NOW_US + 20_000)
    assert on.health.cooldowns(NOW_US + 9_999) == (a, b)
    assert on.health.cooldowns(NOW_US + 10_000) == (b,)
    on.health.tick(NOW_US + 9_999)
    assert on.cooling() == {"a", "b"}
    on.health.tick(NOW_US + 10_000)
    assert on.cooling() == {"b"}


def test_only_what_came_of_an_attempt_that_was_sent_since_ends_a_cooldown_and_only_a_success():
    on = Routes("a")
    on.end("a", "PROVIDER_OVERLOADED", retry_after_ms=10)
    on.end("a", sent_us=NOW_US - 1)
    on.end("a", sent_us=None)
    on.end("a", "PROVIDER_SILENT", sent_us=NOW_US)
    assert on.cooling() == {"a"}
    on.end("a", sent_us=NOW_US)
    assert on.cooling() == set()


def test_of_too_many_cooldowns_the_one_that_ends_first_gives_way_to_another_route_alone():
    on = Routes("late", "soon", "new")
    on.end("late", "PROVIDER_OVERLOADED", retry_after_ms=9)
    on.end("soon", "PROVIDER_OVERLOADED", retry_after_ms=2)
    for number in range(COOLDOWNS_LIMIT - 2):
        on.end(f"gone-{number}", "PROVIDER_OVERLOADED", retry_after_ms=5)
    on.end("late", "PROVIDER_OVERLOADED", retry_after_ms=8)  # it has a place already
    assert on.cooling() == {"late", "soon"}
    on.end("new", "PROVIDER_OVERLOADED", retry_after_ms=5)
    assert on.cooling() == {"late", "new"}
    assert len(on.health.cooldowns(NOW_US)) == COOLDOWNS_LIMIT
