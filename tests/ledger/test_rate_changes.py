"""Differences in exact percent, histories and unpriced times of rate tables (CST-7)."""

from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ledger.rate_changes import (
    BASE,
    PriceChange,
    changes,
    history,
    share_text,
    times_without_price,
)
from ledger.rates import Rate, RateTable, Tier, Window

NIGHT = Window(utc_offset_minutes=0, from_second=0, to_second=3600)


def rate(**overrides: Any) -> Rate:
    values: dict[str, Any] = {
        "key": "m",
        "input_micro_per_mtok": 4_000_000,
        "output_micro_per_mtok": 8_000_000,
        "cached_input_micro_per_mtok": 500_000,
    }
    return Rate(**(values | overrides))


def table(*rates: Rate, version: str = "v", effective_from_us: int = 0) -> RateTable:
    return RateTable(
        version=version, effective_from_us=effective_from_us, currency="units", rates=rates
    )


def test_equal_tables_differ_in_nothing_whatever_their_order():
    one, other = rate(), rate(key="n")
    assert changes(table(one, other), table(other, one, version="w")) == ()


def test_each_price_that_changed_is_named_with_its_exact_share():
    tier = Tier(
        over_input_tokens=200,
        input_micro_per_mtok=6_000_000,
        output_micro_per_mtok=8_000_000,
        cached_input_micro_per_mtok=500_000,
    )
    before = rate(tiers=(tier,), meters=(("web_search", 7),))
    after = rate(
        input_micro_per_mtok=3_000_000,
        tiers=(msgspec.structs.replace(tier, input_micro_per_mtok=8_000_000),),
        meters=(("reasoning", 9),),
    )
    (change,) = changes(table(before), table(after))
    assert (change.label, change.kind, change.terms) == ("m", "changed", ())
    assert change.prices == (
        PriceChange(meter="input", over_input_tokens=BASE, before=4_000_000, after=3_000_000),
        PriceChange(meter="reasoning", over_input_tokens=BASE, before=None, after=9),
        PriceChange(meter="web_search", over_input_tokens=BASE, before=7, after=None),
        PriceChange(meter="input", over_input_tokens=200, before=6_000_000, after=8_000_000),
    )
    assert [price.share for price in change.prices] == [Fraction(-1, 4), None, None, Fraction(1, 3)]
    assert [share_text(price.share) for price in change.prices] == [
        "-25 %", "new", "new", "+33 1/3 %"
    ]  # fmt: skip


def test_a_rate_that_came_or_went_is_added_or_removed_and_a_term_that_changed_is_text():
    found = changes(table(rate(), rate(key="old")), table(rate(threshold="from"), rate(key="new")))
    assert [(change.label, change.kind) for change in found] == [
        ("m", "changed"), ("new", "added"), ("old", "removed")
    ]  # fmt: skip
    assert found[0].terms == (("threshold", "over", "from"),)


@given(st.fractions())
def test_a_share_is_shown_exactly(share):
    text = share_text(share)
    assert text.endswith(" %")
    sign, body = (-1 if text[0] == "-" else 1), text[1:-2]
    parts = [Fraction(part) for part in body.split(" ")]
    assert sign * sum(parts) == share * 100


def test_a_history_joins_equal_prices_and_begins_a_span_at_every_change():
    tables = [
        table(rate(), version="v1", effective_from_us=10),
        table(rate(), version="v2", effective_from_us=20),
        table(rate(input_micro_per_mtok=9, valid_to_us=40), version="v3", effective_from_us=30),
        table(rate(), rate(windows=(NIGHT,)), version="v4", effective_from_us=50),
    ]
    found = history(tables, "m")
    assert [(s.from_us, s.until_us, s.version, len(s.rates)) for s in found] == [
        (10, 30, "v1", 1),
        (30, 40, "v3", 1),
        (40, 50, "v3", 0),
        (50, None, "v4", 2),
    ]
    assert all(not span.rates for span in history(tables, "other"))


def test_a_ledger_without_a_table_has_no_history():
    assert history([], "m") == ()


def test_of_two_tables_from_one_instant_only_the_later_one_is_history():
    tables = [table(rate(), version="v1"), table(rate(key="n"), version="v2")]
    assert [(span.version, span.rates) for span in history(tables, "m")] == [("v2", ())]


def test_a_model_in_use_has_no_price_at_the_times_that_no_key_of_it_covers():
    dated = table(
        rate(key="route", valid_from_us=100, valid_to_us=200),
        rate(key="model", valid_to_us=150),
        rate(key="model", valid_from_us=300, region="eu"),
        rate(key="model", service_tier="batch"),
        rate(key="model", windows=(NIGHT,)),
        rate(key="embedding", unpriced=("output",)),
        effective_from_us=50,
    )
    keys = ("route", "model")
    assert times_without_price(dated, keys) == ((200, None),)
    assert times_without_price(dated, keys, region="eu") == ((200, 300),)
    assert times_without_price(dated, ("other",)) == ((50, None),)
    assert times_without_price(dated, ("embedding",)) == ((50, None),)
    assert times_without_price(table(rate()), ("m",)) == ()
