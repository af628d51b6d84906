"""Exact prices: hand-computed cases, then properties (LED-3, CST-1, CST-7)."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.money import units_text
from ledger.rate_lookup import Priced, Unpriced, price
from ledger.rates import Cost, Rate, RateTable, Tier, Usage, cost_of, multiplied


def rate(**overrides):
    values: dict[str, Any] = {
        "key": "route-a",
        "input_micro_per_mtok": 2_000_000,
        "output_micro_per_mtok": 8_000_000,
        "cached_input_micro_per_mtok": 500_000,
    }
    return Rate(**(values | overrides))


def table(*rates):
    return RateTable(version="rates-1", effective_from_us=0, currency="units", rates=rates)


def usage(input_tokens, output_tokens=0, cached_input_tokens=0):
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_input_tokens=cached_input_tokens,
    )


def test_a_thousand_requests_of_1000_in_and_200_out_at_2_and_8_units_cost_3_6_units():
    one = cost_of(rate(), usage(1_000, 200))
    assert one.total_pico == 3_600_000_000
    assert units_text(one.total_pico) == "0.0036"
    assert units_text(1_000 * one.total_pico) == "3.6"


def test_cached_tokens_are_inside_the_input_and_have_their_own_price():
    cost = cost_of(rate(fixed_pico=7), usage(1_000, 200, cached_input_tokens=600))
    assert cost == Cost(
        input_pico=800_000_000,
        cached_input_pico=300_000_000,
        output_pico=1_600_000_000,
        fixed_pico=7,
    )
    assert cost.total_pico == 2_700_000_007


def test_the_first_key_with_a_rate_wins_and_is_named():
    rates = table(rate(key="identity-1"), rate(key="route-b", fixed_pico=1))
    priced = price(rates, ("route-b", "identity-1"), usage(0))
    assert isinstance(priced, Priced)
    assert (priced.key, priced.cost.fixed_pico) == ("route-b", 1)
    fallback = price(rates, ("route-c", "identity-1"), usage(0))
    assert isinstance(fallback, Priced)
    assert fallback.key == "identity-1"


def test_a_prefix_of_a_key_is_no_price():
    assert price(table(rate(key="gpt-4")), ("gpt-4o", "gpt"), usage(10, 10)) == Unpriced(
        keys=("gpt-4o", "gpt"), table_version="rates-1"
    )


TIER = Tier(
    over_input_tokens=200_000,
    input_micro_per_mtok=4_000_000,
    output_micro_per_mtok=12_000_000,
    cached_input_micro_per_mtok=1_000_000,
)


def test_a_whole_tier_begins_strictly_above_its_threshold_and_prices_everything():
    at = cost_of(rate(tiers=(TIER,)), usage(200_000, 10))
    over = cost_of(rate(tiers=(TIER,)), usage(200_001, 10))
    assert (at.input_pico, at.output_pico) == (400_000_000_000, 80_000_000)
    assert (over.input_pico, over.output_pico) == (800_004_000_000, 120_000_000)


def test_a_marginal_tier_prices_only_the_tokens_above_its_threshold():
    marginal = rate(tiers=(TIER,), tier_mode="marginal")
    assert cost_of(marginal, usage(200_001)).input_pico == 400_004_000_000
    # 150,000 cached below the threshold, 50,000 uncached below it, 1,000 above
    mixed = cost_of(marginal, usage(201_000, 10, cached_input_tokens=150_000))
    assert mixed.cached_input_pico == 150_000 * 500_000
    assert mixed.input_pico == 50_000 * 2_000_000 + 1_000 * 4_000_000
    assert mixed.output_pico == 10 * 12_000_000


def test_tiers_may_stand_in_any_order():
    higher = Tier(
        over_input_tokens=300_000,
        input_micro_per_mtok=9_000_000,
        output_micro_per_mtok=9_000_000,
        cached_input_micro_per_mtok=9_000_000,
    )
    for tiers in ((TIER, higher), (higher, TIER)):
        assert cost_of(rate(tiers=tiers), usage(300_001)).input_pico == 300_001 * 9_000_000
        marginal = cost_of(rate(tiers=tiers, tier_mode="marginal"), usage(300_001))
        assert marginal.input_pico == 200_000 * 2_000_000 + 100_000 * 4_000_000 + 9_000_000


def test_the_batch_multiplier_rounds_each_component_half_to_even_once():
    odd = rate(
        input_micro_per_mtok=1,
        output_micro_per_mtok=3,
        cached_input_micro_per_mtok=5,
        fixed_pico=9,
        batch_multiplier_permille=500,
    )
    cost = cost_of(odd, usage(2, 1, cached_input_tokens=1), batch=True)
    assert cost == Cost(input_pico=0, cached_input_pico=2, output_pico=2, fixed_pico=9)
    assert cost_of(odd, usage(2, 1, cached_input_tokens=1)).total_pico == 1 + 5 + 3 + 9


@pytest.mark.parametrize("bad", [usage(-1), usage(1, -1), usage(1, 0, 2), usage(1, 0, -1)])
def test_a_usage_that_can_not_be_is_a_fault(bad):
    with pytest.raises(ValueError, match="can't price"):
        cost_of(rate(), bad)


@given(st.integers(-(10**20), 10**20), st.integers(0, 5_000))
def test_a_multiplied_amount_equals_the_exact_fraction_rounded_half_to_even(pico, permille):
    assert multiplied(pico, permille) == round(Fraction(pico * permille, 1000))


PRICES = st.integers(0, 10**9)
TIERS = st.lists(
    st.builds(
        Tier,
        over_input_tokens=st.integers(0, 60),
        input_micro_per_mtok=PRICES,
        output_micro_per_mtok=PRICES,
        cached_input_micro_per_mtok=PRICES,
    ),
    max_size=3,
    unique_by=lambda tier: tier.over_input_tokens,
).map(tuple)


@given(TIERS, st.integers(0, 80), st.integers(0, 80), st.integers(0, 9))
def test_a_marginal_price_is_the_sum_over_single_tokens(tiers, a, b, output_tokens):
    cached, input_tokens = sorted((a, b))
    bands = sorted(tiers, key=lambda tier: tier.over_input_tokens)
    cost = cost_of(
        rate(tiers=tiers, tier_mode="marginal"), usage(input_tokens, output_tokens, cached)
    )
    expected = {"input": 0, "cached": 0}
    for position in range(input_tokens):
        over = [tier for tier in bands if position + 1 > tier.over_input_tokens]
        band = over[-1] if over else rate()
        if position < cached:
            expected["cached"] += band.cached_input_micro_per_mtok
        else:
            expected["input"] += band.input_micro_per_mtok
    assert (cost.input_pico, cost.cached_input_pico) == (expected["input"], expected["cached"])
