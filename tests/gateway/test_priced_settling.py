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
    outcome = Completed(usage=usage, finish_reason="stop", **outcome)
    return closing_records(weighed, outcome, ENDED_US)


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
