"""How a request ends on paper: settled once or left open, priced by its usage (LED-1, CST-1)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Rejected,
    Timings,
    Unknown,
)
from gateway.settling import closing_records, refusal_receipt
from ledger.rates import Usage
from ledger.receipt_cost import unpriced
from ledger.records import AttemptEvent, Receipt, Settlement
from tests.gateway.weighing import configuration, desk, weigh
from tests.policy_factories import NOW_US, rate, rates

ENDED_US = NOW_US + 5_000_000
USED = Usage(input_tokens=1_000, output_tokens=200)


def closed(outcome: Outcome, **changed):
    """The rows that close the course's req-normal, by type; each type at most once but events."""
    rows, receipt = closing_records(weigh(desk(), **changed), outcome, ENDED_US)
    assert rows[-1] is receipt
    return rows, receipt


def only(rows, record_type):
    (found,) = [row for row in rows if isinstance(row, record_type)]
    return found


def test_the_courses_request_costs_0_0036_units_by_hand():
    """1,000 x 2 and 200 x 8 units per million tokens."""
    rows, receipt = closed(
        Completed(
            usage=USED,
            finish_reason="length",
            provider_request_id="p-1",
            timings=Timings(
                queue_us=120_000, prefill_us=260_000, first_decode_us=0,
                first_byte_network_us=20_000, decode_us=4_600_000, first_token_us=400_000,
            ),
        )
    )  # fmt: skip
    assert (receipt.cost_input_pico, receipt.cost_output_pico) == (2_000_000_000, 1_600_000_000)
    assert receipt.cost_total_pico == receipt.cost_estimated_pico == 3_600_000_000
    assert (receipt.status, receipt.terminal_error_code, receipt.rate_key) == (
        "completed", None, "fast-v2",
    )  # fmt: skip
    assert (receipt.queue_us, receipt.prefill_us, receipt.first_token_us) == (
        120_000, 260_000, 400_000,
    )  # fmt: skip
    assert (receipt.e2e_us, receipt.accepted_at_us, receipt.ended_at_us) == (
        5_000_000, NOW_US, ENDED_US,
    )  # fmt: skip
    settlement = only(rows, Settlement)
    assert (settlement.kind, settlement.cost_pico, settlement.overrun_pico) == (
        "posted", 3_600_000_000, 0,
    )  # fmt: skip
    event = only(rows, AttemptEvent)
    assert (event.event, event.outcome, event.provider_request_id, event.cost_pico) == (
        "ended", "completed", "p-1", 3_600_000_000,
    )  # fmt: skip


def test_what_was_spent_above_the_reservation_is_posted_in_full_with_the_overrun():
    """300 tokens came where 200 were allowed: 100 x 8 units per million too many."""
    usage = Usage(input_tokens=1_000, output_tokens=300)
    rows, receipt = closed(Completed(usage=usage, finish_reason="stop"))
    settlement = only(rows, Settlement)
    assert (settlement.kind, settlement.cost_pico) == ("posted", 4_400_000_000)
    assert settlement.overrun_pico == 800_000_000
    assert receipt.cost_total_pico == 4_400_000_000


def test_a_cancel_is_priced_up_to_where_it_came_and_its_acknowledgement_is_kept():
    usage = Usage(input_tokens=1_000, output_tokens=7)
    rows, receipt = closed(
        Cancelled(usage=usage, reason="CLIENT_GONE", timings=Timings(cancel_ack_us=24_000))
    )
    events = [row for row in rows if isinstance(row, AttemptEvent)]
    assert [(event.event, event.at_us) for event in events] == [
        ("cancel_sent", ENDED_US - 24_000),
        ("cancel_acknowledged", ENDED_US),
        ("ended", ENDED_US),
    ]
    assert (receipt.status, receipt.terminal_error_code) == ("cancelled", "CLIENT_GONE")
    assert receipt.cost_total_pico == only(rows, Settlement).cost_pico == 2_056_000_000


def test_what_a_provider_refused_costs_nothing_and_is_voided():
    rows, receipt = closed(Rejected(usage=USED, reason="PROVIDER_REFUSED"))
    settlement = only(rows, Settlement)
    assert (settlement.kind, settlement.cost_pico) == ("voided", 0)
    assert (receipt.status, receipt.terminal_error_code) == ("failed", "PROVIDER_REFUSED")
    assert (receipt.output_tokens, receipt.cost_total_pico, receipt.usage_source) == (0, 0, None)


