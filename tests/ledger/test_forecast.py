"""A budget's forecast: hand-computed, and never before what was spent."""

from hypothesis import given
from hypothesis import strategies as st

from ledger.forecast import forecast

DAY_US = 86_400_000_000


def test_half_a_month_at_6_of_10_leads_to_12_and_ends_on_the_25th_day():
    found = forecast(6, 10, start_us=0, now_us=15 * DAY_US, end_us=30 * DAY_US)
    assert (found.at_end_pico, found.exhausted_at_us, found.left_pico) == (12, 25 * DAY_US, 4)


def test_a_budget_that_lasts_has_no_end_and_none_has_no_rest():
    lasting = forecast(1, 10, start_us=0, now_us=15 * DAY_US, end_us=30 * DAY_US)
    assert (lasting.at_end_pico, lasting.exhausted_at_us) == (2, None)
    assert forecast(1, None, start_us=0, now_us=1, end_us=2).left_pico is None


def test_before_the_period_has_begun_there_is_no_pace():
    assert forecast(0, 10, start_us=5, now_us=5, end_us=9).at_end_pico is None


@given(
    st.integers(0, 10**20), st.integers(0, 10**20),
    st.integers(1, 30 * DAY_US), st.integers(0, 30 * DAY_US),
)  # fmt: skip
def test_a_forecast_is_no_less_than_what_was_spent(spent, budget, passed, rest):
    found = forecast(spent, budget, start_us=7, now_us=7 + passed, end_us=7 + passed + rest)
    assert found.at_end_pico >= spent
    if spent > budget:
        assert found.exhausted_at_us is not None
        assert found.exhausted_at_us <= 7 + passed
