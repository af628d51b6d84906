"""Packed sums: the same sums are the same bytes, and nothing is lost in 32 bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.money import join, split
from ledger.rollups import packing
from ledger.rollups.aggregate import measures_of
from ledger.rollups.tables import COSTS, COUNTS, MEASURES

series_rows = st.lists(
    st.tuples(
        st.integers(1, 6),
        st.lists(st.integers(0, 2**40), min_size=len(COUNTS), max_size=len(COUNTS)),
        st.lists(st.integers(0, 2**70), min_size=len(COSTS), max_size=len(COSTS)),
    ),
    max_size=12,
)


def matrix_of(rows):
    return packing.matrix(
        [(series, *measures_of((*counts, *costs))) for series, counts, costs in rows]
    )


def sums_of(matrix):
    """series -> exact sums, with limbs joined."""
    found = {}
    for series, *measures in matrix.tolist():
        limbs = measures[len(COUNTS) :]
        costs = [join(high, low) for high, low in zip(limbs[::2], limbs[1::2], strict=True)]
        found[series] = [*measures[: len(COUNTS)], *costs]
    return found


@given(series_rows)
def test_packed_rows_hold_the_exact_sums_of_each_series(rows):
    expected: dict[int, list[int]] = {}
    for series, counts, costs in rows:
        kept = expected.setdefault(series, [0] * (len(COUNTS) + len(COSTS)))
        expected[series] = [a + b for a, b in zip(kept, [*counts, *costs], strict=True)]
    unpacked = packing.unpack([packing.pack(matrix_of(rows))])
    assert sums_of(unpacked) == {series: sums for series, sums in expected.items() if any(sums)}
    assert unpacked[:, 0].tolist() == sorted(unpacked[:, 0].tolist())


@given(series_rows, st.randoms())
def test_the_same_sums_are_the_same_bytes_in_any_order(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    half = len(rows) // 2
    parts = [packing.pack(matrix_of(part)) for part in (shuffled[:half], shuffled[half:])]
    assert packing.pack(packing.unpack(parts)) == packing.pack(matrix_of(rows))


def test_what_is_taken_away_whole_leaves_no_row():
    row = (3, *measures_of((1,) * len(COUNTS) + (2**40,) * len(COSTS)))
    away = (3, *(-value for value in row[1:]))
    assert packing.pack(packing.matrix([row, away])) == packing.pack(packing.matrix(()))


def test_more_taken_away_than_there_was_is_a_fault():
    with pytest.raises(ValueError, match="rebuild_rollups"):
        packing.pack(packing.matrix([(1, *(-1,) * len(MEASURES))]))


def test_small_values_take_four_bytes_and_large_ones_eight():
    small = (1, *(1,) * len(MEASURES))
    large = (1, 2**32, *(1,) * (len(MEASURES) - 1))
    assert len(packing.pack(packing.matrix([small]))) == 1 + 4 * packing.COLUMNS
    assert len(packing.pack(packing.matrix([large]))) == 1 + 8 * packing.COLUMNS


def test_low_limbs_that_outgrew_32_bits_are_carried():
    high, low = split(2**40 - 1)
    rows = packing.matrix([(1, *(1,) * len(COUNTS), *(high, low) * len(COSTS))] * 3)
    packed = packing.unpack([packing.pack(rows)])
    assert packed[0, -1] < 2**32
    assert join(*packed[0, -2:].tolist()) == 3 * (2**40 - 1)


@pytest.mark.parametrize("packed", [b"", b"4abc", b"x", b"8" + b"\0" * packing.COLUMNS * 4])
def test_bytes_that_are_no_packed_sums_are_refused(packed):
    with pytest.raises(ValueError, match="no packed sums"):
        packing.unpack([packed])


@given(st.lists(series_rows, max_size=5), st.sampled_from([0, packing.DENSE_SERIES_LIMIT]))
def test_buckets_add_up_the_same_whether_dense_or_sorted(buckets, limit):
    unpacked = [packing.unpack([packing.pack(matrix_of(rows))]) for rows in buckets]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "DENSE_SERIES_LIMIT", limit)
        series, sums = packing.add_buckets(unpacked)
    whole = np.concatenate([packing.matrix(()), *unpacked])
    expected_series, expected_sums = packing.add_up(whole[:, 0], whole[:, 1:])
    assert series.tolist() == expected_series.tolist()
    assert sums.tolist() == expected_sums.tolist()


@given(
    st.lists(series_rows, min_size=1, max_size=3),
    st.lists(series_rows, min_size=1, max_size=3),
    st.sampled_from([0, packing.DENSE_SERIES_LIMIT]),
)
def test_what_is_added_and_taken_again_leaves_what_was_there(kept, passing, limit):
    left = [packing.unpack([packing.pack(matrix_of(rows))]) for rows in kept]
    taken = [packing.unpack([packing.pack(matrix_of(rows))]) for rows in passing]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "DENSE_SERIES_LIMIT", limit)
        series, sums = packing.add_buckets([*left, *taken], taken)
    expected = packing.unpack([packing.pack(np.concatenate(left))])
    assert np.column_stack((series, sums)).tolist() == expected.tolist()


def test_adding_up_nothing_gives_nothing():
    keys, values = packing.add_up(np.zeros(0, np.int64), np.zeros((0, 2), np.int64))
    assert len(keys) == len(values) == 0
