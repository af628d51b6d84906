"""Completed requests counted together are counted as each by itself (SLO-0, SLO-7)."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.slo import Indicator, Selector, SloDefinition, judge
from ledger.slo_tally import Completed, tally_for
from tests.ledger.receipts import receipt

DURATIONS_US = st.none() | st.integers(0, 4)
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "output_tokens": st.integers(0, 3),
            "first_token_us": DURATIONS_US,
            "itl_mean_us": DURATIONS_US,
            "queue_us": DURATIONS_US,
            "e2e_us": st.integers(0, 4),
            "deadline_us": st.integers(0, 4),
            "cancel_ack_us": DURATIONS_US,
            "cost_total_pico": st.integers(0, 4),
        }
    ),
    min_size=1,
    max_size=6,
)
SHARED = st.fixed_dictionaries(
    {
        "degraded_from": st.sampled_from((None, "assistant-large")),
        "schema_valid": st.sampled_from((None, 0, 1)),
    }
)
THRESHOLDS = st.none() | st.integers(0, 4)


def definition(indicator, limit, *, degraded_is_valid):
    return SloDefinition(
        slo_id="slo",
        revision=1,
        title="An objective",
        indicator=indicator,
        target_ppm=990_000,
        threshold_us=limit,
        threshold_pico=limit,
        degraded_is_valid=degraded_is_valid,
    )


@pytest.mark.parametrize("indicator", get_args(Indicator))
@given(requests=REQUESTS, shared=SHARED, limit=THRESHOLDS, degraded_is_valid=st.booleans())
def test_slo_0_requests_counted_together_are_counted_as_each_alone(
    indicator, requests, shared, limit, degraded_is_valid
):
    objective = definition(indicator, limit, degraded_is_valid=degraded_is_valid)
    verdicts = [
        judge(objective, receipt(status="completed", **shared, **fields)) for fields in requests
    ]
    columns = {name: [fields[name] for fields in requests] for name in requests[0]}
    completed = Completed(
        **columns,
        degraded=shared["degraded_from"] is not None,
        schema_valid=shared["schema_valid"],
    )
    tally = tally_for(objective)
    assert tally is not None
    assert tally(objective, completed) == (
        verdicts.count("good"),
        len(verdicts) - verdicts.count(None),
    )


def test_an_objective_of_some_lengths_of_prompt_is_judged_request_by_request():
    objective = definition("ttft", 4, degraded_is_valid=False)
    by_tokens = replace(objective, selector=Selector(input_tokens=(0, 100)))
    assert by_tokens.selector.by_tokens
    assert tally_for(by_tokens) is None


@pytest.mark.parametrize(
    ("indicator", "field"),
    [
        ("ttft", "first_token_us"),
        ("queue", "queue_us"),
        ("itl", "itl_mean_us"),
        ("e2e", "e2e_us"),
        ("cancel_ack", "cancel_ack_us"),
        ("cost", "cost_total_pico"),
    ],
)
def test_a_value_at_its_threshold_is_good_and_the_next_one_is_not(indicator, field):
    """SLO-0: alone and counted together."""
    objective = definition(indicator, 100, degraded_is_valid=False)
    fields = dict.fromkeys(
        ("first_token_us", "itl_mean_us", "queue_us", "e2e_us", "cancel_ack_us"), 1
    ) | {"output_tokens": 3, "deadline_us": 1_000, "cost_total_pico": 1}
    tally = tally_for(objective)
    assert tally is not None
    for value, good in ((99, 1), (100, 1), (101, 0)):
        one = {**fields, field: value}
        verdict = judge(objective, receipt(status="completed", **one))
        assert verdict == ("good" if good else "bad")
        columns = {name: [it] for name, it in one.items()}
        assert tally(objective, Completed(**columns, degraded=False, schema_valid=None)) == (
            good,
            1,
        )
