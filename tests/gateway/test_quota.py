"""Quotas: the budget of a local day and month, the sliding minute, and when each has room again."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.book import Book, Hold
from gateway.quota import BUDGET_PERIODS, BudgetPeriod, Quota
from gateway.tenant_account import MINUTE_US, TenantAccount
from ledger.zones import to_local
from tests.gateway.weighing import desk, weigh
from tests.policy_factories import NOW_US, rates

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
ZONES = (
    "UTC", "Asia/Kolkata", "Europe/Berlin", "America/New_York", "America/St_Johns",
    "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo",
)  # fmt: skip


def us(*moment: int, zone: str = "UTC") -> int:
    """Return year, month, day and what else is given, as the zone's clocks show them, in µs."""
    year, month, day, hour = (*moment, 0)[:4]
    local = datetime(year, month, day, hour, tzinfo=ZoneInfo(zone))
    return int(local.astimezone(UTC).timestamp()) * SECOND_US


@pytest.mark.parametrize(
    ("zone", "now", "end"),
    [
        ("UTC", (2026, 2, 28, 23), (2026, 3, 1)),
        ("UTC", (2024, 2, 1), (2024, 3, 1)),
        ("Asia/Kolkata", (2026, 1, 1), (2026, 2, 1)),
        ("Europe/Berlin", (2026, 3, 29, 12), (2026, 4, 1)),  # a day of 23 hours
        ("America/New_York", (2026, 12, 31, 23), (2027, 1, 1)),
    ],
)
def test_a_month_ends_where_the_next_one_starts_on_its_own_calendar(
    zone: str, now: tuple[int, ...], end: tuple[int, ...]
):
    quota = Quota(in_flight_limit=1, time_zone=zone)
    assert quota.period_us("month", us(*now, zone=zone))[1] == us(*end, zone=zone)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2026, 3, 29), 23),
        ("Europe/Berlin", (2026, 10, 25), 25),
        ("Asia/Kolkata", (2026, 3, 29), 24),
        ("Asia/Beirut", (2026, 3, 29), 23),  # midnight itself is skipped
        ("Australia/Lord_Howe", (2026, 4, 5), 24.5),
    ],
)
def test_a_day_has_the_hours_that_its_clocks_give_it(zone: str, day: tuple[int, ...], hours: float):
    quota = Quota(in_flight_limit=1, time_zone=zone)
    start_us, end_us = quota.period_us("day", us(*day, 12, zone=zone))
    assert (end_us - start_us) / HOUR_US == hours
    assert to_local(start_us, ZoneInfo(zone)).date() == date(*day)


instants = st.integers(us(2000, 1, 1), us(2037, 12, 31))


@given(st.sampled_from(ZONES), st.sampled_from(BUDGET_PERIODS), instants)
def test_periods_hold_their_instants_and_follow_each_other_without_gap(zone, period, now_us):
    """ADM-1, step 3: against the zone database, over clock changes and month ends."""
    quota, there = Quota(in_flight_limit=1, time_zone=zone), ZoneInfo(zone)
    start_us, end_us = quota.period_us(period, now_us)
    assert start_us <= now_us < end_us
    assert quota.period_us(period, start_us) == (start_us, end_us)
    assert quota.period_us(period, end_us - 1) == (start_us, end_us)
    assert quota.period_us(period, end_us)[0] == end_us
    first, after = to_local(start_us, there).date(), to_local(end_us, there).date()
    if period == "month":
        assert (first.day, after.day) == (1, 1)
        assert (after - timedelta(days=1)).month == first.month
    else:
        assert to_local(start_us - 1, there).date() != first
        # Apia had no 30 December 2011; everywhere else a day follows the day before.
        assert (after - first).days == (2 if (zone, first.year, first.day) == SKIPPED else 1)


SKIPPED = ("Pacific/Apia", 2011, 29)


