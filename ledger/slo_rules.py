"""Which objectives may be declared, and the burn rules that one gets by default (SLO-5). Pure."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ledger.slo import (
    DAY_US,
    HOUR_US,
    LATENCY_INDICATORS,
    MINUTE_US,
    PPM,
    BurnRule,
    Selector,
    Severity,
    SloDefinition,
)

RULES_LIMIT = 8
PERIOD_LIMIT_US = 366 * DAY_US
THRESHOLD_LIMIT_US = 30 * DAY_US
PICO_LIMIT = TOKENS_LIMIT = 2**62  # what a column of the ledger holds, with room to add
TITLE_LIMIT_CHARS = 200
NAMES_LIMIT = 200
NAME_LIMIT_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a definition is refused: a stable code, and a sentence for whoever declared it."""

    code: Literal[
        "TARGET_IMPOSSIBLE",
        "THRESHOLD_MISSING",
        "PERIOD_INVALID",
        "WINDOWS_INVALID",
        "RULE_NEVER_FIRES",
        "RULE_INSIDE_BUDGET",
        "TOO_MANY_RULES",
        "THRESHOLD_INVALID",
        "TITLE_INVALID",
        "SELECTOR_INVALID",
    ]
    detail: str


def problems(definition: SloDefinition) -> tuple[Problem, ...]:
    """Every reason to refuse the definition (SLO-5); empty where it may be declared."""
    found: list[Problem] = []
    if not 0 < definition.target_ppm < PPM:
        detail = f"a target of {definition.target_ppm} ppm leaves no budget; choose 1..999999"
        return (Problem(code="TARGET_IMPOSSIBLE", detail=detail),)
    needs_threshold = definition.indicator in LATENCY_INDICATORS
    if needs_threshold and (definition.threshold_us is None or definition.threshold_us <= 0):
        detail = f"{definition.indicator} needs a threshold_us above 0"
        found.append(Problem(code="THRESHOLD_MISSING", detail=detail))
    if definition.indicator == "cost" and (definition.threshold_pico or 0) <= 0:
        detail = "cost needs a threshold_pico above 0"
        found.append(Problem(code="THRESHOLD_MISSING", detail=detail))
    if (definition.threshold_us or 0) > THRESHOLD_LIMIT_US:
        detail = f"threshold_us is at most {THRESHOLD_LIMIT_US}, which is 30 days"
        found.append(Problem(code="THRESHOLD_INVALID", detail=detail))
    if (definition.threshold_pico or 0) > PICO_LIMIT:
        detail = f"threshold_pico is at most {PICO_LIMIT}"
        found.append(Problem(code="THRESHOLD_INVALID", detail=detail))
    if not 0 < definition.period_us <= PERIOD_LIMIT_US or definition.period_us % MINUTE_US:
        detail = f"period_us is whole minutes above 0, at most {PERIOD_LIMIT_US}, which is 366 days"
        found.append(Problem(code="PERIOD_INVALID", detail=detail))
    if not 0 < len(definition.title.strip()) <= TITLE_LIMIT_CHARS:
        detail = f"title has 1 to {TITLE_LIMIT_CHARS} characters"
        found.append(Problem(code="TITLE_INVALID", detail=detail))
    found += _selector_problems(definition.selector)
    if len(definition.rules) > RULES_LIMIT:
        detail = f"{len(definition.rules)} rules; at most {RULES_LIMIT}"
        found.append(Problem(code="TOO_MANY_RULES", detail=detail))
    for rule in definition.rules:
        reason = rule_problem(rule, definition.budget, definition.period_us)
        if reason is not None:
            found.append(reason)
    return tuple(found)


def _selector_problems(selector: Selector) -> list[Problem]:
    found = []
    for bucket in (selector.input_tokens, selector.output_tokens):
        if bucket is not None and not 0 <= bucket[0] < bucket[1] <= TOKENS_LIMIT:
            detail = f"a bucket of tokens is [from, to) with 0 <= from < to <= {TOKENS_LIMIT}"
            found.append(Problem(code="SELECTOR_INVALID", detail=detail))
    for name in ("tenants", "logical_models", "identities", "routes", "user_paths", "arms"):
        values = getattr(selector, name)
        if len(values) > NAMES_LIMIT or any(len(one) > NAME_LIMIT_CHARS for one in values):
            detail = f"{name}: at most {NAMES_LIMIT} names of {NAME_LIMIT_CHARS} characters"
            found.append(Problem(code="SELECTOR_INVALID", detail=detail))
    return found


def rule_problem(rule: BurnRule, budget: Fraction, period_us: int) -> Problem | None:
    """Why the rule can't hold for this budget and period; None where it can."""
    if not 0 < rule.short_us < rule.long_us <= period_us:
        detail = f"{rule.name}: needs 0 < short window < long window <= period"
        return Problem(code="WINDOWS_INVALID", detail=detail)
    if rule.short_us % MINUTE_US or rule.long_us % MINUTE_US:
        detail = f"{rule.name}: windows are whole minutes"
        return Problem(code="WINDOWS_INVALID", detail=detail)
    if rule.factor * budget >= 1:
        detail = (
            f"{rule.name}: factor {float(rule.factor):g} x budget {float(budget):g} >= 1, "
            "so not even all bad would alert"
        )
        return Problem(code="RULE_NEVER_FIRES", detail=detail)
    if rule.factor <= 1:
        detail = f"{rule.name}: factor {float(rule.factor):g} <= 1 would alert inside the budget"
        return Problem(code="RULE_INSIDE_BUDGET", detail=detail)
    return None


# name, severity, share of the budget that the long window may use up, long and short window
_DEFAULT_RULES: tuple[tuple[str, Severity, Fraction, int, int], ...] = (
    ("fast", "page", Fraction(2, 100), HOUR_US, 5 * MINUTE_US),
    ("slow", "page", Fraction(5, 100), 6 * HOUR_US, 30 * MINUTE_US),
    ("ticket", "ticket", Fraction(10, 100), DAY_US, 2 * HOUR_US),
)


def default_rules(
    target_ppm: int, period_us: int = 30 * DAY_US
) -> tuple[tuple[BurnRule, ...], tuple[str, ...]]:
    """The default rules that hold for a target and period, and why each other was left out.

    For 30 days: 14.4 over 1 h and 5 min, 6 over 6 h and 30 min, 3 over 1 d and 2 h. A factor is
    the budget's share x period / long window, so it scales with the period (SLO-5).
    """
    budget = Fraction(PPM - target_ppm, PPM)
    kept: list[BurnRule] = []
    left_out: list[str] = []
    for name, severity, share, long_us, short_us in _DEFAULT_RULES:
        rule = BurnRule(
            name=name,
            severity=severity,
            factor=share * Fraction(period_us, long_us),
            long_us=long_us,
            short_us=short_us,
        )
        problem = rule_problem(rule, budget, period_us)
        if problem is None:
            kept.append(rule)
        else:
            left_out.append(f"{problem.code}: {problem.detail}")
    return tuple(kept), tuple(left_out)
