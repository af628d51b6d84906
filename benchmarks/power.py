"""What a window of a rollout can see: how often so slow a canary is stopped within six windows.

`python -m benchmarks.power` prints the table of docs/control.md. TTFT is log-normal; 2 % of the
canary's requests are slower by the effect; the test and what follows from it are the product's.
"""

from fractions import Fraction

import numpy as np

from ledger import rollouts
from ledger.peeking import BadCounts, evidence
from ledger.rollouts import Condition, Plan, Window, after_window
from ledger.strata import ratio_over_strata, tail_over_strata

ROLLOUTS = 200
WINDOWS = 6
SLOWER_SHARE = 0.02
SIGMAS = (0.3, 0.6, 1.0)
SIZES = ((1_000, 300), (2_000, 1_000), (8_000, 4_000))
EFFECTS = (1.5, 2.0, 3.0, 5.0)

PLAN = Plan(
    rollout_id="r",
    release_id="r",
    logical_model="m",
    baseline_routes=("a",),
    canary_routes=("b",),
    conditions=(
        Condition(metric="ttft_p99", limit_permille=100),
        Condition(metric="valid_completion", limit_permille=10),
    ),
    passes_per_step=WINDOWS + 1,  # it stays at its share for as long as is looked at
)


def stopped(
    random: np.random.Generator,
    *,
    sigma: float,
    size: tuple[int, int],
    effect: float,
    bad: float = 0.01,
    windows: int = WINDOWS,
) -> bool:
    """Whether one simulated rollout is rolled back within its windows.

    `bad`: the share of requests, of both arms alike, that are no valid completion.
    """
    progress = rollouts.started(0)
    baseline_bad = canary_bad = 0
    for _ in range(windows):
        baseline, canary = (random.lognormal(12.6, sigma, count) for count in size)
        canary[random.random(size[1]) < SLOWER_SHARE] *= effect
        failed = [int(random.binomial(count, bad)) for count in size]
        baseline_bad, canary_bad = baseline_bad + failed[0], canary_bad + failed[1]
        tail = tail_over_strata(
            {"all": tuple(np.sort(side).astype(np.int64).tolist() for side in (baseline, canary))}
        )
        ratio = ratio_over_strata(
            {"all": ((size[0] - failed[0], size[0]), (size[1] - failed[1], size[1]))}
        )
        share = Fraction(size[1], sum(size))
        counted = BadCounts(share=share, baseline_bad=baseline_bad, canary_bad=canary_bad)
        _, end_us = rollouts.window_of(PLAN, progress)
        outcome = after_window(
            PLAN,
            progress,
            Window(
                end_us=end_us,
                verdicts={"ttft_p99": tail.verdict, "valid_completion": ratio.verdict},
                evidence_stops=evidence([counted]).stops,
            ),
        )
        if outcome.decision == "roll_back":
            return True
        progress = outcome.progress
    return False


def stopped_share(
    sigma: float, size: tuple[int, int], effect: float, *, times: int = ROLLOUTS, seed: int = 1
) -> float:
    """The share of simulated rollouts that are rolled back."""
    random = np.random.default_rng(seed)
    return sum(stopped(random, sigma=sigma, size=size, effect=effect) for _ in range(times)) / times


def main() -> None:
    head = " | ".join(f"x {effect:g}" for effect in EFFECTS)
    print(f"| sigma | baseline, canary in a window | {head} |")
    print("| --- | --- |" + " --- |" * len(EFFECTS))
    for sigma in SIGMAS:
        for size in SIZES:
            cells = [f"{stopped_share(sigma, size, effect):.0%}" for effect in EFFECTS]
            sizes = f"{size[0]:,}, {size[1]:,}"
            print(
                f"| {sigma:g} | {sizes} | {' | '.join(cell.replace('%', ' %') for cell in cells)} |"
            )


if __name__ == "__main__":
    main()
