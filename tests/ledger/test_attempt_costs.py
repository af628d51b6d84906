"""CST-8, LED-2: a request of several attempts costs what they cost, each by its own rate."""

import contextlib

import pytest

from ledger.attempt_costs import attempt_cost_faults
from ledger.rates import RateTable
from ledger.reading import connect_read_only
from ledger.store import Store
from tests import factories
from tests.policy_factories import rate

TABLE = RateTable(
    version="rates-1", effective_from_us=0, currency="unit",
    rates=(rate("a", 2, 8), rate("b", 4, 12)),
)  # fmt: skip
FIRST_PICO, SECOND_PICO = 10 * 2 * 10**6, (10 * 4 + 3 * 12) * 10**6


def faults(
    ledger_path, *, first=FIRST_PICO, beside=FIRST_PICO, attempts=2, key="a", input_tokens=10,
    receipt_key="b", total=None, known=(TABLE,),
):  # fmt: skip
    """What is found of a request whose first attempt failed at `a` and whose second answered."""
    ends = [("r.0", "failed", key, 0, first), ("r.1", "completed", "b", 3, SECOND_PICO)]
    rows = [
        factories.attempt_event(
            attempt_id=attempt_id, request_id="r", event="ended", outcome=outcome,
            input_tokens=input_tokens if attempt_id == "r.0" else 10, cached_input_tokens=0,
            output_tokens=output, rate_key=rate_key,
            cost_pico=cost_pico, usage_json=None,
        )
        for attempt_id, outcome, rate_key, output, cost_pico in ends
    ]  # fmt: skip
    receipt = factories.receipt(
        request_id="r", rate_table_version="rates-1", rate_key=receipt_key, priority="interactive",
        attempts=attempts, cost_retry_and_hedge_pico=beside,
        cost_total_pico=SECOND_PICO + beside if total is None else total,
    )  # fmt: skip
    with Store.open(ledger_path) as store:
        store.append((*rows, receipt)).result()
        size = store.head.size
    with contextlib.closing(connect_read_only(ledger_path)) as reader:
        return [
            (fault.table, fault.what)
            for fault in attempt_cost_faults(reader, size, {one.version: one for one in known})
        ]


def test_attempts_that_add_up_by_their_own_rates_are_no_fault(ledger_path):
    assert faults(ledger_path) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (
            {"first": 1, "beside": 1},
            [("attempt_event", "its cost is 0.000000000001, computed 0.00002")],
        ),
        ({"beside": 0}, [("receipt", "its attempts cost 0.000096, it says 0.000076")]),
        ({"attempts": 3}, [("receipt", "it says 3 attempts; 2 ended before it")]),
        (
            {"key": "c"},
            [("attempt_event", "rate table rates-1 has no rate c at its time")],
        ),
        (
            {"key": None},
            [("attempt_event", "it has no rate and costs 0.00002")],
        ),
        ({"key": None, "first": 0, "beside": 0}, []),
        (
            {"known": ()},
            [("attempt_event", "its rate table rates-1 is not in the ledger")] * 2,
        ),
        (  # the sum is right, and what is called the answer's is the other attempt's
            {"beside": SECOND_PICO, "total": FIRST_PICO + SECOND_PICO},
            [("receipt", "no attempt costs the 0.00002 of its answer")],
        ),
        (
            {"receipt_key": "a"},
            [("receipt", "no attempt costs the 0.000076 of its answer")],
        ),
    ],
)  # fmt: skip
def test_a_wrong_price_or_sum_is_named(ledger_path, changed, found):
    assert faults(ledger_path, **changed) == found


def test_counts_that_can_not_be_priced_are_a_fault_of_their_attempt(ledger_path):
    (found,) = faults(ledger_path, input_tokens=-1)
    assert found[0] == "attempt_event"
    assert found[1].startswith("can't price")
