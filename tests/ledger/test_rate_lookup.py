"""Which rate holds for a key, at a time, in a place: exact names, dates, hours, tiers (CST-7)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.rate_lookup import (
    Priced,
    Unpriced,
    label_of,
    place_of,
    prepared,
    price,
    rate_of,
    select,
)
from ledger.rates import Rate, RateTable, Usage, Window

HOUR_US = 3_600_000_000


def rate(units: int = 1, **overrides: Any) -> Rate:
    values: dict[str, Any] = {
        "key": "m",
        "input_micro_per_mtok": units * 1_000_000,
        "output_micro_per_mtok": 0,
        "cached_input_micro_per_mtok": 0,
    }
    return Rate(**(values | overrides))


def table(*rates: Rate) -> RateTable:
    return RateTable(version="v", effective_from_us=0, currency="units", rates=rates)


def units(found: Rate | None) -> int | None:
    return None if found is None else found.input_micro_per_mtok // 1_000_000


def test_a_rate_is_valid_from_its_start_and_before_its_end():
    dated = table(rate(1, valid_to_us=100), rate(2, valid_from_us=100, valid_to_us=200))
    found = {at: units(select(dated, "m", at_us=at)) for at in (0, 99, 100, 199, 200)}
    assert found == {0: 1, 99: 1, 100: 2, 199: 2, 200: None}


def test_hours_of_the_day_are_those_of_the_zone_and_may_pass_midnight():
    night = Window(utc_offset_minutes=330, from_second=22 * 3600, to_second=6 * 3600)
    hours = table(rate(1), rate(2, windows=(night,)))
    found = [units(select(hours, "m", at_us=hour * HOUR_US)) for hour in range(24)]
    # 22:00 to 06:00 at +05:30 is 16:30 to 00:30 UTC.
    assert found == [2] + [1] * 16 + [2] * 7
    assert units(select(hours, "m", at_us=16 * HOUR_US + HOUR_US // 2)) == 2
    assert units(select(hours, "m", at_us=16 * HOUR_US + HOUR_US // 2 - 1)) == 1
    assert units(select(hours, "m", at_us=HOUR_US // 2)) == 1


def test_a_rate_that_depends_on_the_time_can_not_be_asked_for_without_one():
    with pytest.raises(ValueError, match="depends on the time"):
        select(table(rate(1, valid_to_us=100)), "m")


def test_a_region_of_its_own_goes_before_a_rate_for_any_and_for_another_not_at_all():
    places = table(rate(1), rate(2, region="eu"), rate(3, region="us", key="n"))
    assert units(select(places, "m", place=("", "eu", ""))) == 2
    assert units(select(places, "m", place=("", "us", ""))) == 1
    assert units(select(places, "m")) == 1
    assert select(places, "n", place=("", "eu", "")) is None


def test_a_service_tier_has_to_be_met_exactly_and_a_batch_goes_by_the_standard_without_one():
    tiers = table(rate(1, batch_multiplier_permille=500), rate(9, service_tier="priority"))
    assert units(select(tiers, "m", place=("", "", "priority"))) == 9
    assert select(tiers, "m", place=("", "", "flex")) is None
    for standard in ("", "standard", "default", "on_demand"):
        assert units(select(tiers, "m", place=("", "", standard))) == 1
    used = Usage(input_tokens=10, output_tokens=0)
    halved = price(tiers, ("m",), used, batch=True)
    assert isinstance(halved, Priced)
    assert (halved.key, halved.cost.total_pico) == ("m", 5_000_000)
    own = price(table(rate(1), rate(3, service_tier="batch")), ("m",), used, batch=True)
    assert isinstance(own, Priced)
    assert (own.key, own.cost.total_pico) == ("m#tier=batch", 30_000_000)


def test_what_a_tier_has_no_rate_for_is_unpriced_also_where_the_key_has_one_rate_alone():
    used = Usage(input_tokens=1, output_tokens=1)
    found = price(table(rate(1)), ("m",), used, place=("", "", "priority"))
    assert found == Unpriced(keys=("m",), table_version="v")


def test_an_unpriced_root_makes_the_usage_unpriced_and_names_it():
    embedding = table(rate(1, unpriced=("output",)))
    assert isinstance(price(embedding, ("m",), Usage(input_tokens=5, output_tokens=0)), Priced)
    assert price(embedding, ("m",), Usage(input_tokens=5, output_tokens=1)) == Unpriced(
        keys=("m",), table_version="v", meters=("output",)
    )


def test_a_meter_beside_the_tokens_without_a_price_is_named_and_the_rest_priced():
    used = Usage(input_tokens=5, output_tokens=0, meters=(("web_search", 2),))
    found = price(table(rate(1)), ("m",), used)
    assert isinstance(found, Priced)
    assert (found.unpriced, found.cost.total_pico) == (("web_search",), 5_000_000)


NAMES = st.text("abc-/.:@", max_size=6)


@given(NAMES, NAMES, NAMES, NAMES.filter(bool))
def test_a_label_says_what_the_rate_is_for_and_finds_it_again(provider, region, tier, key):
    one = rate(key=key, provider=provider, region=region, service_tier=tier)
    assert place_of(label_of(one)) == (key, (provider, region, tier))
    assert rate_of(table(one), label_of(one)) == one


def test_a_prepared_table_is_never_taken_for_another():
    for number in range(40):
        fresh = table(rate(number, key=f"m-{number}"))
        assert prepared(fresh).table is fresh
        assert units(select(fresh, f"m-{number}")) == number
