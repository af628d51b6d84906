"""Whether what a server took while it was soaked stayed within its bounds. Pure."""

from tests.soak.real import Soaked
from tests.soak.watch import Sample, slope_kib

TEN_MINUTES_S = 600.0
JUDGED_FROM_S = 300.0  # a shorter watch says nothing of memory: its rooms are still being filled
SLOPE_LIMIT_KIB = 1_024  # in ten minutes
DESCRIPTORS_MORE = 8  # at rest, against the least under load: readers of a few threads
IDLE_MORE = 64  # connections that clients keep for 15 s, where it rests for less
LOG_LIMIT_BYTES = 64 << 20  # twice what the busy writer lets it grow to
NOT_BEGUN_SHARE = 0.02


def problems(soaked: Soaked) -> list[str]:
    """What is out of bounds; of memory's slope only where it was watched for minutes."""
    watched, at_rest = soaked.samples[:-1], soaked.samples[-1]
    found = []
    slope = slope_kib(watched, TEN_MINUTES_S)
    if slope >= SLOPE_LIMIT_KIB and _minutes(watched):
        found.append(f"memory grows by {slope:,.0f} KiB in ten minutes")
    least = min(each.descriptors for each in watched)
    if at_rest.descriptors > least + (DESCRIPTORS_MORE if _minutes(watched) else IDLE_MORE):
        found.append(f"{at_rest.descriptors} descriptors at rest; {least} under load at least")
    log_bytes = max(each.log_bytes for each in soaked.samples)
    if log_bytes > LOG_LIMIT_BYTES:
        found.append(f"the write-ahead log grew to {log_bytes:,} bytes")
    if soaked.not_begun > NOT_BEGUN_SHARE * soaked.exchanges:
        found.append(f"{soaked.not_begun:,} exchanges were due and could not begin")
    return found


def said(soaked: Soaked) -> list[str]:
    """The soak in lines for a person."""
    watched, at_rest = soaked.samples[:-1], soaked.samples[-1]
    sizes = [each.resident_kib for each in watched]
    files = [each.descriptors for each in watched]
    statuses = ", ".join(f"{status}: {n:,}" for status, n in sorted(soaked.statuses.items()))
    return [
        f"seed {soaked.seed}: capacity {soaked.capacity_rps:.0f} requests/s here, soaked at "
        f"{soaked.rate_rps:.0f}/s for {watched[-1].at_s - watched[0].at_s:.0f} s",
        f"{soaked.requests:,} requests, {soaked.receipts:,} receipts told and found, "
        f"{soaked.broken_off:,} broken off by faults, {soaked.not_begun:,} not begun; {statuses}",
        f"memory {sizes[0]:,} KiB first, {sizes[-1]:,} last, {min(sizes):,} to {max(sizes):,}; "
        + (
            f"slope {slope_kib(watched, TEN_MINUTES_S):+,.0f} KiB in ten minutes"
            if _minutes(watched)
            else "too short to judge"
        ),
        "memory in ten parts: "
        + ", ".join(f"{each.resident_kib:,}" for each in watched[:: max(1, len(watched) // 10)]),
        f"descriptors {min(files)} to {max(files)}, {at_rest.descriptors} at rest",
        f"write-ahead log {max(each.log_bytes for each in soaked.samples) >> 20} MiB at most",
        f"{soaked.unknowns} open unknowns hold all the money that is held; no slot, no KV",
        f"{soaked.rows:,} rows, chain valid",
    ]


def _minutes(watched: list[Sample]) -> bool:
    """Whether it was watched long enough to say how memory grows."""
    return watched[-1].at_s - watched[0].at_s >= JUDGED_FROM_S
