"""The time model is exact integer arithmetic, and its closed forms equal step by step."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.scheduler import ReplicaConfig
from simulator.timing import (
    PS_PER_S,
    TimeModel,
    attention_pairs,
    roofline,
    steps_until,
    steps_within,
    stretch_ps,
)
from tests.simulator.scheduling_cases import time_models


def test_the_batch_term_is_linear_between_breakpoints_and_keeps_its_last_slope():
    model = TimeModel(name="x", breakpoints=((1, 100), (10, 1000), (20, 1505)))
    assert [model.batch_ps(n) for n in (1, 2, 10, 11, 20, 21, 30)] == [
        100, 200, 1000, 1050, 1505, 1555, 2010,
    ]  # fmt: skip
    assert model.batch_table(3) == [0, 100, 200, 300]


def test_an_iteration_adds_its_terms_and_the_mixed_term_only_beside_prefill():
    model = TimeModel(
        name="x",
        breakpoints=((0, 10),),
        per_decode_ps=2,
        per_context_token_ps=3,
        per_attention_pair_ps=5,
        mixed_ps=7,
    )
    assert model.iteration_ps(0, 4, 100, 0) == 10 + 8 + 300
    assert model.iteration_ps(6, 4, 100, 15) == 10 + 8 + 300 + 75 + 7


@given(st.integers(1, 200), st.integers(0, 200))
def test_attention_pairs_count_what_each_token_of_a_chunk_looks_back_at(chunk: int, prefix: int):
    assert attention_pairs(chunk, prefix) == sum(prefix + i for i in range(chunk))


@given(time_models(), st.integers(1, 30), st.integers(0, 10**6), st.integers(0, 300))
def test_skipped_decode_steps_equal_single_ones_bit_for_bit(
    model: TimeModel, decodes: int, context: int, steps: int
):
    a, b = model.iteration_ps(0, decodes, context, 0), model.per_context_token_ps * decodes
    single = sum(
        model.iteration_ps(0, decodes, context + decodes * step, 0) for step in range(steps)
    )
    assert stretch_ps(steps, a, b) == single


@given(st.integers(1, 10**18), st.integers(1, 10**12), st.integers(0, 10**9))
def test_the_first_boundary_at_or_after_a_moment_is_exact(span: int, a: int, b: int):
    steps = steps_until(span, a, b)
    assert stretch_ps(steps, a, b) >= span
    assert steps == 1 or stretch_ps(steps - 1, a, b) < span
    within = steps_within(span, a, b)
    assert stretch_ps(within, a, b) <= span < stretch_ps(within + 1, a, b)


@given(time_models())
def test_the_batch_term_never_falls(model: TimeModel):
    table = model.batch_table(200)
    assert all(before <= after for before, after in pairwise(table))


@pytest.mark.parametrize(
    "breakpoints", [(), ((2, 5),), ((0, 5), (0, 6)), ((0, 5), (4, 3)), ((0, 0),)]
)
def test_a_batch_term_that_falls_or_takes_no_time_is_refused(breakpoints):
    with pytest.raises(ValueError):
        TimeModel(name="bad", breakpoints=breakpoints)


def test_negative_coefficients_are_refused():
    with pytest.raises(ValueError, match="negative"):
        TimeModel(name="bad", breakpoints=((0, 1),), per_decode_ps=-1)


def test_the_roofline_is_flat_up_to_its_knee_then_bound_by_compute_and_says_uncalibrated():
    model = roofline(
        name="8B on 1 TB/s and 165 TFLOP/s",
        weight_bytes=16 * 10**9,
        parameters=8 * 10**9,
        kv_bytes_per_token=131_072,
        attention_flops_per_pair=4 * 32 * 4096,
        bandwidth_bytes_per_s=10**12,
        flops_per_s=165 * 10**12,
    )
    assert not model.calibrated
    assert model.batch_ps(1) == model.batch_ps(165) == 16 * PS_PER_S // 1000
    assert model.batch_ps(3300) == pytest.approx(2 * 8e9 * 3300 / 165e12 * PS_PER_S, rel=1e-6)
    assert model.per_context_token_ps == 131_072


@given(time_models(), st.integers(0, 90))
def test_a_table_of_times_holds_what_each_number_of_tokens_takes(model: TimeModel, longest: int):
    told = [model.batch_ps(tokens) for tokens in range(1, longest + 1)]
    assert model.batch_table(longest) == [0, *told]


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ({"max_num_batched_tokens": 2**20 + 1}, "max_num_batched_tokens 1,048,577 is above"),
        ({"max_num_batched_tokens": 2**20, "max_num_seqs": 2**16 + 1}, "max_num_seqs 65,537 is"),
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
        ({"kv_blocks": 2**27 + 1}, "kv_blocks 134,217,729 is above the limit, 134,217,728"),
    ],
)
def test_sizes_of_no_engine_are_refused_before_a_table_is_made_of_them(size, reason):
    with pytest.raises(ValueError, match=reason):
        ReplicaConfig(**{"kv_blocks": 100, **size})
