"""A tenant's budget month, and what the book makes of its end."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.book import Book, Hold
from gateway.quota import Quota


def us(*moment: int, zone: str = "UTC") -> int:
    """Return year, month, day and what else is given, as the zone's clocks show them, in µs."""
    year, month, day, hour = (*moment, 0)[:4]
    local = datetime(year, month, day, hour, tzinfo=ZoneInfo(zone))
    return int(local.astimezone(UTC).timestamp()) * 1_000_000


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
    assert quota.period_end_us(us(*now, zone=zone)) == us(*end, zone=zone)


def test_what_was_spent_is_forgotten_when_the_month_ends_and_not_before():
    book, start_us, end_us = Book(), us(2026, 2, 10), us(2026, 3, 1)
    quota = Quota(in_flight_limit=4, budget_pico=1_000)
    book.set_quota("acme", quota, now_us=start_us, spent_pico=400)
    book.open_route("r1")
    hold = Hold(
        reservation_id="req_1", tenant_id="acme", route_id="r1", kv_tokens=10, cost_pico=70,
        taken_at_us=start_us,
    )  # fmt: skip
    book.take(hold, 10)
    assert book.tenant_state("acme", end_us - 1).spent_pico == 400
    state = book.tenant_state("acme", end_us)
    assert (state.spent_pico, state.pending_pico) == (0, 70)
    book.settle(hold, 50)
    assert book.tenant_state("acme", us(2026, 3, 31)).spent_pico == 50
    assert book.tenant_state("acme", us(2026, 4, 1)).spent_pico == 0
