"""Packed histograms held against exact order statistics."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import histograms
from ledger.quantiles import nearest_rank

durations_us = st.integers(0, histograms.MAX_VALUE_US)
samples_us = st.lists(durations_us, min_size=1, max_size=200)
quantiles = st.sampled_from([(1, 2), (95, 100), (99, 100), (999, 1000), (1, 1)])


def counts_of(values_us):
    return histograms.of_values(np.array(values_us, dtype=np.int64))


def test_the_buckets_tile_all_durations_without_gap_or_overlap():
    expected_low = 0
    for bucket in range(histograms.BUCKETS):
        low, high = histograms.bucket_bounds(bucket)
        assert low == expected_low
        expected_low = high + 1
    assert expected_low == histograms.MAX_VALUE_US + 1


@given(durations_us)
def test_a_duration_lies_in_its_bucket_and_the_midpoint_is_within_a_64th(value_us):
    low, high = histograms.bucket_bounds(histograms.bucket_of(value_us))
    assert low <= value_us <= high
    if value_us:
        midpoint = (low + high) // 2
        assert Fraction(abs(midpoint - value_us), value_us) <= Fraction(1, 64)


@given(samples_us)
def test_the_array_form_counts_as_bucket_of_does(values_us):
    one_by_one = [0] * histograms.BUCKETS
    for value_us in values_us:
        one_by_one[histograms.bucket_of(value_us)] += 1
    assert counts_of(values_us).tolist() == one_by_one


@given(samples_us, quantiles)
def test_a_quantile_lies_in_the_bucket_that_is_named(values_us, quantile):
    exact_us = nearest_rank(sorted(values_us), *quantile)
    bound = histograms.quantile(counts_of(values_us), *quantile)
    assert bound.low_us <= exact_us <= bound.high_us
    assert bound.low_us <= bound.estimate_us <= bound.high_us
    assert abs(bound.estimate_us - exact_us) * histograms.ERROR_DENOMINATOR <= max(exact_us, 64)


@given(st.lists(samples_us, min_size=1, max_size=5))
def test_merging_is_joining_bytes_and_equals_counting_all_values(parts):
    packed = [histograms.pack_counts(counts_of(part)) for part in parts]
    merged = histograms.unpack([b"".join(packed)])
    whole = counts_of([value_us for part in parts for value_us in part])
    assert merged.tolist() == whole.tolist()
    assert histograms.pack_counts(merged) == histograms.pack_counts(whole)


@given(st.dictionaries(st.integers(0, histograms.BUCKETS - 1), st.integers(0, 300_000), max_size=9))
def test_packing_keeps_counts_that_outgrow_a_pair(counts):
    packed = histograms.pack(counts)
    unpacked = histograms.unpack([packed])
    assert {b: int(unpacked[b]) for b in np.flatnonzero(unpacked)} == {
        bucket: count for bucket, count in counts.items() if count
    }
    assert histograms.pack_counts(unpacked) == packed


def test_nothing_counted_packs_to_no_bytes_and_has_no_quantile():
    assert histograms.pack({}) == b""
    assert histograms.quantile(histograms.unpack([]), 99, 100) is None


def test_a_duration_beyond_the_maximum_counts_as_the_longest_one():
    assert histograms.bucket_of(2**50) == histograms.BUCKETS - 1
    assert counts_of([2**50])[-1] == 1


def test_a_negative_duration_is_refused_in_both_forms():
    with pytest.raises(ValueError, match="negative"):
        histograms.bucket_of(-1)
    with pytest.raises(ValueError, match="negative"):
        counts_of([5, -1])


def test_bytes_that_are_no_histogram_are_refused():
    with pytest.raises(ValueError, match="4 bytes"):
        histograms.unpack([b"abc"])
    with pytest.raises(ValueError, match="names bucket"):
        histograms.unpack([b"\xff\xff\x01\x00"])


def test_a_quantile_outside_the_half_open_unit_interval_is_refused():
    with pytest.raises(ValueError, match="quantile"):
        histograms.quantile(counts_of([1]), 0, 100)
