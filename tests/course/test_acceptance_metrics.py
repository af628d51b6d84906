"""Acceptance lines two, three and ten: what is measured, by slice and by valid result (SPEC 17)."""

import pytest

from ledger.queries.slis import indicators
from ledger.slo import Indicator, SloDefinition, judge
from tests.ledger.receipts import T0_US, receipt
from tests.ledger.seeded import fill

HOUR = (T0_US, T0_US + 3_600_000_000)
UNIT_PICO = 1_000_000_000_000


def test_acceptance_two_each_duration_has_an_indicator_of_its_own():
    """A request that is late in one of them alone is bad in that one alone."""
    late: dict[Indicator, dict[str, int]] = {
        "ttft": {"first_token_us": 5_000_000},
        "itl": {"itl_mean_us": 5_000_000},
        "e2e": {"e2e_us": 5_000_000},
        "queue": {"queue_us": 5_000_000},
        "cancel_ack": {"cancel_ack_us": 5_000_000},
    }
    for slow, fields in late.items():
        one = receipt(**({"cancel_ack_us": 1_000} | fields))
        for indicator in late:
            objective = SloDefinition(
                slo_id=indicator,
                revision=1,
                title=indicator,
                indicator=indicator,
                target_ppm=990_000,
                threshold_us=4_000_000,
            )
            assert judge(objective, one) == ("bad" if indicator == slow else "good")


@pytest.mark.parametrize(
    ("by", "slow"),
    [("identity", "model-b"), ("priority", "batch"), ("input_tokens", "16384 and more")],
)
def test_acceptance_three_a_tail_is_found_by_model_version_request_class_and_token_length(
    ledger_path, reader, by, slow
):
    fields = {"identity": "identity_id", "priority": "priority", "input_tokens": "input_tokens"}
    quick = {"identity_id": "model-a", "priority": "interactive", "input_tokens": 800}
    value = 20_000 if by == "input_tokens" else slow
    made = [
        receipt(
            request_id=f"req_{number}",
            first_token_us=4_000_000 if number % 4 == 0 else 200_000,
            accepted_at_us=T0_US + number,
            **(quick | ({fields[by]: value} if number % 4 == 0 else {})),
        )
        for number in range(200)
    ]
    fill(ledger_path, made)
    found = {one.name: one.ttft_us[99] for one in indicators(reader, *HOUR, by).slices}
    assert found.pop(slow) == 4_000_000
    assert list(found.values()) == [200_000]


def test_acceptance_ten_the_cheaper_token_is_the_dearer_valid_result(ledger_path, reader):
    """The source's batch: 1,000 requests at 3.6 units. Its rival is 2.0, and half of it is void."""
    made = []
    for number in range(1_000):
        place = {"accepted_at_us": T0_US + number}
        sound = {"identity_id": "sound", "cost_total_pico": 3_600_000_000}
        made.append(receipt(request_id=f"s{number}", schema_valid=1, **place, **sound))
        cheap = {"identity_id": "cheap", "cost_total_pico": 2_000_000_000}
        made.append(receipt(request_id=f"c{number}", schema_valid=number % 2, **place, **cheap))
    fill(ledger_path, made, batch=500)
    found = {one.name: one for one in indicators(reader, *HOUR, "identity").slices}
    assert found["sound"].cost_pico == 36 * UNIT_PICO // 10
    assert (found["sound"].valid, found["cheap"].valid) == (1_000, 500)
    assert found["cheap"].cost_pico == 2 * UNIT_PICO
    assert found["sound"].cost_per_valid_pico == 3_600_000_000
    assert found["cheap"].cost_per_valid_pico == 4_000_000_000
