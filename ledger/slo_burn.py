"""Burn rates, error budgets and alerts over counts of good and valid requests (SLO-3, 5, 6, 8).

Pure and exact: counts are integers, rates are `fractions.Fraction`, comparisons are strict.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ledger.slo import BurnRule, SloDefinition

RuleState = Literal["ALERT", "QUIET", "NO_DATA"]
SloState = Literal["OK", "WATCH", "FREEZE", "SHED", "ROLLBACK", "NO_DATA"]
GUARD_ALPHA = Fraction(5, 100)
BINOMIAL_LIMIT = 1_000_000_000_000  # requests in a window: eleven million a second for a day


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many valid requests there were, and how many of them were good."""

    good: int
    valid: int

    @property
    def bad(self) -> int:
        return self.valid - self.good


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowBurn:
    """One window: its counts and its burn rate, None where it had no valid request."""

    length_us: int
    start_us: int
    end_us: int
    tally: Tally
    burn: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStatus:
    """A rule with both of its windows; `guard_passed` says whether automation may act (SLO-6)."""

    rule: BurnRule
    long: WindowBurn
    short: WindowBurn
    state: RuleState
    guard_passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SloStatus:
    """An objective at one moment, as the page and the API show it."""

    definition: SloDefinition
    at_us: int
    period: WindowBurn
    budget_left: Fraction | None  # 1: untouched, 0: used up, negative: overspent; None: NO_DATA
    exhausted_in_us: int | None  # 0: it is; None: not at the present rate, or no data
    rules: tuple[RuleStatus, ...]
    state: SloState


def burn_rate(tally: Tally, budget: Fraction) -> Fraction | None:
    """Share of bad among valid over the budget; 1 uses the budget up just in its period.

    None (NO_DATA) where nothing was valid.
    """
    if tally.valid == 0:
        return None
    return Fraction(tally.bad, tally.valid) / budget


def budget_left(tally: Tally, budget: Fraction) -> Fraction | None:
    """The share of the period's budget that is left: 25 bad of 1,000 at 0.99 leaves -1.5."""
    burn = burn_rate(tally, budget)
    return None if burn is None else 1 - burn


def exhausted_in_us(left: Fraction | None, burn: Fraction | None, period_us: int) -> int | None:
    """Microseconds until the budget is used up at this burn rate, rounded down.

    0 where it is already; None where nothing burns or nothing is known.
    """
    if left is None or burn is None:
        return None
    if left <= 0:
        return 0
    return None if burn == 0 else math.floor(left * period_us / burn)


def rule_state(rule: BurnRule, long: Fraction | None, short: Fraction | None) -> RuleState:
    """ALERT where both windows are strictly above the factor; NO_DATA where either has none."""
    if long is None or short is None:
        return "NO_DATA"
    return "ALERT" if long > rule.factor and short > rule.factor else "QUIET"


def evaluate_rule(
    definition: SloDefinition, rule: BurnRule, long: WindowBurn, short: WindowBurn
) -> RuleStatus:
    """The rule's state over its two windows, and whether the low-traffic guard lets it act."""
    share = rule.factor * definition.budget
    guard = all(
        window.tally.valid > 0
        and binomial_tail(window.tally.bad, window.tally.valid, share) <= GUARD_ALPHA
        for window in (long, short)
    )
    state = rule_state(rule, long.burn, short.burn)
    return RuleStatus(rule=rule, long=long, short=short, state=state, guard_passed=guard)


def state_of(period: WindowBurn, rules: tuple[RuleStatus, ...]) -> SloState:
    """The state that counts alone decide; SHED and ROLLBACK are the controller's (SLO-8).

    FREEZE: a page rule alerts, so rollouts stop (REL-4). WATCH: a ticket rule alerts, or a long
    window is above its factor while its short one no longer is. NO_DATA holds.
    """
    if period.tally.valid == 0:
        return "NO_DATA"
    if any(rule.state == "ALERT" and rule.rule.severity == "page" for rule in rules):
        return "FREEZE"
    if any(
        rule.state == "ALERT" or (rule.long.burn is not None and rule.long.burn > rule.rule.factor)
        for rule in rules
    ):
        return "WATCH"
    return "OK"


def status_of(
    definition: SloDefinition, at_us: int, period: WindowBurn, rules: tuple[RuleStatus, ...]
) -> SloStatus:
    """The whole status. Time to exhaustion takes the burn of the longest window that has data."""
    left = budget_left(period.tally, definition.budget)
    known = [rule.long for rule in rules if rule.long.burn is not None] + [period]
    recent = min(known, key=lambda window: window.length_us)
    return SloStatus(
        definition=definition,
        at_us=at_us,
        period=period,
        budget_left=left,
        exhausted_in_us=exhausted_in_us(left, recent.burn, definition.period_us),
        rules=rules,
        state=state_of(period, rules),
    )


def binomial_tail(bad: int, valid: int, share: Fraction) -> float:
    """P(X >= bad) for X ~ Binomial(valid, share): how likely the share alone explains it (SLO-6).

    Summed from logarithms, the smaller tail; correct to about 1e-10, of ten thousand million
    requests to 1e-4. 0.0144: 2 of 10 gives 0.0086. ValueError for counts that are none or a share
    outside (0, 1).
    """
    if not 0 <= bad <= valid <= BINOMIAL_LIMIT or not 0 < share < 1:
        raise ValueError(f"no binomial of {bad} in {valid} at {share}")
    if bad == 0:
        return 1.0
    p = float(share)
    if bad > valid * p:
        return min(1.0, _binomial_sum(bad, valid, valid, p, step=1))
    return max(0.0, 1.0 - _binomial_sum(bad - 1, 0, valid, p, step=-1))


def _binomial_sum(first: int, last: int, valid: int, p: float, *, step: int) -> float:
    """Terms from `first` towards `last`, away from the mode, until they no longer matter."""
    log_term = (
        math.lgamma(valid + 1)
        - math.lgamma(first + 1)
        - math.lgamma(valid - first + 1)
        + first * math.log(p)
        + (valid - first) * math.log1p(-p)
    )
    term = math.exp(log_term)
    total = term
    odds = p / (1 - p)
    for count in range(first, last, step):
        if step > 0:
            term *= (valid - count) / (count + 1) * odds
        else:
            term *= count / (valid - count + 1) / odds
        total += term
        if term <= total * 1e-17:  # also where the first one is too small for a float
            break
    return total
