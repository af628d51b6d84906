"""Seeded workloads: same seed, same bytes, and the statistics they claim."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.client_fits import draw_from_clients, read_client_fits, unit_gamma
from simulator.trace_files import read_trace
from simulator.traces import Record, TraceError, build_trace
from simulator.workload import (
    AZURE_CONV_INPUT_TOKENS,
    AZURE_CONV_OUTPUT_TOKENS,
    AZURE_CONV_QUANTILES,
    AZURE_CONV_REQUESTS_PER_MINUTE,
    generate_conversation_hour,
    overlay,
    scaled,
    taken,
    uniforms,
)
from tests.shared_data import shared_data_path


def digest(trace) -> str:
    columns = (trace.arrival_us, trace.input_tokens, trace.output_tokens, trace.tenant)
    return hashlib.sha256(b"".join(c.astype("<i8").tobytes() for c in columns)).hexdigest()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    first = generate_conversation_hour(7)
    assert digest(first) == digest(generate_conversation_hour(7))
    assert digest(first) != digest(generate_conversation_hour(8))


def test_uniforms_are_pinned_to_the_generator_not_to_a_numpy_version():
    assert (uniforms(1, 2, 3) * 2**53).astype(np.int64).tolist() == [
        4038964544837015,
        3881039917090675,
        3783015845253219,
    ]


def test_a_generated_hour_has_the_published_rate_gaps_and_lengths():
    trace = generate_conversation_hour(1)
    gaps_s = np.diff(trace.arrival_us) / 1e6
    assert len(trace) == 19_366
    assert trace.arrival_us[-1] / 1e6 == pytest.approx(3501.7, rel=0.01)
    assert 1.0 < gaps_s.std() / gaps_s.mean() < 1.15
    for column, quantiles in (
        (trace.input_tokens, AZURE_CONV_INPUT_TOKENS),
        (trace.output_tokens, AZURE_CONV_OUTPUT_TOKENS),
    ):
        for q in (0.10, 0.25, 0.50, 0.75, 0.90):
            stated = quantiles[AZURE_CONV_QUANTILES.index(q)]
            # In rank, not in value: the source's distribution has cliffs.
            assert (column <= stated).mean() == pytest.approx(q, abs=0.015)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**63), st.integers(1, 500))
def test_any_seed_and_size_gives_a_valid_trace(seed, requests):
    trace = generate_conversation_hour(seed, requests)
    assert len(trace) == requests
    assert trace.arrival_us[0] == 0
    assert (np.diff(trace.arrival_us) >= 0).all()
    assert trace.input_tokens.min() >= 2
    assert trace.output_tokens.min() >= 7


@pytest.mark.parametrize("requests", [0, -1, 10_000_001])
def test_a_size_outside_the_limits_is_refused(requests):
    with pytest.raises(ValueError, match="requests must be between"):
        generate_conversation_hour(1, requests)


def test_the_stated_statistics_are_those_of_the_shared_trace():
    trace = read_trace(shared_data_path("traces", "azure2023_conv.csv.gz"))
    minutes = np.bincount(trace.arrival_us // 60_000_000)
    assert minutes.tolist() == list(AZURE_CONV_REQUESTS_PER_MINUTE)
    for column, stated in (
        (trace.input_tokens, AZURE_CONV_INPUT_TOKENS),
        (trace.output_tokens, AZURE_CONV_OUTPUT_TOKENS),
    ):
        measured = np.quantile(column, AZURE_CONV_QUANTILES, method="nearest")
        assert measured.tolist() == list(stated)


def test_scaling_the_rate_divides_arrivals_and_nothing_else():
    trace = overlay(generate_conversation_hour(3, 200), 5, cancel_share=0.5, deadline_us=1_000)
    faster = scaled(trace, 2.0)
    assert (np.abs(faster.arrival_us * 2 - trace.arrival_us) <= 1).all()
    assert ((faster.cancel_us == -1) == (trace.cancel_us == -1)).all()
    assert (faster.input_tokens == trace.input_tokens).all()
    assert "rate x 2" in faster.source
    with pytest.raises(ValueError, match="factor"):
        scaled(trace, 0.0)


@pytest.mark.parametrize("rate", [0.5, 1.0, 10.0])
def test_a_deadline_and_a_cancel_keep_their_distance_from_arrival_at_any_rate(rate):
    """SIM-1: an eight-second deadline stays one of eight seconds."""
    trace = build_trace(
        "two",
        [
            Record(arrival_us=0, input_tokens=5, output_tokens=5),
            Record(
                arrival_us=1_000_000,
                input_tokens=5,
                output_tokens=5,
                cancel_us=4_000_000,
                deadline_us=9_000_000,
            ),
        ],
    )
    found = scaled(trace, rate)
    assert (found.deadline_us - found.arrival_us).tolist()[1] == 8_000_000
    assert (found.cancel_us - found.arrival_us).tolist()[1] == 3_000_000
    assert (found.deadline_us[0], found.cancel_us[0]) == (-1, -1)


def test_an_overlay_says_that_it_is_one_and_cancels_only_after_arrival():
    plain = generate_conversation_hour(3, 4_000)
    trace = overlay(plain, 5, urgent_share=0.25, cancel_share=0.1, deadline_us=9)
    assert "overlaid, seed 5" in trace.source
    assert (trace.priority == -1).mean() == pytest.approx(0.25, abs=0.03)
    cancelled = trace.cancel_us != -1
    assert cancelled.mean() == pytest.approx(0.1, abs=0.02)
    assert (trace.cancel_us[cancelled] >= trace.arrival_us[cancelled]).all()
    assert (trace.deadline_us == trace.arrival_us + 9).all()
    with pytest.raises(ValueError, match="shares"):
        overlay(plain, 5, urgent_share=1.5)


def test_taken_rows_keep_their_clock():
    trace = generate_conversation_hour(3, 10)
    part = taken(trace, np.arange(1, 10, 2))
    assert part.arrival_us.tolist() == trace.arrival_us.tolist()[1::2]


@pytest.mark.parametrize("shape", [0.05, 0.7, 1.0, 4.0])
def test_gamma_gaps_have_mean_and_variance_equal_to_their_shape(shape):
    draws = unit_gamma(shape, seed=11, stream=0, n=60_000)
    assert draws.mean() == pytest.approx(shape, rel=0.05)
    assert draws.var() == pytest.approx(shape, rel=0.15)


WINDOWS = (
    "client,window_s,rate_rps,iat_cv,pattern,shape,scale\n"
    "a,0,1.0,1,Gamma,1.0,1.0\nb,600,2.0,1,Weibull,1.3,1.0\n"
)
QUANTILE_HEAD = "client,window_s,field,mean,q01,q05,q10,q25,q50,q75,q90,q95,q99,q100\n"
LENGTHS = QUANTILE_HEAD + "".join(
    f"{client},0,{field},5,1,2,3,4,5,6,7,8,9,10\n"
    for client in "ab"
    for field in ("input_tokens", "output_tokens")
)


def fits_from(tmp_path, windows=WINDOWS, lengths=LENGTHS):
    (tmp_path / "w.csv").write_text(windows)
    (tmp_path / "l.csv").write_text(lengths)
    return read_client_fits(tmp_path / "w.csv", tmp_path / "l.csv")


def test_a_draw_from_clients_keeps_each_clients_windows_rate_and_lengths(tmp_path):
    trace = draw_from_clients(fits_from(tmp_path), 3, start_s=0, duration_s=1200)
    at_s = trace.arrival_us / 1e6
    by_a, by_b = (trace.tenant == trace.tenant_names.index(name) for name in "ab")
    assert 500 < by_a.sum() < 700
    assert 1100 < by_b.sum() < 1300
    assert at_s[by_a].max() < 600 <= at_s[by_b].min() + 2
    assert 1 <= trace.input_tokens.min() <= trace.input_tokens.max() <= 10
    assert digest(trace) == digest(
        draw_from_clients(fits_from(tmp_path), 3, start_s=0, duration_s=1200)
    )


def test_a_span_in_which_nobody_sends_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no client"):
        draw_from_clients(fits_from(tmp_path), 3, start_s=5000, duration_s=60)


@pytest.mark.parametrize(
    ("windows", "lengths", "line", "column"),
    [
        (WINDOWS.replace("Weibull", "Pareto"), LENGTHS, 3, "5 (pattern)"),
        (WINDOWS.replace(",2.0,", ",fast,"), LENGTHS, 3, "3 (rate_rps)"),
        (WINDOWS, LENGTHS.replace(",9,10", ",9,8", 1), 2, "14 (q100)"),
        (WINDOWS, QUANTILE_HEAD + "a,0,input_tokens,5,1\n", 2, "6"),
    ],
)
def test_bad_fits_are_refused_with_line_and_column(tmp_path, windows, lengths, line, column):
    with pytest.raises(TraceError) as caught:
        fits_from(tmp_path, windows, lengths)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize("name", ["r1", "mm"])
def test_half_an_hour_drawn_from_the_shared_fits_has_their_rate(name):
    fits = read_client_fits(
        shared_data_path("traces", f"{name}_day_windows.csv.gz"),
        shared_data_path("traces", f"{name}_day_lengths.csv.gz"),
    )
    trace = draw_from_clients(fits, 1, start_s=36_000, duration_s=1_800)
    expected = sum(g.rate_rps * 600 for g in fits.gaps if 36_000 <= g.window_s < 37_800)
    assert len(trace) == pytest.approx(expected, rel=0.08)
    assert len(set(trace.tenant.tolist())) >= 15
