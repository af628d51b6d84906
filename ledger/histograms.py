"""Packed latency histograms: integer log-spaced buckets, exact counts, bounded quantiles.

Pure. A value below 64 µs has a bucket of its own; above, each doubling is cut into 32 buckets, so
that a bucket is at most 1/32 of its lower bound wide. A quantile is therefore known to lie in one
bucket, and its midpoint is off by at most 1/64 (1.5625 %) of the true value. Counts are exact.

The packed form is a run of little-endian pairs (bucket u16, count u16). A count above 65,535 takes
several pairs, and buckets may repeat: joining the bytes of histograms is merging them. `pack`
writes the canonical form (ascending, full pairs first), so that equal histograms are equal bytes.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SUB_BUCKETS = 32  # per doubling
EXACT_BELOW_US = 2 * SUB_BUCKETS
MAX_VALUE_US = 2**42 - 1  # 50 days; longer durations count as this one
BUCKETS = SUB_BUCKETS * (42 - 6) + EXACT_BELOW_US
ERROR_DENOMINATOR = 64  # a midpoint is within 1/64 of the true value
PAIR_COUNT_MAX = 2**16 - 1
_PAIR = struct.Struct("<2H")

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileBound:
    """Where a nearest-rank quantile lies: `low_us` <= exact value <= `high_us`.

    `estimate_us` is the midpoint, within 1/64 of the exact value.
    """

    low_us: int
    high_us: int
    estimate_us: int


def bucket_of(value_us: int) -> int:
    """The bucket of a duration in µs; below 0 is a fault (ValueError), above the maximum clamps."""
    if value_us < EXACT_BELOW_US:
        if value_us < 0:
            raise ValueError(f"a duration can't be negative: {value_us} µs")
        return value_us
    if value_us > MAX_VALUE_US:
        return BUCKETS - 1
    shift = value_us.bit_length() - 6
    return SUB_BUCKETS * shift + (value_us >> shift)


def buckets_of(values_us: Iterable[int | None]) -> list[int]:
    """`bucket_of` each duration that there is; None stands for one that isn't."""
    # Written out for the usual value: the call would take longer than the sum.
    return [
        SUB_BUCKETS * (shift := value_us.bit_length() - 6) + (value_us >> shift)
        if EXACT_BELOW_US <= value_us <= MAX_VALUE_US
        else bucket_of(value_us)
        for value_us in values_us
        if value_us is not None
    ]


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The lowest and the highest duration in µs that a bucket holds, both inclusive."""
    if not 0 <= bucket < BUCKETS:
        raise ValueError(f"bucket {bucket} is outside 0..{BUCKETS - 1}")
    if bucket < EXACT_BELOW_US:
        return bucket, bucket
    shift = bucket // SUB_BUCKETS - 1
    low = (bucket - SUB_BUCKETS * shift) << shift
    return low, low + (1 << shift) - 1


def pack(counts: Mapping[int, int]) -> bytes:
    """The canonical bytes of bucket -> count; buckets with a count of 0 leave no trace."""
    if len(counts) == 1:
        ((bucket, count),) = counts.items()
        if 0 <= bucket < BUCKETS and 0 < count <= PAIR_COUNT_MAX:
            return _PAIR.pack(bucket, count)
    pairs: list[int] = []
    for bucket in sorted(counts):
        count = counts[bucket]
        if count < 0 or not 0 <= bucket < BUCKETS:
            raise ValueError(f"bucket {bucket} can't hold {count}")
        while count > PAIR_COUNT_MAX:
            pairs += (bucket, PAIR_COUNT_MAX)
            count -= PAIR_COUNT_MAX
        if count:
            pairs += (bucket, count)
    return struct.pack(f"<{len(pairs)}H", *pairs)


def unpack(packed: Iterable[bytes]) -> Counts:
    """The merged counts of packed histograms: int64[BUCKETS]. ValueError where bytes are none."""
    joined = b"".join(packed)
    if len(joined) % 4:
        raise ValueError(f"{len(joined)} bytes are no packed histogram: pairs take 4 bytes")
    pairs = np.frombuffer(joined, dtype="<u2").reshape(-1, 2)
    if not len(pairs):
        return np.zeros(BUCKETS, dtype=np.int64)
    counts = np.bincount(pairs[:, 0], weights=pairs[:, 1], minlength=BUCKETS)
    if len(counts) > BUCKETS:
        raise ValueError(f"a packed histogram names bucket {len(counts) - 1} of {BUCKETS}")
    return counts.astype(np.int64)  # float64 sums are exact below 2^53 durations


def pack_counts(counts: Counts) -> bytes:
    """The canonical bytes of int64[BUCKETS]; ValueError where a count is negative."""
    filled = np.flatnonzero(counts)
    values = counts[filled]
    if len(values) and (values.min() < 0 or values.max() > PAIR_COUNT_MAX):
        return pack(dict(zip(filled.tolist(), values.tolist(), strict=True)))
    pairs = np.empty((len(filled), 2), dtype="<u2")
    pairs[:, 0] = filled
    pairs[:, 1] = values
    return pairs.tobytes()


def of_values(values_us: npt.NDArray[np.int64]) -> Counts:
    """The counts of an array of durations in µs: int64[BUCKETS], as by `bucket_of` of each."""
    if len(values_us) and values_us.min() < 0:
        raise ValueError(f"a duration can't be negative: {values_us.min()} µs")
    capped = np.minimum(values_us, MAX_VALUE_US)
    # frexp's exponent is the bit length: exact, as these values are whole in float64.
    shift = np.maximum(np.frexp(capped.astype(np.float64))[1].astype(np.int64) - 6, 0)
    buckets = SUB_BUCKETS * shift + (capped >> shift)
    return np.bincount(buckets, minlength=BUCKETS).astype(np.int64)


def quantile(counts: Counts, numerator: int, denominator: int) -> QuantileBound | None:
    """Where the nearest-rank quantile numerator/denominator lies; None where nothing is counted."""
    if not 0 < numerator <= denominator:
        raise ValueError(f"a quantile lies in (0, 1], not at {numerator}/{denominator}")
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if total == 0:
        return None
    rank = -(-numerator * total // denominator)
    low, high = bucket_bounds(int(np.searchsorted(cumulative, rank)))
    return QuantileBound(low_us=low, high_us=high, estimate_us=(low + high) // 2)
