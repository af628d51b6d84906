"""Packed sums: all series of one closed bucket in one row, added up by numpy. Pure.

A matrix has a row for each series: its id, then `tables.MEASURES`. Packed it is a width byte and
the rows in little-endian unsigned 32 bits, or 64 where a value needs them, by ascending series,
limbs carried over, and series of which nothing is left taken out: equal sums are equal bytes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ledger.money import LIMB
from ledger.rollups.tables import COUNTS, MEASURES

Matrix = npt.NDArray[np.int64]

COLUMNS = 1 + len(MEASURES)
DENSE_SERIES_LIMIT = 4_096  # above, sorting is cheaper than a sum for every series
_LOW_BITS = LIMB.bit_length() - 1
_FIRST_LOW = len(COUNTS) + 1
_DTYPES: dict[bytes, np.dtype[Any]] = {b"4": np.dtype("<u4"), b"8": np.dtype("<u8")}


def matrix(rows: Sequence[Sequence[int]]) -> Matrix:
    """The rows (series, then measures) as a matrix."""
    return np.array(rows, dtype=np.int64).reshape(-1, COLUMNS)


def add_up(keys: npt.NDArray[np.int64], values: Matrix) -> tuple[npt.NDArray[np.int64], Matrix]:
    """The distinct keys ascending, and for each the sum of its rows."""
    if not len(keys):
        return keys, values
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.add.reduceat(values[order], starts, axis=0)


def add_buckets(
    buckets: Sequence[Matrix], taken: Sequence[Matrix] = ()
) -> tuple[npt.NDArray[np.int64], Matrix]:
    """As `add_up` of the rows of buckets, each of which names a series at most once.

    Those of `taken` are taken away again; a series of which nothing is left then isn't there.
    """
    width = max((int(one[-1, 0]) + 1 for one in (*buckets, *taken) if len(one)), default=0)
    if width > DENSE_SERIES_LIMIT:
        rows = np.concatenate((*buckets, *taken))
        rows[sum(map(len, buckets)) :, 1:] *= -1
        found = add_up(rows[:, 0], rows[:, 1:])
        return _left(*found) if taken else found
    sums = np.zeros((width, COLUMNS - 1), dtype=np.int64)
    seen = np.zeros(width, dtype=bool)
    for one in buckets:
        places = _places(one)
        sums[places] += one[:, 1:]
        seen[places] = True
    for one in taken:
        sums[_places(one)] -= one[:, 1:]
    series = np.flatnonzero(seen)
    return _left(series, sums[series]) if taken else (series, sums[series])


def _places(bucket: Matrix) -> slice | npt.NDArray[np.int64]:
    """Where a bucket's series stand: a slice, which is added at once, where none between is out."""
    series: npt.NDArray[np.int64] = bucket[:, 0]
    if not len(series) or series[-1] - series[0] + 1 != len(series):
        return series
    return slice(int(series[0]), int(series[-1]) + 1)


def _left(series: npt.NDArray[np.int64], sums: Matrix) -> tuple[npt.NDArray[np.int64], Matrix]:
    """The series of which anything is left, limbs carried over."""
    carried(sums)
    kept = np.flatnonzero(sums.any(axis=1))
    return series[kept], sums[kept]


def pack(rows: Matrix) -> bytes:
    """The canonical bytes of a bucket's rows; those of one series are added up.

    ValueError where a sum is negative: more was taken away than there was.
    """
    series, sums = add_up(rows[:, 0], rows[:, 1:])
    carried(sums)
    kept = sums.any(axis=1)
    whole = np.column_stack((series[kept], sums[kept]))
    if whole.size and whole.min() < 0:
        raise ValueError("a rollup can't hold less than nothing; run: manage.py rebuild_rollups")
    width = b"4" if not whole.size or whole.max() < 2**32 else b"8"
    return width + whole.astype(_DTYPES[width]).tobytes()


def carried(sums: Matrix) -> None:
    """Carries low limbs that outgrew 32 bits over into their high limbs, in place."""
    low = sums[:, _FIRST_LOW::2]
    sums[:, _FIRST_LOW - 1 :: 2] += low >> _LOW_BITS
    low &= LIMB - 1


def unpack(packed: Iterable[bytes]) -> Matrix:
    """The rows of packed buckets, one bucket after the other. ValueError for other bytes."""
    parts = []
    for one in packed:
        dtype = _DTYPES.get(one[:1])
        if dtype is None or (len(one) - 1) % (COLUMNS * dtype.itemsize):
            raise ValueError(f"{len(one)} bytes are no packed sums; run: rebuild_rollups")
        parts.append(np.frombuffer(one, dtype, offset=1))
    if not parts:
        return np.zeros((0, COLUMNS), dtype=np.int64)
    return np.concatenate(parts, dtype=np.int64, casting="unsafe").reshape(-1, COLUMNS)