@pytest.mark.parametrize(
    ("period", "year", "day", "end"),
    [("day", 2010, 7, (2010, 11, 8, 3)), ("month", 2009, 1, (2009, 12, 1, 3))],
)
def test_a_period_that_has_begun_goes_on_while_clocks_show_the_day_before_again(
    period: BudgetPeriod, year: int, day: int, end: tuple[int, ...]
):
    """ADM-1, step 3: St John's went from 00:01 back to 23:01, so that the 6th came twice."""
    quota = Quota(in_flight_limit=1, time_zone="America/St_Johns")
    midnight_us = us(year, 11, day, 2) + HOUR_US // 2  # 00:00, at UTC-2:30
    following_us = us(*end) + HOUR_US // 2  # 00:00, at UTC-3:30
    for minutes in (0, 1, 30, 59, 60, 61):
        now_us = midnight_us + minutes * MINUTE_US
        assert quota.period_us(period, now_us) == (midnight_us, following_us)
    assert quota.period_us(period, midnight_us - 1)[1] == midnight_us


def book_of(quota: Quota, now_us: int) -> Book:
    book = Book()
    book.set_quota("acme", quota, now_us=now_us, spent_pico=0)
    book.open_route("r1")
    return book


def take(book: Book, number: int, at_us: int, *, cost_pico: int = 0, tokens: int = 10) -> Hold:
    hold = Hold(
        reservation_id=f"req_{number}", tenant_id="acme", route_id="r1", kv_tokens=tokens,
        cost_pico=cost_pico, taken_at_us=at_us,
    )  # fmt: skip
    book.take(hold, tokens)
    return hold


def test_what_was_spent_is_forgotten_when_the_month_ends_and_not_before():
    start_us, end_us = us(2026, 2, 10), us(2026, 3, 1)
    quota = Quota(in_flight_limit=4, budget_pico=1_000)
    book = book_of(quota, start_us)
    book.set_quota("acme", quota, now_us=start_us, spent_pico=400)
    hold = take(book, 1, start_us, cost_pico=70)
    assert book.tenant_state("acme", end_us - 1).spent_pico == 400
    state = book.tenant_state("acme", end_us)
    assert (state.spent_pico, state.pending_pico) == (0, 70)
    book.settle(hold, 50, at_us=end_us)
    assert book.tenant_state("acme", us(2026, 3, 31)).spent_pico == 50
    assert book.tenant_state("acme", us(2026, 4, 1)).spent_pico == 0


def test_a_new_day_forgets_the_day_and_keeps_the_month():
    quota = Quota(
        in_flight_limit=4, day_budget_pico=100, budget_pico=1_000, time_zone="Asia/Kolkata"
    )
    noon_us = us(2026, 2, 10, 12, zone="Asia/Kolkata")
    book = book_of(quota, noon_us)
    book.settle(take(book, 1, noon_us, cost_pico=70), 60, at_us=noon_us)
    midnight_us = us(2026, 2, 11, zone="Asia/Kolkata")
    before, after = (book.tenant_state("acme", at) for at in (midnight_us - 1, midnight_us))
    assert (before.spent_today_pico, before.spent_pico) == (60, 60)
    assert (after.spent_today_pico, after.spent_pico) == (0, 60)
    assert (before.day_ends_ms, after.day_ends_ms) == (1, 86_400_000)


def test_an_end_after_midnight_is_spent_on_the_new_day_also_when_nobody_asked_meanwhile():
    book = book_of(Quota(in_flight_limit=4, day_budget_pico=100), us(2026, 2, 10))
    hold = take(book, 1, us(2026, 2, 10, 23), cost_pico=70)
    book.settle(hold, 60, at_us=us(2026, 2, 11) + 5)
    state = book.tenant_state("acme", us(2026, 2, 11, 1))
    assert (state.spent_today_pico, state.spent_pico) == (60, 60)


def test_an_end_of_before_midnight_that_is_told_after_it_is_spent_on_the_day_it_was():
    """As a restart would add it up: by the time of its settlement (ADM-1, step 3)."""
    book = book_of(Quota(in_flight_limit=4, day_budget_pico=100), us(2026, 2, 28))
    late, later = (take(book, number, us(2026, 2, 28, 23), cost_pico=70) for number in (1, 2))
    book.tenant_state("acme", us(2026, 3, 1))  # the new day and month have begun
    book.settle(late, 60, at_us=us(2026, 3, 1) - 1)
    state = book.tenant_state("acme", us(2026, 3, 1))
    assert (state.spent_today_pico, state.spent_pico, state.pending_pico) == (0, 0, 70)
    book.settle(later, 50, at_us=us(2026, 3, 1))
    state = book.tenant_state("acme", us(2026, 3, 1))
    assert (state.spent_today_pico, state.spent_pico, state.pending_pico) == (50, 50, 0)


