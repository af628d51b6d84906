"""Where a period's spending leads, at the pace so far: exact, rounded once. Pure (CST-2)."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a budget's period will have cost at its end, and when the budget is used up."""

    spent_pico: int
    budget_pico: int | None
    at_end_pico: int | None  # None: nothing of the period has passed
    exhausted_at_us: int | None  # None: not within the period at this pace, or no budget
    unpriced: int = 0  # requests of the period so far that ran without a rate: in no sum here

    @property
    def left_pico(self) -> int | None:
        """What is left of the budget; negative where it is overdrawn."""
        return None if self.budget_pico is None else self.budget_pico - self.spent_pico


def forecast(
    spent_pico: int, budget_pico: int | None, *, start_us: int, now_us: int, end_us: int
) -> Forecast:
    """The forecast of a period of which `start_us` to `now_us` has passed.

    The pace is the mean so far; amounts are rounded half to even, times down.
    """
    passed, whole = min(now_us, end_us) - start_us, end_us - start_us
    if passed <= 0 or whole <= 0:
        return Forecast(
            spent_pico=spent_pico, budget_pico=budget_pico, at_end_pico=None, exhausted_at_us=None
        )
    exhausted_at_us = None
    if budget_pico is not None and spent_pico > 0:
        at_us = start_us + budget_pico * passed // spent_pico
        exhausted_at_us = at_us if at_us < end_us else None
    return Forecast(
        spent_pico=spent_pico,
        budget_pico=budget_pico,
        at_end_pico=round(Fraction(spent_pico * whole, passed)),
        exhausted_at_us=exhausted_at_us,
    )
