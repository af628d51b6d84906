"""Further meters, thresholds and the source's own sums, to the pico unit (CST-1, CST-7, LED-3)."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.meters import METERS
from ledger.money import units_text
from ledger.rates import Rate, RateTable, Tier, Usage, cost_of, priced_apart, unpriced_meters


def rate(**overrides: Any) -> Rate:
    values: dict[str, Any] = {
        "key": "route-a",
        "input_micro_per_mtok": 3_000_000,
        "output_micro_per_mtok": 15_000_000,
        "cached_input_micro_per_mtok": 300_000,
    }
    return Rate(**(values | overrides))


def usage(input_tokens, output_tokens=0, cached=0, **meters):
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_input_tokens=cached,
        meters=tuple(meters.items()),
    )


def test_a_prompt_of_which_all_but_one_token_is_cached_costs_0_00860376():
    prices = rate(
        input_micro_per_mtok=1_400_000,
        cached_input_micro_per_mtok=260_000,
        output_micro_per_mtok=4_400_000,
    )
    cost = cost_of(prices, usage(27_147, 351, cached=27_146))
    assert units_text(cost.total_pico) == "0.00860376"


def test_tokens_with_a_price_of_their_own_are_told_by_what_they_are_inside_of():
    """Cache writes are fresh input, reasoning is output; what has no own price stands with them."""
    prices = rate(meters=(("cache_write_5m", 3_750_000), ("reasoning", 20_000_000)))
    assert priced_apart(prices, usage(1_000, 200, cached=100)) == (0, 0, 0)
    held = usage(1_000, 200, cached=100, cache_write_5m=300, cache_write_1h=50, reasoning=20)
    assert priced_apart(rate(), held) == (0, 0, 0)
    assert priced_apart(rate(meters=(("reasoning", 1),)), held) == (0, 0, 20)
    # An hour's write is priced like that of five minutes.
    assert priced_apart(prices, held) == (350, 0, 20)


def test_300_000_tokens_over_200_000_cost_1_80_whole_and_1_20_marginal():
    tier = Tier(
        over_input_tokens=200_000,
        input_micro_per_mtok=6_000_000,
        output_micro_per_mtok=0,
        cached_input_micro_per_mtok=0,
    )
    whole = cost_of(rate(tiers=(tier,)), usage(300_000))
    marginal = cost_of(rate(tiers=(tier,), tier_mode="marginal"), usage(300_000))
    assert units_text(whole.total_pico) == "1.8"
    assert units_text(marginal.total_pico) == "1.2"


@pytest.mark.parametrize(
    ("threshold", "tier_mode", "at", "one_above"),
    [
        ("over", "whole", 300, 606),
        ("from", "whole", 600, 606),
        ("over", "marginal", 300, 306),
        ("from", "marginal", 303, 309),
    ],
)
def test_a_threshold_is_over_or_from_as_the_rate_states(threshold, tier_mode, at, one_above):
    tier = Tier(
        over_input_tokens=100,
        input_micro_per_mtok=6,
        output_micro_per_mtok=0,
        cached_input_micro_per_mtok=0,
    )
    prices = rate(input_micro_per_mtok=3, tiers=(tier,), threshold=threshold, tier_mode=tier_mode)
    assert cost_of(prices, usage(100)).input_pico == at
    assert cost_of(prices, usage(101)).input_pico == one_above


def test_a_meter_with_a_price_is_taken_out_of_what_it_is_inside_of():
    prices = rate(meters=(("cache_write_5m", 3_750_000), ("reasoning", 20_000_000)))
    cost = cost_of(prices, usage(1_000, 500, cached=100, cache_write_5m=200, reasoning=400))
    assert cost.input_pico == 700 * 3_000_000
    assert cost.cached_input_pico == 100 * 300_000
    assert cost.output_pico == 100 * 15_000_000
    assert cost.other_pico == 200 * 3_750_000 + 400 * 20_000_000


def test_a_meter_without_a_price_is_priced_as_what_it_is_inside_of():
    plain = cost_of(rate(), usage(1_000, 500, cached=100))
    assert cost_of(rate(), usage(1_000, 500, cached=100, input_audio=50, reasoning=400)) == plain


def test_an_hours_cache_write_without_a_price_of_its_own_is_priced_as_five_minutes():
    prices = rate(meters=(("cache_write_5m", 3_750_000),))
    assert cost_of(prices, usage(10, cache_write_1h=4)).other_pico == 4 * 3_750_000


def test_a_tier_has_its_own_price_of_a_meter_or_keeps_the_rates():
    tier = Tier(
        over_input_tokens=100,
        input_micro_per_mtok=6_000_000,
        output_micro_per_mtok=30_000_000,
        cached_input_micro_per_mtok=600_000,
        meters=(("cache_write_5m", 7_500_000),),
    )
    meters = (("cache_write_5m", 3_750_000), ("cache_write_1h", 6_000_000))
    prices = rate(tiers=(tier,), meters=meters)
    below = cost_of(prices, usage(100, cache_write_5m=1, cache_write_1h=1)).other_pico
    above = cost_of(prices, usage(101, cache_write_5m=1, cache_write_1h=1)).other_pico
    assert (below, above) == (9_750_000, 13_500_000)


def test_searches_and_seconds_stand_beside_the_tokens_and_no_batch_makes_them_cheaper():
    prices = rate(
        meters=(("web_search", 10_000_000_000), ("input_audio_ms", 100_000_000)),
        batch_multiplier_permille=500,
    )
    used = usage(0, 0, web_search=3, input_audio_ms=1_500)
    for batch in (False, True):
        cost = cost_of(prices, used, batch=batch)
        assert units_text(cost.other_pico) == "0.03015"
    assert cost_of(prices, usage(10, cached=0), batch=True).input_pico == 15_000_000


def test_a_fraction_of_a_seconds_price_is_rounded_half_to_even():
    prices = rate(meters=(("input_audio_ms", 1),))
    assert cost_of(prices, usage(0, input_audio_ms=500)).other_pico == 0
    assert cost_of(prices, usage(0, input_audio_ms=501)).other_pico == 1
    assert cost_of(prices, usage(0, input_audio_ms=1_500)).other_pico == 2


def test_what_was_used_and_has_no_price_is_named():
    prices = rate(unpriced=("output",))
    assert unpriced_meters(prices, usage(10)) == ()
    assert unpriced_meters(prices, usage(10, 1, web_search=2, reasoning=1)) == (
        "output",
        "web_search",
    )


@pytest.mark.parametrize(
    "bad",
    [
        usage(10, cache_write_5m=11),
        usage(10, cached=5, input_audio=6),
        usage(10, 3, reasoning=2, output_audio=2),
        usage(10, reasoning=-1),
        usage(10, typo=1),
    ],
)
def test_meters_that_hold_more_than_their_whole_or_do_not_exist_are_a_fault(bad):
    with pytest.raises(ValueError, match="can't price"):
        cost_of(rate(), bad)


def test_a_table_that_was_published_before_these_fields_decodes_to_the_same_prices():
    """A body is kept as it was written: fields are only ever appended."""
    old = (
        '["rates-1",5,"units",[["route-a",2000000,8000000,500000,7,'
        '[[200000,4000000,12000000,1000000]],"marginal",500]]]'
    )
    table = msgspec.json.decode(old, type=RateTable)
    (found,) = table.rates
    assert found == Rate(
        key="route-a",
        input_micro_per_mtok=2_000_000,
        output_micro_per_mtok=8_000_000,
        cached_input_micro_per_mtok=500_000,
        fixed_pico=7,
        tiers=(
            Tier(
                over_input_tokens=200_000,
                input_micro_per_mtok=4_000_000,
                output_micro_per_mtok=12_000_000,
                cached_input_micro_per_mtok=1_000_000,
            ),
        ),
        tier_mode="marginal",
        batch_multiplier_permille=500,
    )
    assert cost_of(found, usage(200_001, 10)).total_pico == 400_004_000_000 + 120_000_000 + 7


TOKEN_METERS = [name for name, meter in METERS.items() if meter.inside]


@given(
    st.dictionaries(st.sampled_from(TOKEN_METERS), st.integers(0, 50)),
    st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 1000),
)  # fmt: skip
def test_with_every_price_equal_no_split_into_meters_changes_the_cost(
    counts, fresh, cached, output, permille
):
    """Each token is priced once, under whatever meter it stands (up to one rounding for each)."""
    held = {"input": 0, "cached_input": 0, "output": 0}
    for name, count in counts.items():
        held[METERS[name].inside or ""] += count
    whole = Usage(
        input_tokens=fresh + cached + held["input"] + held["cached_input"],
        cached_input_tokens=cached + held["cached_input"],
        output_tokens=output + held["output"],
        meters=tuple(counts.items()),
    )
    flat = Rate(
        key="k",
        input_micro_per_mtok=7,
        output_micro_per_mtok=7,
        cached_input_micro_per_mtok=7,
        meters=tuple((name, 7) for name in TOKEN_METERS),
        batch_multiplier_permille=permille,
    )
    tokens = whole.input_tokens + whole.output_tokens
    assert cost_of(flat, whole).total_pico == 7 * tokens
    batch = cost_of(flat, whole, batch=True).total_pico
    parts = 3 + len(counts)
    assert abs(batch - Fraction(7 * tokens * permille, 1000)) <= Fraction(parts, 2)
