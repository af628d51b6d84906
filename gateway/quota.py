"""A tenant's quota as the ledger keeps it: what a tenant may hold, spend and ask per minute."""

from zoneinfo import ZoneInfo

import msgspec

from gateway.clock import local_period_start_us

LONGEST_MONTH_US = 32 * 86_400_000_000
"""From the start of any month this leads into the next, with its clock changes and to spare."""


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

    def period_start_us(self, now_us: int) -> int:
        """Return the start of the budget month that `now_us` lies in."""
        return local_period_start_us(now_us, ZoneInfo(self.time_zone))

    def period_end_us(self, now_us: int) -> int:
        """Return the start of the budget month after that of `now_us`."""
        start_us = self.period_start_us(now_us)
        return self.period_start_us(start_us + LONGEST_MONTH_US)
