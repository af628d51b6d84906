"""Calibration from receipts: recovered models, backtests on public runs, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from simulator.calibrate import SPLITS, backtest, calibrate, forecast, latest
from simulator.observed import beyond, reach_of
from simulator.profiles import profile
from simulator.receipts import Receipts, compare, latencies, read_receipts
from simulator.scheduler import ReplicaConfig
from simulator.timing import ObservedRange, TimeModel
from simulator.traces import TraceError
from simulator.workload import generate_conversation_hour, scaled
from tests.shared_data import shared_data_path

PRIOR = profile("llama-3.1-8b-rtxpro6000").time
CONFIG = ReplicaConfig(kv_blocks=4_000, max_num_seqs=64)


def slower(model: TimeModel, **factors: float) -> TimeModel:
    base, step = factors.get("base", 1.0), factors.get("slope", 1.0)
    first = model.breakpoints[0][1]
    return replace(
        model,
        breakpoints=tuple(
            (x, round(first * base + (y - first) * step)) for x, y in model.breakpoints
        ),
        per_context_token_ps=round(model.per_context_token_ps * factors.get("context", 1.0)),
    )


def made_by(model: TimeModel, requests=120, rate=18.0, overhead_us=0) -> Receipts:
    trace = scaled(generate_conversation_hour(5, requests), rate * 120 / requests)
    blank = Receipts(
        source="made",
        arrival_us=trace.arrival_us,
        first_token_us=trace.arrival_us,
        last_token_us=trace.arrival_us,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
    )
    told = forecast(blank, CONFIG, model, overhead_us)
    return replace(
        blank,
        first_token_us=np.rint(blank.arrival_us + told.ttft).astype(np.int64),
        last_token_us=np.rint(blank.arrival_us + told.e2e).astype(np.int64),
    )


def test_receipts_made_by_another_model_are_met_within_a_percent():
    receipts = made_by(slower(PRIOR, base=1.25, slope=1.15, context=0.8), overhead_us=35_000)
    before = compare(latencies(receipts), forecast(receipts, CONFIG, PRIOR), np.arange(120))
    found = calibrate(receipts, CONFIG, PRIOR)
    assert max(abs(error.mean_error) for error in before) > 0.15
    assert max(abs(error.mean_error) for error in found.errors) < 0.01
    assert found.model.calibrated
    assert found.requests == 120


def test_receipts_that_the_prior_explains_leave_it_and_tell_the_batches_that_were_seen():
    found = calibrate(made_by(PRIOR, overhead_us=20_000), CONFIG, PRIOR)
    assert all(0.9 < factor < 1.1 for _, factor in found.factors)
    assert found.overhead_us == pytest.approx(20_000, abs=3_000)
    observed = found.model.observed
    assert observed is not None
    assert 1 <= observed.max_decodes <= CONFIG.max_num_seqs
    assert observed.max_prefill_tokens == CONFIG.max_num_batched_tokens


def test_calibration_is_a_function_of_its_inputs():
    receipts = made_by(slower(PRIOR, base=1.2), requests=24)
    assert calibrate(receipts, CONFIG, PRIOR) == calibrate(receipts, CONFIG, PRIOR)


def test_one_token_answers_have_no_tpot_and_do_not_stop_the_fit():
    receipts = made_by(PRIOR)
    one = replace(
        receipts,
        output_tokens=np.where(np.arange(120) % 4 == 0, 1, receipts.output_tokens),
        last_token_us=np.where(
            np.arange(120) % 4 == 0, receipts.first_token_us, receipts.last_token_us
        ),
    )
    errors = {error.metric: error.requests for error in calibrate(one, CONFIG, PRIOR).errors}
    assert errors == {"ttft": 120, "tpot": 90, "e2e": 120}


def test_too_few_receipts_and_one_too_large_are_refused():
    receipts = made_by(PRIOR)
    with pytest.raises(ValueError, match="at least 20"):
        calibrate(receipts, CONFIG, PRIOR, rows=np.arange(19))
    with pytest.raises(ValueError, match="larger than this configuration"):
        calibrate(receipts, replace(CONFIG, kv_blocks=20), PRIOR)


def test_the_latest_receipts_are_used_without_gaps():
    receipts = made_by(PRIOR, requests=24)
    used = latest(receipts, 20)
    assert used.arrival_us.tolist() == receipts.arrival_us[4:].tolist()
    assert used.last_token_us.tolist() == receipts.last_token_us[4:].tolist()
    assert latest(receipts, 24) is receipts


def test_progress_is_told_after_each_pass():
    heard: list[float] = []
    calibrate(made_by(PRIOR, requests=24), CONFIG, PRIOR, progress=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"first_token_us": np.array([4])}, "first token precedes"),
        ({"last_token_us": np.array([5])}, "last token precedes"),
        ({"output_tokens": np.array([0])}, "at least one input"),
        ({"input_tokens": np.array([1, 2])}, "differ in length"),
    ],
)
def test_receipts_out_of_order_are_refused(change, reason):
    good = {
        "arrival_us": np.array([5]),
        "first_token_us": np.array([6]),
        "last_token_us": np.array([7]),
        "input_tokens": np.array([1]),
        "output_tokens": np.array([2]),
    }
    Receipts(source="x", **good)
    with pytest.raises(ValueError, match=reason):
        Receipts(source="x", **{**good, **change})


def test_own_receipts_are_read_sorted_and_a_bad_line_is_refused(tmp_path):
    path = tmp_path / "receipts.csv"
    head = "arrival_us,first_token_us,last_token_us,input_tokens,output_tokens\n"
    path.write_text(head + "9,10,20,5,6\n3,4,8,7,8\n")
    receipts = read_receipts(path)
    assert receipts.arrival_us.tolist() == [3, 9]
    assert receipts.output_tokens.tolist() == [8, 6]
    path.write_text(head + "3,4,8,7,8\n9,8,20,5,6\n")
    with pytest.raises(TraceError) as caught:
        read_receipts(path)
    assert (caught.value.line, caught.value.column) == (3, "2 (first_token_us)")


def test_vllm_metrics_are_tied_to_the_engine_clock_by_their_first_request(tmp_path):
    path = tmp_path / "requests.jsonl"
    lines = [
        {"arrival_time": 1000.0, "queued_ts": 50.0, "first_token_ts": 50.5, "last_token_ts": 52.0},
        {"arrival_time": 1000.25, "queued_ts": 50.4, "first_token_ts": 51.0, "last_token_ts": 53.0},
    ]
    path.write_text(
        "".join(json.dumps({**line, "input_toks": 3, "output_toks": 4}) + "\n" for line in lines)
    )
    receipts = read_receipts(path)
    assert receipts.arrival_us.tolist() == [50_000_000, 50_250_000]
    assert latencies(receipts).ttft.tolist() == [500_000, 750_000]
    assert latencies(receipts).tpot.tolist() == [500_000, 2_000_000 / 3]


def test_reach_is_the_largest_batch_that_overlapping_requests_made():
    reach = reach_of(
        np.array([0.0, 10.0]),
        np.array([20.0, 30.0]),
        np.array([100, 50]),
        np.array([10, 10]),
        max_batched_tokens=64,
    )
    # At 10 the first has grown by half of its output.
    assert (reach.max_decodes, reach.max_decode_context_sum) == (2, 155)
    assert reach.max_prefill_tokens == 64


def test_a_forecast_beyond_what_was_observed_is_flagged_by_dimension():
    seen = ObservedRange(max_prefill_tokens=10, max_decodes=5, max_decode_context_sum=100)
    assert beyond(seen, seen) == ()
    assert beyond(seen, replace(seen, max_decodes=6)) == (
        "extrapolation: 6 decodes in an iteration, 5 observed",
    )
    assert len(beyond(seen, replace(seen, max_decodes=6, max_decode_context_sum=101))) == 2
    assert "nothing" in beyond(None, seen)[0]


RUNS = {
    "RTX4090_Llama-3.1-8B": "llama-3.1-8b-rtx4090",
    "RTXPRO6000_Llama-3.1-8B": "llama-3.1-8b-rtxpro6000",
}
LIMITS = {
    "interleaved": (0.02, 0.05),
    "interleaved, other half": (0.02, 0.05),
    "first half to last half": (0.03, 0.10),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("run", RUNS)
def test_half_of_a_public_run_predicts_the_other_half(run, split):
    receipts = read_receipts(shared_data_path("serving", "runs", run, "requests.jsonl"))
    config = profile(f"{RUNS[run]}-vllm0.19").replica
    result = backtest(receipts, config, profile(RUNS[run]).time, split)
    mean_limit, p99_limit = LIMITS[split]
    assert len(result.held_out) == 3
    for error in result.held_out:
        assert abs(error.mean_error) < mean_limit, error
        assert abs(error.p99_error) < p99_limit, error


@pytest.mark.parametrize("run", RUNS)
def test_the_shipped_calibrations_meet_the_runs_that_they_were_fitted_to(run):
    receipts = read_receipts(shared_data_path("serving", "runs", run, "requests.jsonl"))
    shipped = profile(f"{RUNS[run]}-vllm0.19")
    told = forecast(receipts, shipped.replica, shipped.time, shipped.overhead_us)
    for error in compare(latencies(receipts), told, np.arange(len(receipts))):
        assert abs(error.mean_error) < 0.01, error
        assert abs(error.p99_error) < 0.01, error
