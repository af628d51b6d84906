"""Rounds of cells into one summary each: quantiles, medians, ratios. Pure."""

import statistics
from collections.abc import Iterable, Sequence

from benchmarks.peers.values import Cell, Summary, Taken
from ledger.quantiles import nearest_rank

MS = 1e6  # ns in one


def quantile_ms(times_ns: Sequence[int], percent: int) -> float | None:
    """Return the nearest-rank percentile in ms; None of no times."""
    return nearest_rank(sorted(times_ns), percent, 100) / MS if times_ns else None


def cell(
    taken: Taken,
    *,
    cpu_s: float,
    upstream_cpu_s: float,
    load_cpu_s: float,
    rss_mb: float,
    others_share: float,
) -> Cell:
    """Return one load's outcome with what it cost; CPU is for each whole answer."""

    def each_us(seconds: float) -> float | None:
        return seconds * 1e6 / taken.whole if taken.whole else None

    return Cell(
        requests_per_s=taken.whole_in_time / taken.seconds,
        p50_ms=quantile_ms(taken.latencies_ns, 50),
        p99_ms=quantile_ms(taken.latencies_ns, 99),
        first_p50_ms=quantile_ms(taken.first_ns, 50),
        first_p99_ms=quantile_ms(taken.first_ns, 99),
        cpu_us=each_us(cpu_s),
        upstream_cpu_us=each_us(upstream_cpu_s),
        load_cpu_us=each_us(load_cpu_s),
        rss_mb=rss_mb,
        whole=taken.whole,
        failed=taken.failed,
        others_share=others_share,
    )


def summary(cells: Sequence[Cell | None], straight: Sequence[Cell | None]) -> Summary | None:
    """Return the median of a gateway's rounds beside straight at the upstream's.

    Both have a place for each round, None where that round was not measured. What a gateway adds
    is taken within a round, where both met the same machine, and the median is of these
    differences. None where no round answered anything.
    """
    pairs = [
        (mine, theirs)
        for mine, theirs in zip(cells, straight, strict=True)
        if mine is not None and mine.whole
    ]
    if not pairs:
        return None
    mine = [each for each, _ in pairs]

    def added(name: str) -> float | None:
        return median(
            here - there
            for one, other in pairs
            if other is not None
            and (here := getattr(one, name)) is not None
            and (there := getattr(other, name)) is not None
        )

    rates = [each.requests_per_s for each in mine]
    return Summary(
        requests_per_s=statistics.median(rates),
        spread=(min(rates), max(rates)),
        p50_ms=median(each.p50_ms for each in mine),
        p99_ms=median(each.p99_ms for each in mine),
        added_p50_ms=added("p50_ms"),
        added_p99_ms=added("p99_ms"),
        added_first_p50_ms=added("first_p50_ms"),
        added_first_p99_ms=added("first_p99_ms"),
        cpu_us=median(each.cpu_us for each in mine),
        rss_mb=max((each.rss_mb for each in mine if each.rss_mb is not None), default=None),
        whole=sum(each.whole for each in mine),
        failed=sum(each.failed for each in mine),
        rounds=len(mine),
        others_share=statistics.median(each.others_share for each in mine),
    )


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of what there is; None of nothing."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Return ours / theirs; None where either is missing or no positive number."""
    if ours is None or theirs is None or ours <= 0 or theirs <= 0:
        return None
    return ours / theirs