@pytest.mark.parametrize(
    ("quota", "names", "waits"),
    [
        ({"budget_pico": 3_600_000_000}, ["tenant.budget_pico"], "month_ends_ms"),
        ({"day_budget_pico": 3_600_000_000}, ["tenant.day_budget_pico"], "day_ends_ms"),
        (
            {"day_budget_pico": 3_600_000_000, "budget_pico": 7_199_999_999},
            ["tenant.budget_pico", "tenant.day_budget_pico"],
            "month_ends_ms",
        ),
        (
            {"day_budget_pico": 3_600_000_000, "budget_pico": 7_200_000_000},
            ["tenant.day_budget_pico"],
            "day_ends_ms",
        ),
    ],
)
def test_the_budget_that_refuses_is_named_and_says_when_it_starts_anew(quota, names, waits):
    """ADM-1, step 3: of day and month both apply; a request costs 0.0036 units here."""
    at = desk(quota=Quota(in_flight_limit=4, **quota))
    assert weigh(at, 1).decision.status == "accepted"
    refused = weigh(at, 2).decision
    assert (refused.reason_code, refused.http_status) == ("TENANT_BUDGET_EXHAUSTED", 402)
    assert [limit.name for limit in refused.limits] == names
    assert refused.retry_after_ms == getattr(at.book.tenant_state("tenant-a", NOW_US), waits) > 0


def test_a_day_budget_alone_makes_an_unpriced_model_refused():
    quota = Quota(in_flight_limit=4, day_budget_pico=10**12)
    at = desk(quota=quota, rate_tables=(rates(),))
    assert weigh(at, max_cost_pico=None).decision.reason_code == "UNPRICED_MODEL"


def test_the_minute_slides_to_the_microsecond():
    book = book_of(Quota(in_flight_limit=99, requests_per_minute=2), NOW_US)
    for number, at_us in enumerate((NOW_US, NOW_US + 10 * SECOND_US)):
        book.release(take(book, number, at_us, tokens=40))
    last_us = NOW_US + MINUTE_US - 1
    before, after = (book.tenant_state("acme", at_us) for at_us in (last_us, last_us + 1))
    assert (before.requests_in_minute, before.tokens_in_minute, before.requests_free_ms) == (
        2,
        80,
        1,
    )
    assert (after.requests_in_minute, after.tokens_in_minute, after.requests_free_ms) == (1, 40, 0)


usages = st.lists(st.tuples(st.integers(0, 90_000), st.integers(1, 50)), max_size=30)


@given(usages, st.integers(1, 8), st.integers(1, 200), st.integers(1, 60))
def test_after_its_retry_after_a_request_fits_the_minute_and_not_a_millisecond_before(
    used, per_minute, tokens_per_minute, tokens
):
    """ADM-3: Retry-After of both rates is exact, in whole milliseconds."""
    quota = Quota(
        in_flight_limit=99, requests_per_minute=per_minute, tokens_per_minute=tokens_per_minute
    )
    account = TenantAccount(quota=quota)
    account.enter_minute([(ms * 1_000, count) for ms, count in sorted(used)])
    now_ms = max([ms for ms, _ in used], default=0)
    account.enter_periods(0)

    def fits(at_ms: int) -> tuple[bool, bool]:
        left = [count for ms, count in used if ms > at_ms - 60_000]
        return len(left) < per_minute, sum(left) + tokens <= tokens_per_minute or not left

    state = account.state("acme", now_ms * 1_000, tokens)
    for kind, wait_ms in enumerate((state.requests_free_ms, state.tokens_free_ms)):
        assert fits(now_ms + wait_ms)[kind]
        assert wait_ms == 0 or not fits(now_ms + wait_ms - 1)[kind]
