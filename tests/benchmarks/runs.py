"""Results of runs that never were: whatever a test leaves out is plain."""

from dataclasses import replace

from benchmarks.peers.comparing import FULL
from benchmarks.peers.values import OURS, SIMULATED, UPSTREAM, Cell, Gateway, Machine, Results

STRAIGHT = Cell(
    requests_per_s=20_000.0, p50_ms=0.1, p99_ms=0.5, first_p50_ms=0.2, first_p99_ms=0.6,
    cpu_us=20.0, upstream_cpu_us=20.0, load_cpu_us=20.0, rss_mb=24.0, whole=1_000, failed=0,
    others_share=0.0,
)  # fmt: skip
LOADS = {load.name: load for load in FULL}


def cell(**fields) -> Cell:
    return replace(STRAIGHT, **fields)


def gateway(key: str, cells=None, **fields) -> Gateway:
    """A gateway whose every load has one round of the same cell, unless it is told otherwise."""
    given = {name: (cell(),) for name in LOADS} if cells is None else cells
    plain = Gateway(
        key=key, cells=given, title=key.title(), version="1.0", note="", start_s=1.0, rss_mb=200.0
    )
    return replace(plain, **fields)


def results(*gateways: Gateway, **fields) -> Results:
    """Straight at the upstream, and these."""
    plain = Results(
        at="2026-01-02T03:04:05+00:00", seconds=60.0, rounds=1, loads=FULL, books=(),
        gateways=(gateway(UPSTREAM), *gateways), rss_before_mb=100.0, start_before_s=1.0,
        machine=Machine(
            cores=2, cpu="a processor", memory_gb=24.0, python="3.11.7", kernel="6.1",
            load_before=0.1, load_after=2.0, nice=0, loop_ns=(40.0, 80.0), sync_ms=0.3,
        ),
    )  # fmt: skip
    return replace(plain, **fields)


def good_run() -> Results:
    """Ours meets every target beside a slow LiteLLM."""
    ours = gateway(
        OURS,
        {
            "one": (cell(p50_ms=0.6, p99_ms=2.5),),
            "many": (cell(requests_per_s=4_000.0, cpu_us=150.0),),
            "burst": (cell(requests_per_s=1_200.0),),
            "paced-32": (cell(first_p50_ms=0.7, first_p99_ms=3.6),),
            "paced-128": (cell(first_p50_ms=5.2),),
        },
    )
    simulated = gateway(SIMULATED, {"many": (cell(requests_per_s=6_000.0),)})
    litellm = gateway(
        "litellm",
        {
            "one": (cell(p50_ms=10.1, p99_ms=20.5),),
            "many": (cell(requests_per_s=100.0, cpu_us=8_000.0),),
        },
    )
    return results(ours, simulated, litellm)
