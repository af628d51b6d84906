"""REL-5, REL-6: how rarely a rollout without a difference is stopped, how often a worse one is."""

from pathlib import Path

import numpy as np

from benchmarks.power import EFFECTS as MEASURED_EFFECTS
from benchmarks.power import stopped, stopped_share
from ledger.power_table import EFFECTS, POWER

WINDOW = (2_000, 1_000)


def test_of_1000_rollouts_without_a_difference_at_most_one_of_a_hundred_is_stopped():
    """At alpha .01, six windows each, a hundredth of the requests of both arms bad."""
    random = np.random.default_rng(11)
    false_alarms = sum(stopped(random, sigma=0.3, size=WINDOW, effect=1.0) for _ in range(1_000))
    assert false_alarms <= 10


def test_at_least_half_of_the_rollouts_with_two_of_a_hundred_thrice_as_slow_are_stopped():
    """Log-normal TTFT of sigma 0.3, windows of 2,000 and 1,000 requests, within six windows."""
    assert stopped_share(0.3, WINDOW, 3.0, times=200) >= 0.5


def test_the_documents_say_what_was_measured():
    text = (Path(__file__).parents[2] / "docs" / "control.md").read_text()
    assert tuple(f"{effect:g}" for effect in MEASURED_EFFECTS) == EFFECTS
    for row in POWER:
        cells = " | ".join(f"{percent} %" for percent in row.stopped_percent)
        assert f"| {row.sigma} | {row.baseline:,}, {row.canary:,} | {cells} |" in text
