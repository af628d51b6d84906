"""Evidence that may be looked at any time: e-values of a canary's bad requests (REL-6). Pure.

A canary's requests are drawn by a hash, whatever becomes of them. So if it is no worse than the
baseline, each bad request is the canary's with at most its planned share. A bet on more than that
is a supermartingale: that its value ever reaches 1/alpha has a chance of at most alpha, however
often one looks (Ville). Between two windows only this may stop a rollout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

EVIDENCE_ALPHA = Fraction(1, 1000)
ODDS = (2, 4, 8)  # how many times as often bad: the value is the mean of a bet on each


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCounts:
    """Bad requests of both arms while the canary's planned share was `share`."""

    share: Fraction
    baseline_bad: int
    canary_bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The e-value so far (1: none), in its logarithm; `stops` where it reached 1/alpha."""

    log_e: float
    stops: bool

    @property
    def e_value(self) -> float:
        return math.exp(min(self.log_e, 700.0))  # the largest that a float holds


def evidence(steps: Sequence[BadCounts], alpha: Fraction = EVIDENCE_ALPHA) -> Evidence:
    """The evidence that the canary's requests are bad more often than the baseline's.

    Each step of the rollout has a share of its own; the bets of all steps multiply. ValueError for
    a share outside (0, 1) or a count that is none.
    """
    bets = []
    for odds in ODDS:
        log_bet = 0.0
        for step in steps:
            if not 0 < step.share < 1 or min(step.baseline_bad, step.canary_bad) < 0:
                raise ValueError(
                    f"no evidence from {step.canary_bad} and {step.baseline_bad} at {step.share}"
                )
            share = float(step.share)
            worse = share * odds / (1 - share + share * odds)
            log_bet += step.canary_bad * math.log(worse / share)
            log_bet += step.baseline_bad * math.log((1 - worse) / (1 - share))
        bets.append(log_bet)
    highest = max(bets)
    log_e = highest + math.log(sum(math.exp(bet - highest) for bet in bets) / len(bets))
    return Evidence(log_e=log_e, stops=log_e >= math.log(1 / float(alpha)))
