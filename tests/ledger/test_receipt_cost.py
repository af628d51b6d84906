"""A receipt is held against its usage, its rate and the table in effect at its time (LED-2)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.rates import Cost, Rate, RateTable, Tier, Usage
from ledger.receipt_cost import cost_fault, expected_cost, in_effect, meters_json, read_meters
from tests import factories

RATES = (
    Rate(
        key="route-a",
        input_micro_per_mtok=2_000_000,
        output_micro_per_mtok=8_000_000,
        cached_input_micro_per_mtok=500_000,
        meters=(("reasoning", 10_000_000),),
    ),
)


def table(version, effective_from_us=0, rates=RATES):
    return RateTable(
        version=version, effective_from_us=effective_from_us, currency="units", rates=rates
    )


def tables(*each):
    return {one.version: one for one in each}


def test_further_meters_are_priced_again_from_the_receipt():
    whole = tables(table("rates-1"))
    sound = factories.receipt(
        usage_json='{"reasoning":50}', usage_convention="openai-chat",
        cost_output_pico=150 * 8_000_000, cost_other_pico=50 * 10_000_000,
        cost_total_pico=2_000_000_000 + 1_200_000_000 + 500_000_000,
    )  # fmt: skip
    assert cost_fault(sound, whole) is None
    wrong = msgspec.structs.replace(sound, cost_other_pico=1)
    assert cost_fault(wrong, whole) == "further meters is 0.000000000001, computed 0.0005"
    without = msgspec.structs.replace(sound, usage_json=None)
    assert "output is 0.0012, computed 0.0016" in (cost_fault(without, whole) or "")


def test_meters_that_can_not_be_read_are_a_fault_and_no_crash():
    for text in ("{", '{"reasoning":"x"}', '{"typo":1}', '{"reasoning":1e400}'):
        assert cost_fault(factories.receipt(usage_json=text), tables(table("rates-1"))) is not None


def test_a_receipt_that_was_priced_by_a_table_not_in_effect_is_named():
    """CST-1: the table in effect when the request was accepted prices it."""
    later = tables(table("rates-1"), table("rates-2", factories.NOW_US))
    assert cost_fault(factories.receipt(), later) == (
        "it is priced by rates-1; in effect at its time was rates-2"
    )
    assert cost_fault(factories.receipt(accepted_at_us=factories.NOW_US - 1), later) is None
    assert cost_fault(factories.receipt(rate_table_version="rates-2"), later) is None


def test_of_two_tables_from_one_instant_the_one_published_later_is_in_effect():
    both = tables(table("rates-1", 5), table("rates-2", 5), table("rates-3", 9))
    assert [in_effect(both, at) for at in (4, 5, 8, 9)] == [None, "rates-2", "rates-2", "rates-3"]


def test_a_dated_rate_is_looked_up_at_the_time_of_acceptance():
    plain = RATES[0]
    dated = tables(
        table(
            "rates-1",
            rates=(
                msgspec.structs.replace(plain, valid_to_us=factories.NOW_US),
                msgspec.structs.replace(
                    plain, valid_from_us=factories.NOW_US, input_micro_per_mtok=1
                ),
            ),
        )
    )
    assert cost_fault(factories.receipt(accepted_at_us=factories.NOW_US - 1), dated) is None
    assert "input is 0.002, computed 0.000000001" in (cost_fault(factories.receipt(), dated) or "")


@given(
    st.integers(-2, 2_000), st.integers(-2, 1_500), st.integers(-2, 500), st.sampled_from([0, 7]),
    st.sampled_from([0, 1]), st.sampled_from([-1, 0, 10]), st.sampled_from(["normal", "batch"]),
)  # fmt: skip
def test_the_short_way_over_a_flat_rate_says_what_the_long_way_says(
    input_tokens, cached, output_tokens, fixed_pico, wrong_pico, later_us, priority
):
    """The short way is taken where nothing is wrong; with a tier that nothing reaches, never."""
    flat = msgspec.structs.replace(RATES[0], fixed_pico=fixed_pico)
    far = Tier(
        over_input_tokens=10**9,
        input_micro_per_mtok=0,
        output_micro_per_mtok=0,
        cached_input_micro_per_mtok=0,
    )
    costs = (
        (input_tokens - cached) * 2_000_000, cached * 500_000, output_tokens * 8_000_000, fixed_pico
    )  # fmt: skip
    receipt = factories.receipt(
        priority=priority, accepted_at_us=factories.NOW_US + later_us,
        input_tokens=input_tokens, cached_input_tokens=cached, output_tokens=output_tokens,
        cost_input_pico=costs[0], cost_cached_input_pico=costs[1], cost_output_pico=costs[2],
        cost_fixed_pico=costs[3], cost_total_pico=sum(costs) + wrong_pico,
    )  # fmt: skip
    said = []
    for rate in (flat, msgspec.structs.replace(flat, tiers=(far,))):
        known = tables(table("rates-1", rates=(rate,)), table("rates-2", factories.NOW_US + 10))
        said.append(cost_fault(receipt, known))
    assert said[0] == said[1]


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("cost_input_pico", "input"),
        ("cost_cached_input_pico", "cached input"),
        ("cost_output_pico", "output"),
        ("cost_fixed_pico", "fixed"),
        ("cost_other_pico", "further meters"),
        ("cost_retry_and_hedge_pico", "total"),
    ],
)
def test_a_component_that_is_a_pico_unit_off_is_named_also_where_the_total_follows_it(
    field: str, name: str, by: int
):
    """LED-2: whichever way a receipt is checked, no component stands in for another."""
    sound = msgspec.structs.replace(
        factories.receipt(),
        cached_input_tokens=100, cost_input_pico=900 * 2_000_000,
        cost_cached_input_pico=100 * 500_000, cost_other_pico=0, cost_retry_and_hedge_pico=40,
        cost_total_pico=900 * 2_000_000 + 100 * 500_000 + 200 * 8_000_000 + 40,
    )  # fmt: skip
    known = tables(table("rates-1"))
    assert cost_fault(sound, known) is None
    off = msgspec.structs.replace(sound, **{field: getattr(sound, field) + by})
    said = cost_fault(off, known) or ""
    assert said.startswith(f"{name} is ")
    followed = msgspec.structs.replace(off, cost_total_pico=off.cost_total_pico + by)
    if name == "total":  # what retries and hedges cost is no part of the rate
        assert cost_fault(followed, known) is None
    else:
        assert (cost_fault(followed, known) or "").startswith(f"{name} is ")


@pytest.mark.parametrize(
    ("cached", "output"),
    [(0, -1), (-1, 200), (1_001, 200)],
)
def test_counts_that_can_not_be_are_a_fault_although_every_amount_follows_from_them(
    cached: int, output: int
):
    costs = ((1_000 - cached) * 2_000_000, cached * 500_000, output * 8_000_000)
    odd = factories.receipt(
        cached_input_tokens=cached, output_tokens=output, cost_input_pico=costs[0],
        cost_cached_input_pico=costs[1], cost_output_pico=costs[2], cost_total_pico=sum(costs),
    )  # fmt: skip
    assert "can't price" in (cost_fault(odd, tables(table("rates-1"))) or "")


def test_a_batch_request_at_the_full_price_is_a_fault_where_its_rate_has_a_discount():
    half = (msgspec.structs.replace(RATES[0], batch_multiplier_permille=500),)
    for rates, fault in ((RATES, False), (half, True)):
        known = tables(table("rates-1", rates=rates))
        assert cost_fault(factories.receipt(priority="normal"), known) is None
        assert (cost_fault(factories.receipt(priority="batch"), known) is not None) is fault


def test_a_receipt_of_no_known_table_or_rate_says_so_and_an_unpriced_one_costs_nothing():
    known = tables(table("rates-1"))
    other = factories.receipt(rate_table_version="rates-9")
    assert cost_fault(other, known) == "its rate table rates-9 is not in the ledger"
    unnamed = factories.receipt(rate_key="route-z")
    assert cost_fault(unnamed, known) == "rate table rates-1 has no rate route-z at its time"
    unpriced = factories.receipt(rate_key=None)
    assert expected_cost(unpriced, known) == Cost(
        input_pico=0, cached_input_pico=0, output_pico=0, fixed_pico=0
    )
    assert "input is 0.002, computed 0" in (cost_fault(unpriced, known) or "")


def test_meters_are_kept_in_one_form_without_zeros_and_read_back():
    meters = (("reasoning", 3), ("cache_write_5m", 0), ("citation", 2))
    assert meters_json(meters) == '{"citation":2,"reasoning":3}'
    assert read_meters(meters_json(meters)) == (("citation", 2), ("reasoning", 3))
    assert (meters_json(()), read_meters(None)) == (None, ())
    assert meters_json((("reasoning", 0),)) is None
    assert Usage(input_tokens=1, output_tokens=1).meters == ()