def test_what_did_not_run_has_no_meters_on_its_rows_either():
    usage = Usage(input_tokens=1_000, output_tokens=200, meters=(("reasoning", 5),))
    for outcome, kept in (
        (Rejected(usage=usage, reason="PROVIDER_REFUSED"), None),
        (Failed(usage=usage, reason="BACKEND_DIED"), '{"reasoning":5}'),
    ):
        rows, receipt = closed(outcome)
        event = only(rows, AttemptEvent)
        assert (event.usage_json, receipt.usage_json) == (kept, kept)
        assert (event.input_tokens > 0) is (kept is not None)


def test_where_there_is_no_price_nothing_is_spent_over_the_reservation():
    """CST-7: an unpriced model reserves nothing, costs nothing and overruns nothing."""
    weighed = weigh(desk(rate_tables=(rates(rate("another")),)), max_cost_pico=None)
    rows, receipt = closing_records(weighed, Completed(usage=USED, finish_reason="stop"), ENDED_US)
    settlement = only(rows, Settlement)
    assert weighed.decision.cost_pico is None
    assert (settlement.kind, settlement.cost_pico, settlement.overrun_pico) == ("voided", 0, 0)
    assert (receipt.rate_key, receipt.cost_total_pico, unpriced(receipt)) == (None, 0, True)


@pytest.mark.parametrize(
    ("outcome", "lacks"),
    [
        (Completed(usage=USED, finish_reason="stop"), True),
        (Failed(usage=USED, reason="BACKEND_DIED"), True),
        (Cancelled(usage=USED, reason="CLIENT_GONE"), True),
        (Unknown(usage=USED, usage_source="estimated", reason="PROCESS_ENDED"), True),
        (Rejected(usage=USED, reason="PROVIDER_REFUSED"), False),
        (Cancelled(usage=USED, reason="CLIENT_GONE", sent=False), False),
    ],
)
def test_cst_7_of_each_end_the_receipt_tells_no_price_from_nothing_that_ran(outcome, lacks):
    """Admission lets a model without a rate serve where no budget applies: such receipts are."""
    weighed = weigh(desk(rate_tables=(rates(rate("another")),)), max_cost_pico=None)
    receipt = closing_records(weighed, outcome, ENDED_US)[1]
    assert (receipt.rate_key, receipt.cost_total_pico, unpriced(receipt)) == (None, 0, lacks)
    assert not unpriced(closing_records(weigh(desk()), outcome, ENDED_US)[1])
    assert not unpriced(refusal_receipt(weigh(desk(), tokens=60_000), NOW_US))


def test_an_accepted_request_names_its_prediction_and_a_refused_one_its_code_as_its_reason():
    weighed = weigh(desk())
    assert weighed.route is not None
    _, receipt = closing_records(weighed, Completed(usage=USED, finish_reason="stop"), ENDED_US)
    assert receipt.prediction_revision == weighed.route.prediction.revision
    refused = weigh(desk(), tokens=60_000)
    found = refusal_receipt(refused, NOW_US)
    assert found.route_reason == refused.decision.reason_code
    assert (found.prediction_revision, found.identity_id, found.simulated) == (None, None, 0)


@pytest.mark.parametrize("reason", ["CLIENT_GONE", "SHUTDOWN"])
def test_what_was_never_sent_owes_no_fixed_price_and_is_voided(reason):
    """RTY-1, LED-6: a fixed price is one of requests that a provider had."""
    fixed = rates(rate("fast-v2", fixed_pico=1_000_000), rate("long-context-v4"))
    weighed = weigh(desk(rate_tables=(fixed,)))
    sent = Cancelled(usage=USED, reason=reason)
    never = Cancelled(
        usage=Usage(input_tokens=0, output_tokens=0), reason=reason, sent=False,
        timings=Timings(cancel_ack_us=0),
    )  # fmt: skip
    assert closing_records(weighed, sent, ENDED_US)[1].cost_fixed_pico == 1_000_000
    rows, receipt = closing_records(weighed, never, ENDED_US)
    assert (only(rows, Settlement).kind, only(rows, Settlement).cost_pico) == ("voided", 0)
    assert (receipt.cost_total_pico, receipt.rate_key, receipt.status) == (0, None, "cancelled")
    assert (receipt.cancel_ack_us, receipt.usage_source) == (0, None)


