"""A request's cost beside a full ledger: ratios of a round, and a limit that is kept or not."""

from dataclasses import replace

from benchmarks.peers.comparing import FULL
from benchmarks.peers.growing import LOADS, Growth, compared, told
from benchmarks.peers.values import Books
from tests.benchmarks import runs


def growth(*found, **fields) -> Growth:
    books = Books(
        key="full", sent=9, receipts=9, completed=8, bytes_each=1, verified="r", problem=""
    )
    plain = Growth(
        at="2026-01-02T03:04:05+00:00", receipts=1_000, file_gb=1.26, rounds=1, start_s=(1.0, 1.5),
        rss_mb=(200.0, 210.0), books=(books,), machine=runs.results().machine, compared=found,
    )  # fmt: skip
    return replace(plain, **fields)


def test_the_ratio_is_taken_within_a_round_and_then_the_median():
    """The second round met a slow machine: both were ten times slower, and the ratio was not."""
    empty = [runs.cell(cpu_us=us) for us in (100.0, 1_000.0, 100.0)]
    full = [runs.cell(cpu_us=us) for us in (110.0, 1_100.0, 150.0)]
    found = compared(LOADS[0], "CPU µs", "cpu_us", empty, full)
    assert (found.empty, found.full, found.times) == (100.0, 150.0, 1.1)


def test_a_figure_that_no_round_has_is_told_as_none():
    found = compared(LOADS[0], "p50 ms", "p50_ms", [runs.cell(p50_ms=None)], [runs.cell()])
    assert (found.empty, found.times) == (None, None)
    assert "| 1 connection | p50 ms | – | 0.10 | – | – |" in told(growth(found))


def test_each_figure_is_held_to_the_limit():
    within = compared(LOADS[1], "CPU µs", "cpu_us", [runs.cell()], [runs.cell(cpu_us=24.0)])
    over = compared(LOADS[1], "CPU µs", "cpu_us", [runs.cell()], [runs.cell(cpu_us=24.1)])
    page = told(growth(within, over))
    assert "| 32 connections | CPU µs | 20.00 | 24.00 | 1.20 × | met |" in page
    assert "| 32 connections | CPU µs | 20.00 | 24.10 | 1.21 × | **missed** |" in page


def test_books_that_are_not_sound_are_told():
    books = Books(key="full", sent=9, receipts=8, completed=8, bytes_each=1, verified="",
                  problem="1 is lost")  # fmt: skip
    assert "The books afterwards: full: 1 is lost." in told(growth(books=(books,)))
    assert "full: 9 receipts, sound." in told(growth())


def test_the_loads_are_those_of_the_comparison_by_name():
    assert {load.name for load in LOADS} <= {load.name for load in FULL}
