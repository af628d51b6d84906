"""What six windows of a rollout can see: the table of docs/control.md, for the page's `?`. Pure.

Measured by `python -m benchmarks.power`: log-normal TTFT, 2 % of the canary requests slower by the
effect, 200 simulated rollouts a cell; a test holds the documents to these rows.
"""

from dataclasses import dataclass

EFFECTS = ("1.5", "2", "3", "5")  # how many times as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """One row: percent of rollouts that are stopped within six windows, for each of EFFECTS."""

    sigma: str  # of the logarithm of TTFT
    baseline: int  # requests in a window
    canary: int
    stopped_percent: tuple[int, ...]


POWER: tuple[Power, ...] = (
    Power(sigma="0.3", baseline=1_000, canary=300, stopped_percent=(0, 0, 4, 14)),
    Power(sigma="0.3", baseline=2_000, canary=1_000, stopped_percent=(0, 0, 62, 90)),
    Power(sigma="0.3", baseline=8_000, canary=4_000, stopped_percent=(0, 2, 100, 100)),
    Power(sigma="0.6", baseline=1_000, canary=300, stopped_percent=(0, 0, 0, 3)),
    Power(sigma="0.6", baseline=2_000, canary=1_000, stopped_percent=(0, 0, 0, 24)),
    Power(sigma="0.6", baseline=8_000, canary=4_000, stopped_percent=(0, 0, 1, 100)),
    Power(sigma="1", baseline=1_000, canary=300, stopped_percent=(0, 0, 0, 0)),
    Power(sigma="1", baseline=2_000, canary=1_000, stopped_percent=(0, 0, 0, 0)),
    Power(sigma="1", baseline=8_000, canary=4_000, stopped_percent=(0, 0, 0, 2)),
)