def test_an_unknown_is_not_settled_and_its_receipt_says_what_is_known():
    rows, receipt = closed(Unknown(usage=USED, usage_source="estimated", reason="PROCESS_ENDED"))
    assert [row for row in rows if isinstance(row, Settlement)] == []
    assert (receipt.status, receipt.terminal_error_code) == ("unknown", "PROCESS_ENDED")
    assert (receipt.usage_source, receipt.cost_total_pico) == ("estimated", 3_600_000_000)


def test_a_batch_request_gets_the_batch_discount_rounded_half_to_even():
    """1 token at 1 micro-unit per million is 1 pico; half of it is 0.5, of 3 it is 1.5."""
    half = rate("fast-v2", 0, 0, batch_multiplier_permille=500)
    table = rates(
        type(half)(
            key="fast-v2", input_micro_per_mtok=1, output_micro_per_mtok=3,
            cached_input_micro_per_mtok=1, batch_multiplier_permille=500,
        ),
        rate("long-context-v4"),
    )  # fmt: skip
    at = desk(rate_tables=(table,))
    weighed = weigh(at, priority="batch")
    usage = Usage(input_tokens=1, output_tokens=1)
    _, receipt = closing_records(weighed, Completed(usage=usage, finish_reason="stop"), ENDED_US)
    assert (receipt.cost_input_pico, receipt.cost_output_pico) == (0, 2)


def test_a_refusal_has_a_receipt_that_owes_nothing():
    weighed = weigh(desk(), tokens=60_000)
    receipt = refusal_receipt(weighed, NOW_US)
    assert (receipt.status, receipt.terminal_error_code) == (
        "rejected",
        weighed.decision.reason_code,
    )
    assert (receipt.cost_total_pico, receipt.attempts, receipt.route_id) == (0, 0, None)
    with pytest.raises(ValueError, match="was not accepted"):
        closing_records(weighed, Unknown(usage=USED, reason="X"), ENDED_US)


counts = st.integers(0, 2_000_000)


@st.composite
def outcomes(draw) -> Outcome:
    cached, fresh = draw(counts), draw(counts)
    usage = Usage(
        input_tokens=cached + fresh, output_tokens=draw(counts), cached_input_tokens=cached
    )
    ack_us = draw(st.none() | st.integers(0, 1_000_000))
    common: dict[str, Any] = {"usage": usage, "timings": Timings(cancel_ack_us=ack_us)}
    return draw(
        st.sampled_from(
            [
                Completed(finish_reason="stop", **common),
                Cancelled(reason="CLIENT_GONE", **common),
                Failed(reason="BACKEND_DIED", **common),
                Rejected(reason="PROVIDER_REFUSED", **common),
                Unknown(reason="PROCESS_ENDED", **common),
            ]
        )
    )


@given(outcome=outcomes())
def test_every_end_is_settled_once_or_left_open_and_all_its_rows_agree(outcome: Outcome):
    weighed = weigh(desk())
    rows, receipt = closing_records(weighed, outcome, ENDED_US)
    settlements = [row for row in rows if isinstance(row, Settlement)]
    (ended,) = [r for r in rows if isinstance(r, AttemptEvent) and r.event == "ended"]
    assert len(settlements) == (0 if isinstance(outcome, Unknown) else 1)
    assert [row for row in rows if isinstance(row, Receipt)] == [receipt]
    assert receipt.status == ended.outcome == outcome.status
    parts = (
        receipt.cost_input_pico, receipt.cost_cached_input_pico, receipt.cost_output_pico,
        receipt.cost_fixed_pico, receipt.cost_retry_and_hedge_pico,
    )  # fmt: skip
    assert sum(parts) == receipt.cost_total_pico == ended.cost_pico
    if isinstance(outcome, Rejected):
        assert receipt.cost_total_pico == 0
    else:
        usage = outcome.usage
        assert receipt.cost_total_pico == (usage.input_tokens * 2 + usage.output_tokens * 8) * 10**6
    for settlement in settlements:
        assert settlement.cost_pico == receipt.cost_total_pico
        assert settlement.kind == ("posted" if receipt.cost_total_pico else "voided")
        assert settlement.overrun_pico == max(0, receipt.cost_total_pico - 3_600_000_000)
    assert configuration().policy.revision == receipt.policy_revision
