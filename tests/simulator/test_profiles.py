"""Fitting iteration records, and the profiles that ship with the simulator."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fitting import IterationRecords, fit_iterations, iteration_errors, nnls, predict_us
from simulator.kernel_tables import layer_records, splitwise_records
from simulator.profile_recipes import RECIPES, refit
from simulator.profiles import PROFILES, HeldOut, UnknownProfile, derived_kv_blocks, profile
from simulator.timing import TimeModel
from simulator.traces import TraceError
from simulator.workload import uniforms
from tests.shared_data import shared_data_path

TRUE = TimeModel(
    name="true",
    breakpoints=((1, 10_000_000_000), (64, 11_000_000_000), (512, 30_000_000_000)),
    per_decode_ps=5_000_000,
    per_context_token_ps=150_000,
    per_attention_pair_ps=3_000,
    mixed_ps=900_000_000,
)


def synthetic_records(n=600, noise=0.0):
    u = uniforms(4, 0, 6 * n).reshape(6, n)
    prefill = np.where(u[0] < 0.5, 0, 1 + np.floor(u[1] * 500)).astype(np.int64)
    decodes = np.where((u[0] > 0.8) & (prefill > 0), 0, 1 + np.floor(u[2] * 100)).astype(np.int64)
    columns = {
        "prefill_tokens": prefill,
        "decodes": decodes,
        "decode_context_sum": decodes * np.floor(u[3] * 2_000).astype(np.int64),
        "attention_pairs": prefill * (prefill - 1) // 2
        + prefill * np.floor(u[4] * 900).astype(int),
    }
    blank = IterationRecords(**columns, duration_us=np.ones(n))
    duration = predict_us(TRUE, blank) * (1 + noise * (2 * u[5] - 1))
    return IterationRecords(**columns, duration_us=duration)


def test_records_made_by_a_model_give_its_coefficients_back():
    fitted = fit_iterations(synthetic_records(), name="true", knots=(1, 64, 512))
    assert fitted.model.per_context_token_ps == pytest.approx(TRUE.per_context_token_ps, rel=1e-4)
    assert fitted.model.per_attention_pair_ps == pytest.approx(3_000, rel=1e-3)
    assert fitted.model.mixed_ps == pytest.approx(TRUE.mixed_ps, rel=1e-3)
    assert {error.kind for error in fitted.errors} == {"decode", "prefill", "mixed"}
    assert max(error.p99_abs for error in fitted.errors) < 1e-5


def test_noise_is_averaged_out_and_reported_as_error():
    fitted = fit_iterations(synthetic_records(noise=0.05), name="noisy", knots=(1, 64, 512))
    assert all(0.015 < error.mean_abs < 0.035 for error in fitted.errors)
    assert all(abs(error.bias) < 0.01 for error in fitted.errors)


def test_the_vectorised_prediction_equals_the_engines_time_model():
    records = synthetic_records(50)
    exact = [
        TRUE.iteration_ps(int(p), int(b), int(s), int(a)) / 1e6
        for p, b, s, a in zip(
            records.prefill_tokens,
            records.decodes,
            records.decode_context_sum,
            records.attention_pairs,
            strict=True,
        )
    ]
    assert predict_us(TRUE, records) == pytest.approx(exact, rel=1e-9)


def test_a_fit_remembers_how_far_it_has_seen():
    records = synthetic_records()
    observed = fit_iterations(records, name="seen").model.observed
    assert observed is not None
    assert observed.max_decodes == records.decodes.max()
    assert observed.max_prefill_tokens == records.prefill_tokens.max()
    assert observed.max_decode_context_sum == records.decode_context_sum.max()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(8, 40))
def test_nnls_meets_the_optimality_conditions(seed, k, n):
    matrix = uniforms(seed, 1, n * k).reshape(n, k) - 0.3
    target = uniforms(seed, 2, n) - 0.3
    x = nnls(matrix, target)
    gradient = matrix.T @ (target - matrix @ x)
    assert (x >= 0).all()
    assert (gradient <= 1e-7).all()
    assert np.abs(gradient[x > 0]).max(initial=0) < 1e-7


def test_nnls_gives_zero_to_a_column_that_is_always_zero():
    matrix = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert nnls(matrix, np.array([2.0, 4.0])).tolist() == pytest.approx([2.0, 0.0])


@pytest.mark.parametrize(
    "change",
    [
        {"duration_us": np.array([0.0])},
        {"duration_us": np.array([1.0, 2.0])},
        {"decodes": np.array([0])},
        {"decodes": np.array([-1])},
    ],
)
def test_records_that_cannot_be_iterations_are_refused(change):
    good = {
        "prefill_tokens": np.array([0]),
        "decodes": np.array([1]),
        "decode_context_sum": np.array([5]),
        "attention_pairs": np.array([0]),
        "duration_us": np.array([9.0]),
    }
    IterationRecords(**good)
    with pytest.raises(ValueError, match="iteration record"):
        IterationRecords(**{**good, **change})


def test_knots_that_do_not_rise_from_one_are_refused():
    with pytest.raises(ValueError, match="knots"):
        fit_iterations(synthetic_records(20), name="x", knots=(1, 64, 64))


def test_at_least_three_real_pairs_ship_with_source_licence_and_fit_error():
    assert len({(p.model, p.accelerator) for p in PROFILES}) >= 3
    for shipped in PROFILES:
        assert shipped.source
        assert shipped.licence == "MIT"
        assert shipped.time.observed is not None
        if not shipped.calibrated:
            by_kind = {error.kind: error for error in shipped.fit}
            assert by_kind["decode"].mean_abs < 0.02
            assert by_kind["prefill"].mean_abs < 0.05
        assert shipped.replica.usable_blocks > 1_000


def test_a_profile_not_calibrated_on_receipts_is_labelled_rankings_only():
    assert "rankings only" in profile("llama-3.1-8b-rtx4090").label


def test_an_unknown_profile_is_refused_with_those_that_exist():
    with pytest.raises(UnknownProfile, match="there are llama"):
        profile("gpt-9")


def test_the_derivation_of_the_kv_pool_meets_the_one_engine_that_told_its_own():
    blocks = derived_kv_blocks(
        memory_bytes=25_250_627_584,
        accelerators=1,
        weight_bytes=2 * 8_030_261_248,
        kv_bytes_per_token=131_072,
    )
    assert blocks == pytest.approx(2_588, rel=0.002)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.key)
def test_refitting_the_shared_measurements_gives_the_shipped_coefficients(recipe):
    shared_data_path("serving", "profiles")
    fitted = refit(recipe, shared_data_path("serving"))
    shipped = profile(recipe.key)
    # Least squares goes through the platform's LAPACK: equal to one part in a million, not bits.
    for name in ("per_decode_ps", "per_context_token_ps", "per_attention_pair_ps", "mixed_ps"):
        assert getattr(fitted.model, name) == pytest.approx(
            getattr(shipped.time, name), rel=1e-6, abs=2
        )
    for refitted, kept in zip(fitted.model.breakpoints, shipped.time.breakpoints, strict=True):
        assert refitted == pytest.approx(kept, rel=1e-6)
    assert fitted.model.observed == shipped.time.observed
    for error, stated in zip(fitted.errors, shipped.fit, strict=True):
        assert (error.kind, error.records) == (stated.kind, stated.records)
        assert error.mean_abs == pytest.approx(stated.mean_abs, abs=6e-5)
        assert error.p99_abs == pytest.approx(stated.p99_abs, abs=6e-5)


def test_one_layers_kernels_compose_into_whole_iterations(tmp_path):
    (tmp_path / "attention.csv").write_text(
        "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,2,100,5\n8,4,0,0,7\n8,99,0,0,7\n"
    )
    (tmp_path / "dense.csv").write_text(
        "layer,tokens,time_us\nqkv_proj,1,10\nqkv_proj,9,18\nlayernorm,1,1\n"
        "embedding,1,3\nfinal_layernorm,1,2\n"
    )
    (tmp_path / "per_sequence.csv").write_text(
        "layer,sequences,time_us\nlm_head,1,40\nlm_head,2,50\n"
    )
    records = layer_records(tmp_path, 3, max_context_tokens=1_000, max_prefix_tokens=10)
    # 3 layers x (attention + qkv + 2 layernorms) + embedding + final layernorm + head.
    assert records.duration_us.tolist() == [3 * (5 + 11 + 2) + 5 + 50, 3 * (7 + 17 + 2) + 5 + 40]
    assert records.decode_context_sum.tolist() == [200, 0]
    assert records.attention_pairs.tolist() == [0, 8 * 4 + 28]


def test_a_bad_kernel_table_is_refused_with_line_and_column(tmp_path):
    (tmp_path / "attention.csv").write_text("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n")
    (tmp_path / "dense.csv").write_text("layer,tokens,time_us\nqkv_proj,one,10\n")
    with pytest.raises(TraceError) as caught:
        layer_records(tmp_path, 3, max_context_tokens=1_000, max_prefix_tokens=10)
    assert (caught.value.source, caught.value.line) == ("dense.csv", 2)
    assert caught.value.column == "2 (tokens)"


def test_a_static_batch_is_one_prefill_and_its_mean_decode(tmp_path):
    path = tmp_path / "perf.csv"
    path.write_text(
        "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
        "m,h,10,2,6,3.0,1.5,4\nm,other,1,1,1,1,1,4\n"
    )
    records = splitwise_records(path, model="m", hardware="h", tensor_parallel=4)
    assert records.prefill_tokens.tolist() == [20, 0]
    assert records.attention_pairs.tolist() == [90, 0]
    assert records.decode_context_sum.tolist() == [0, 26]
    assert records.duration_us.tolist() == [3000, 1500]
    with pytest.raises(ValueError, match="no row for m on h x 8"):
        splitwise_records(path, model="m", hardware="h", tensor_parallel=8)


def test_a_models_error_on_records_is_told_by_kind():
    errors = iteration_errors(TRUE.scaled(2), synthetic_records(100))
    assert [error.kind for error in errors] == ["decode", "prefill", "mixed"]
    assert all(error.bias == pytest.approx(1.0, abs=1e-6) for error in errors)


def held_out(mean_error, p99_error, metric="ttft"):
    return HeldOut(split="halves", metric=metric, mean_error=mean_error, p99_error=p99_error)


def test_a_calibration_that_misses_its_own_receipts_supports_rankings_only():
    """SIM-1: beyond 10 % in a mean or 25 % at a p99, or unknown."""
    own = replace(
        profile("llama-3.1-8b-rtxpro6000-vllm0.19"), own=True, held_out=(held_out(0.1, -0.25),)
    )
    assert own.caveat == ""
    assert "TTFT +10.0% / -25.0%" in own.backtest_note
    worse = replace(own, held_out=(held_out(0.11, 0.0), held_out(0.37, 1.5), held_out(0, 0, "e2e")))
    missed = "this calibration misses its own receipts by TTFT +37.0% / +150.0%: rankings only"
    assert worse.caveat == missed
    assert missed in worse.label
    assert "rankings only" in replace(own, held_out=(held_out(0.0, -0.26),)).caveat
    assert "rankings only" in replace(own, held_out=(held_out(float("nan"), 0.0),)).caveat


def test_a_calibration_without_a_backtest_says_so():
    bare = replace(profile("llama-3.1-8b-rtxpro6000-vllm0.19"), held_out=())
    assert bare.backtest_note == "the calibration has no backtest: its error is unknown"
    assert profile("llama-3.1-8b-rtxpro6000").backtest_note == ""


def test_the_held_out_errors_of_the_shipped_calibrations_are_those_of_the_documentation():
    text = (Path(__file__).resolve().parents[2] / "docs" / "simulator.md").read_text()
    told, run, split = {}, "", ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 9 and cells[2] in {"TTFT", "TPOT", "E2E"}:
            run, split = cells[0] or run, cells[1] or split
            told[run.split(" (")[0], split.replace("last", "last half"), cells[2].lower()] = (
                float(cells[3]),
                float(cells[7]),
            )
    shipped = {
        (each.accelerator, error.split, error.metric): (
            round(100 * error.mean_error, 1),
            round(100 * error.p99_error, 1),
        )
        for each in PROFILES
        for error in each.held_out
    }
    assert len(shipped) == 12
    assert shipped == told
