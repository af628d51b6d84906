"""The short form of the soak: everything but memory's slope, for which it takes minutes."""

import asyncio

from tests.soak.judging import problems, said
from tests.soak.real import ENDING, Soaked, for_exchanges, soak
from tests.soak.virtual import hour
from tests.soak.watch import Sample, slope_kib

SEED = 20261130


def test_virtual_traffic_with_faults_lose_nothing_and_hold_nothing(ledger_path):
    """LED-1, LED-6, LED-7: each arrival has one receipt, sums tie out, the chain is valid."""
    found = hour(ledger_path, SEED, arrivals_limit=400)
    assert found.arrivals == 400
    assert {"completed", "failed", "rejected", "cancelled"} >= set(found.statuses)
    assert found.statuses["failed"] > 0


def test_real_traffic_with_faults_loses_nothing_and_stays_within_bounds(ledger_template, tmp_path):
    soaked = asyncio.run(
        soak(
            ledger_template, tmp_path, seed=SEED, capacity=for_exchanges(60),
            warm_up=for_exchanges(30), watched=for_exchanges(90), plans=ENDING, sample_s=0.05,
        )
    )  # fmt: skip
    assert soaked.receipts > 60
    assert problems(soaked) == []


def test_memory_is_judged_once_it_was_watched_for_minutes():
    def soaked(seconds):
        samples = [
            Sample(
                at_s=at, resident_kib=100_000 + int(10 * at), descriptors=9, log_bytes=0, requests=0
            )
            for at in (0.0, seconds / 2, seconds, seconds + 1)
        ]
        return Soaked(seed=1, exchanges=9, samples=samples)

    assert problems(soaked(20.0)) == []
    assert "too short to judge" in "\n".join(said(soaked(20.0)))
    assert problems(soaked(600.0)) == ["memory grows by 6,000 KiB in ten minutes"]


def test_memory_that_grows_is_told_from_memory_that_varies():
    def samples(sizes):
        return [
            Sample(at_s=float(at), resident_kib=size, descriptors=9, log_bytes=0, requests=0)
            for at, size in enumerate(sizes)
        ]

    assert slope_kib(samples([100, 102, 104, 106]), 600.0) == 1_200.0
    assert slope_kib(samples([100, 104, 100, 104, 100]), 600.0) == 0.0
