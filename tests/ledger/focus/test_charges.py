"""CST-9: the periods of a charge, by hand, over the ends of quarters, months and years."""

from datetime import UTC, datetime

import pytest

from ledger.focus.charges import HEADINGS, Issuer, Rows
from ledger.queries.charges import Charged
from ledger.zones import parse_zone
from tests import factories

PERIODS = ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")


def us(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * 1_000_000


def periods(rows: Rows, at_us: int) -> tuple[str, ...]:
    """The periods of a receipt of that time, which all of its rows share."""
    receipt = factories.receipt(1, accepted_at_us=at_us)
    found = {
        tuple(row[HEADINGS.index(name)] for name in PERIODS)
        for row in rows.of(Charged(receipt=receipt, provider_request_id=None))
    }
    (one,) = found
    return one


@pytest.mark.parametrize(
    ("at", "start", "end"),
    [
        ((2026, 11, 30, 23, 59), "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
        ((2026, 12, 1), "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ((2026, 12, 31, 23, 59), "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ((2027, 1, 1), "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"),
        ((2028, 2, 29), "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
    ],
)
def test_a_billing_period_is_the_calendar_month_also_over_the_end_of_a_year(
    at: tuple[int, ...], start: str, end: str
):
    assert periods(Rows(Issuer(), UTC, {}), us(*at))[2:] == (start, end)


def test_receipts_of_any_months_in_any_order_have_each_their_own_periods():
    """One maker of rows remembers months and quarters: it mixes none of them up."""
    shared = Rows(Issuer(), UTC, {})
    moments = [us(year, month, 1) for year in (2025, 2026, 2027) for month in range(1, 13)]
    for at_us in (*moments, *reversed(moments)):
        assert periods(shared, at_us) == periods(Rows(Issuer(), UTC, {}), at_us)


def test_a_charge_period_is_the_quarter_of_an_hour_that_holds_it():
    rows = Rows(Issuer(), UTC, {})
    last_us = us(2026, 12, 31, 23, 45)
    for at_us, quarter in (
        (last_us - 1, ("2026-12-31T23:30:00Z", "2026-12-31T23:45:00Z")),
        (last_us, ("2026-12-31T23:45:00Z", "2027-01-01T00:00:00Z")),
        (last_us + 899_999_999, ("2026-12-31T23:45:00Z", "2027-01-01T00:00:00Z")),
        (last_us + 900_000_000, ("2027-01-01T00:00:00Z", "2027-01-01T00:15:00Z")),
    ):
        assert periods(rows, at_us)[:2] == quarter


def test_a_billing_period_is_a_month_of_the_reporting_zone():
    rows = Rows(Issuer(), parse_zone("Asia/Kolkata"), {})
    assert periods(rows, us(2026, 12, 31, 18, 15))[2:] == (
        "2026-11-30T18:30:00Z", "2026-12-31T18:30:00Z",
    )  # fmt: skip
    assert periods(rows, us(2026, 12, 31, 18, 30))[2:] == (
        "2026-12-31T18:30:00Z", "2027-01-31T18:30:00Z",
    )  # fmt: skip
