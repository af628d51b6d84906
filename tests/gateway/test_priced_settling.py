"""A receipt names how its usage was counted and what each meter cost, provable later (CST-6..8)."""

import msgspec

from gateway.providers.outcomes import Completed
from gateway.settling import closing_records
from ledger.rates import Usage
from ledger.receipt_cost import cost_fault
from ledger.records import AttemptEvent
from ledger.usage import StreamUsage, convention_of, normalise
from tests.gateway.weighing import desk, weigh
from tests.policy_factories import COURSE_RATES, NOW_US

ENDED_US = NOW_US + 5_000_000
METERED = msgspec.structs.replace(
    COURSE_RATES,
    rates=tuple(
        msgspec.structs.replace(rate, meters=(("cache_write_5m", 2_500_000),))
        for rate in COURSE_RATES.rates
    ),
)


def filed(usage, table=METERED, **outcome):
    """(the closing rows, the receipt) of the course's req-normal with this usage."""
    weighed = weigh(desk(rate_tables=(table,)))
    ended = Completed(usage=usage, finish_reason="stop", **outcome)
    return closing_records(weighed, ended, ENDED_US)


def test_a_receipt_names_the_convention_and_the_further_meters_and_can_be_computed_again():
    usage = Usage(
        input_tokens=1_000,
        output_tokens=200,
        meters=(("cache_write_5m", 400), ("reasoning", 150)),
    )
    rows, receipt = filed(usage, usage_convention="anthropic-messages")
    assert receipt.usage_convention == "anthropic-messages"
    assert receipt.usage_json == '{"cache_write_5m":400,"reasoning":150}'
    assert (receipt.cost_input_pico, receipt.cost_output_pico, receipt.cost_other_pico) == (
        600 * 2_000_000, 200 * 8_000_000, 400 * 2_500_000
    )  # fmt: skip
    assert cost_fault(receipt, {METERED.version: METERED}) is None
    (ended,) = [row for row in rows if isinstance(row, AttemptEvent)]
    assert (ended.rate_key, ended.usage_convention, ended.usage_json) == (
        receipt.rate_key, receipt.usage_convention, receipt.usage_json
    )  # fmt: skip
    assert ended.cost_pico == receipt.cost_total_pico


def test_the_usual_receipt_of_our_own_count_carries_none_of_it():
    _, receipt = filed(Usage(input_tokens=1_000, output_tokens=200), COURSE_RATES)
    assert (receipt.usage_convention, receipt.usage_json, receipt.cost_other_pico) == (
        None,
        None,
        0,
    )


def test_a_stream_and_one_answer_of_the_same_call_cost_the_same():
    """CST-8."""
    convention = convention_of("anthropic-messages")
    start = {"input_tokens": 500, "cache_read_input_tokens": 500, "output_tokens": 1}
    stream = StreamUsage(convention)
    stream.take({"message": {"usage": start}})
    for so_far in (40, 120, 200):
        stream.take({"usage": {"output_tokens": so_far}})
    whole = normalise(convention, {"usage": {**start, "output_tokens": 200}})
    streamed = stream.normalised()
    assert streamed is not None
    assert whole is not None
    assert filed(streamed.usage)[1] == filed(whole.usage)[1]


def tiered(*tiers: str):
    """The course's table with a rate for each of these service tiers, at three times the price."""
    plain = COURSE_RATES.rates
    more = [
        msgspec.structs.replace(
            rate, service_tier=tier, input_micro_per_mtok=3 * rate.input_micro_per_mtok
        )
        for rate in plain
        for tier in tiers
    ]
    return msgspec.structs.replace(COURSE_RATES, rates=(*plain, *more))


def test_the_service_tier_that_the_provider_said_prices_it_and_is_named():
    """CST-1: 1,000 tokens at 2 are 0.002, at the priority tier's 6 they are 0.006."""
    table, usage = tiered("priority"), Usage(input_tokens=1_000, output_tokens=0)
    for said, marked, pico in (
        ("priority", "#tier=priority", 6_000_000_000),
        ("default", "", 2_000_000_000),
        ("", "", 2_000_000_000),
    ):
        rows, receipt = filed(usage, table, service_tier=said)
        assert receipt.cost_total_pico == pico
        assert (receipt.rate_key or "").endswith(f"{COURSE_RATES.rates[0].key}{marked}")
        assert cost_fault(receipt, {table.version: table}) is None
        (ended,) = [row for row in rows if isinstance(row, AttemptEvent)]
        assert (ended.service_tier, ended.rate_key) == (said or None, receipt.rate_key)


def test_a_tier_without_a_rate_is_priced_by_the_standard_one_and_the_attempt_says_both():
    """CST-7: never zero. The row has the provider's word, the key of the rate has no tier."""
    table = tiered("priority")
    rows, receipt = filed(Usage(input_tokens=1_000, output_tokens=0), table, service_tier="flex")
    assert receipt.cost_total_pico == 2_000_000_000
    assert receipt.rate_key == COURSE_RATES.rates[0].key
    assert cost_fault(receipt, {table.version: table}) is None
    (ended,) = [row for row in rows if isinstance(row, AttemptEvent)]
    assert (ended.service_tier, ended.rate_key) == ("flex", receipt.rate_key)


def test_a_rate_of_the_routes_region_prices_it_and_is_named_on_the_receipt():
    weighed = weigh(desk())
    assert weighed.route is not None
    plain = COURSE_RATES.rates[0]
    here = msgspec.structs.replace(
        plain, key=weighed.route.route_id, region=weighed.route.region,
        input_micro_per_mtok=5_000_000, valid_from_us=NOW_US,
    )  # fmt: skip
    table = msgspec.structs.replace(COURSE_RATES, rates=(*COURSE_RATES.rates, here))
    _, receipt = filed(Usage(input_tokens=1_000, output_tokens=0), table)
    assert receipt.rate_key == f"{here.key}#region={here.region}"
    assert receipt.cost_total_pico == 5_000_000_000
    assert cost_fault(receipt, {table.version: table}) is None
    # Admission estimated with the same rate: 1,000 in at 5 and the whole output cap.
    assert receipt.cost_estimated_pico == 5_000_000_000 + 200 * plain.output_micro_per_mtok
