"""A tenant's quota as the ledger keeps it: what a tenant may hold, spend and ask per minute."""

from datetime import date, timedelta
from typing import Final, Literal

import msgspec

from ledger.zones import day_start_us, parse_zone, to_local

BudgetPeriod = Literal["month", "day"]
BUDGET_PERIODS: Final[tuple[BudgetPeriod, ...]] = ("month", "day")


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a `Tenant` record. None: no limit of that kind."""

    in_flight_limit: int
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget_pico: int | None = None  # per calendar month in `time_zone`
    time_zone: str = "UTC"
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    allowed_regions: tuple[str, ...] = ()  # empty: all
    default_deadline_us: int | None = None
    default_max_cost_pico: int | None = None
    day_budget_pico: int | None = None  # per calendar day in `time_zone`, beside that of the month

    def period_us(self, period: BudgetPeriod, now_us: int) -> tuple[int, int]:
        """Return when the local day or month that `now_us` lies in began, and when the next does.

        start <= now < end always, and periods follow each other without gap: where clocks go back
        over midnight, the day before doesn't begin again.
        """
        zone = parse_zone(self.time_zone)
        today = to_local(now_us, zone).date()
        first = today if period == "day" else today.replace(day=1)
        following = _following(period, first)
        end_us = day_start_us(following, zone)
        if now_us < end_us:
            return day_start_us(first, zone), end_us
        return end_us, day_start_us(_following(period, following), zone)


def _following(period: BudgetPeriod, first: date) -> date:
    if period == "day":
        return first + timedelta(days=1)
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)
