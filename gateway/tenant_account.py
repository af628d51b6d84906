"""A tenant's side of the book: slots, the sliding minute, and money by local day and month."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.policy.values import TenantState
from gateway.quota import Quota

MINUTE_US = 60_000_000
SLOT_RETRY_AFTER_MS = 1_000
"""How long a tenant without a free slot is told to wait: one is free whenever a request ends."""


@dataclass(slots=True, kw_only=True)
class TenantAccount:
    """What one tenant holds and has used. `recent`: (time, tokens) of the minute's requests."""

    quota: Quota
    in_flight: int = 0
    pending_pico: int = 0
    spent_pico: int = 0  # this month
    spent_today_pico: int = 0
    month_start_us: int = 0
    month_end_us: int = 0
    day_start_us: int = 0
    day_end_us: int = 0
    tokens_in_minute: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=deque)

    def state(self, tenant_id: str, now_us: int, tokens: int) -> TenantState:
        """Return the tenant as a decision at `now_us` sees it, about a request of `tokens`."""
        self.roll(now_us)
        quota = self.quota
        return TenantState(
            tenant_id=tenant_id,
            in_flight=self.in_flight,
            in_flight_limit=quota.in_flight_limit,
            requests_in_minute=len(self.recent),
            requests_per_minute=quota.requests_per_minute,
            tokens_in_minute=self.tokens_in_minute,
            tokens_per_minute=quota.tokens_per_minute,
            spent_pico=self.spent_pico,
            pending_pico=self.pending_pico,
            budget_pico=quota.budget_pico,
            max_input_tokens=quota.max_input_tokens,
            max_output_tokens=quota.max_output_tokens,
            max_total_tokens=quota.max_total_tokens,
            allowed_regions=quota.allowed_regions,
            retry_after_ms=SLOT_RETRY_AFTER_MS,
            spent_today_pico=self.spent_today_pico,
            day_budget_pico=quota.day_budget_pico,
            requests_free_ms=self._requests_free_ms(now_us),
            tokens_free_ms=self._tokens_free_ms(now_us, tokens),
            day_ends_ms=_ms_until(self.day_end_us, now_us),
            month_ends_ms=_ms_until(self.month_end_us, now_us),
        )

    def roll(self, now_us: int) -> None:
        """Forget what left the minute; begin the day and the month that have begun."""
        recent = self.recent
        while recent and recent[0][0] <= now_us - MINUTE_US:
            self.tokens_in_minute -= recent.popleft()[1]
        if now_us >= self.day_end_us:
            if now_us >= self.month_end_us:
                self.spent_pico = 0
            self.spent_today_pico = 0
            self.enter_periods(now_us)

    def enter_periods(self, now_us: int) -> None:
        """Note this day's and month's bounds: asking a calendar each time costs more."""
        self.day_start_us, self.day_end_us = self.quota.period_us("day", now_us)
        self.month_start_us, self.month_end_us = self.quota.period_us("month", now_us)

    def enter_minute(self, requests: Iterable[tuple[int, int]]) -> None:
        """Enter the (time, tokens) of requests from before a restart, the oldest first."""
        for at_us, tokens in requests:
            self.count(at_us, tokens)

    def count(self, at_us: int, tokens: int) -> None:
        """Count a request in the minute that begins at `at_us`."""
        self.recent.append((at_us, tokens))
        self.tokens_in_minute += tokens

    def spend(self, cost_pico: int, at_us: int) -> None:
        """Post what was settled at `at_us` to the day and the month of that time.

        As the ledger adds it up: an end of before midnight that is told after it isn't today's.
        """
        self.roll(at_us)
        if at_us >= self.month_start_us:
            self.spent_pico += cost_pico
        if at_us >= self.day_start_us:
            self.spent_today_pico += cost_pico

    def _requests_free_ms(self, now_us: int) -> int:
        """Return when so many have left the minute that one more request fits."""
        per_minute, recent = self.quota.requests_per_minute, self.recent
        if per_minute is None or len(recent) < per_minute or not recent:
            return 0
        last_to_leave = recent[len(recent) - max(1, per_minute)]
        return _ms_until(last_to_leave[0] + MINUTE_US, now_us)

    def _tokens_free_ms(self, now_us: int, tokens: int) -> int:
        """Return when so much has left the minute that `tokens` more fit, or it is empty."""
        per_minute = self.quota.tokens_per_minute
        if per_minute is None or self.tokens_in_minute + tokens <= per_minute:
            return 0
        over, free_us = self.tokens_in_minute + tokens - per_minute, now_us
        for at_us, counted in self.recent:
            if over <= 0:
                break
            over -= counted
            free_us = at_us + MINUTE_US
        return _ms_until(free_us, now_us)


def _ms_until(at_us: int, now_us: int) -> int:
    """Return the ms from now until then, rounded up; 0 where it has passed."""
    return -((now_us - at_us) // 1_000) if at_us > now_us else 0
