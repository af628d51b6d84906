"""One rendering of a receipt: exact numbers, the names of SPEC 9."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.api.receipts import filed_json, iso_time, milliseconds
from ledger.rows import columns
from tests.factories import model_identity
from tests.gateway.api.client import filed

# What a receipt's row carries of its only attempt, which is shown beside it.
OF_ITS_ATTEMPT = {"closes", "provider_request_id", "service_tier"}


def test_a_receipt_has_every_field_that_the_ledger_has():
    shown = filed_json(filed(), identity=model_identity())
    renamed = {
        "identity_id": "model_identity_id",
        "resolves_hash": "resolves_hash",
        "tags_json": "tags",
        "usage_json": "further_meters",
        "cost_estimated_pico": "estimated_at_admission_pico",
    }
    flat = {**shown, **shown["cost"], **{f"itl_{k}": v for k, v in shown["itl"].items()}}
    for column in columns(type(filed().receipt)):
        if column.name.endswith("_objective_us"):
            continue  # one object, null where the caller had none
        if column.name in OF_ITS_ATTEMPT:
            continue
        name = renamed.get(column.name, column.name)
        if name.startswith("cost_"):
            name = name.removeprefix("cost_")
        if name.endswith("_us"):
            name = name.removesuffix("_us")
            name = name if name in ("accepted_at", "ended_at") else f"{name}_ms"
        assert name in flat, column.name


def test_values_are_exact_and_in_their_units():
    shown = filed_json(
        filed(first_token_us=380_001, tags_json='{"team":"a"}'), identity=model_identity()
    )
    assert shown["first_token_ms"] == 380.001
    assert shown["e2e_ms"] == 2_360
    assert shown["cancel_ack_ms"] is None
    assert shown["cost"]["total_units"] == "0.0036"
    assert shown["cost"]["total_pico"] == 3_600_000_000
    assert shown["accepted_at"] == "2025-11-24T16:00:00.000001Z"
    assert shown["prev_hash"] == "01" * 32
    assert shown["tags"] == {"team": "a"}
    assert shown["simulated"] is True and shown["degraded"] is False
    assert list(shown["model_identity"]) == [
        "logical_model",
        "weights_revision",
        "tokenizer_revision",
        "runtime_name",
        "runtime_revision",
        "quantization",
        "serving_config_revision",
        "prompt_policy_revision",
    ]


def test_a_callers_objectives_stand_beside_what_was_measured():
    asked = filed(ttft_objective_us=380_000, tpot_objective_us=10_500)
    met = filed_json(asked)["objectives"]
    assert met == {"ttft_ms": 380, "ttft_met": True, "tpot_ms": 10.5, "tpot_met": True}
    late = filed(ttft_objective_us=379_999, first_token_us=380_000, itl_mean_us=None)
    missed = filed_json(late)["objectives"]
    assert missed == {"ttft_ms": 379.999, "ttft_met": False, "tpot_ms": None, "tpot_met": None}
    assert filed_json(filed())["objectives"] is None


@given(st.integers(0, 10**12))
def test_milliseconds_in_json_give_back_the_microseconds(duration_us):
    text = json.dumps(milliseconds(duration_us))
    whole, _, fraction = text.partition(".")
    assert int(whole) * 1_000 + int(fraction.ljust(3, "0") or 0) == duration_us


@given(st.integers(0, 4_102_444_800_000_000))
def test_times_sort_as_text_as_they_sort_as_numbers(at_us):
    assert iso_time(at_us) < iso_time(at_us + 1)
    assert len(iso_time(at_us)) == 27
