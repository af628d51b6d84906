"""SCH-2: at any time scale, what the simulated backend tells the gateway is in real time."""

import logging

import pytest
from django.core.exceptions import ImproperlyConfigured

from gateway.clock import SystemClock
from gateway.providers.simulated import capacity
from gateway.providers.simulated_queue import Front
from gateway.providers.simulator import SimulatorProvider
from gateway.settings import TIME_SCALE_LIMIT, _positive_number
from simulator.scheduler import Snapshot
from simulator.timing import PS_PER_MS

WAITING = Snapshot(
    observed_ps=0, revision=1, waiting_requests=1, running_requests=2, waiting_input_tokens=9,
    reserved_kv_tokens=64, free_kv_tokens=16, oldest_wait_ps=800 * PS_PER_MS,
    recent_output_tokens_per_second=50.0,
)  # fmt: skip


@pytest.mark.parametrize(("scale", "wait_us", "pace"), [(1.0, 800_000, 50), (20.0, 40_000, 1_000)])
def test_a_snapshot_tells_real_waits_and_a_real_pace(scale, wait_us, pace):
    seen = capacity("r", 1, 5, [WAITING], time_scale=scale)
    assert (seen.oldest_wait_us, seen.queue_p95_us) == (wait_us, wait_us)
    assert seen.recent_output_tokens_per_second == pace
    front = Front(requests=1, input_tokens=1, oldest_wait_ps=4_000 * PS_PER_MS)
    assert capacity("r", 1, 5, [WAITING], front, scale).oldest_wait_us == 5 * wait_us


def test_a_scaled_backend_says_at_its_start_that_predictions_have_to_be_of_real_time(caplog):
    for scale in (1.0, 20.0):
        with caplog.at_level(logging.WARNING):
            SimulatorProvider([], clock=SystemClock(), time_scale=scale, first_revision=lambda _: 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "20 times as fast" in caplog.text and "predictions" in caplog.text


@pytest.mark.parametrize("raw", ["inf", "-inf", "nan", "0", "-1", "1e999", "1001", "fast", ""])
def test_a_time_scale_that_no_clock_can_run_at_is_refused_in_words(monkeypatch, raw):
    monkeypatch.setenv("WEIGHBRIDGE_TIME_SCALE", raw)
    with pytest.raises(
        ImproperlyConfigured, match=r"TIME_SCALE is .* finite number above 0 and at most 1000"
    ):
        _positive_number("WEIGHBRIDGE_TIME_SCALE", 1.0, TIME_SCALE_LIMIT)


def test_no_other_number_of_the_settings_may_be_infinite(monkeypatch):
    monkeypatch.setenv("WEIGHBRIDGE_BODY_LIMIT_BYTES", "inf")
    with pytest.raises(ImproperlyConfigured, match=r"set it to a finite number above 0\.$"):
        _positive_number("WEIGHBRIDGE_BODY_LIMIT_BYTES", 1.0)
