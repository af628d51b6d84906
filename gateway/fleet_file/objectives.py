"""Objectives as a fleet file has them: a declared body without what follows from others. Pure.

    [objectives.interactive-ttft]
    title = "Interactive requests get their first token within 1 s"
    indicator = "ttft"
    target_ppm = 990_000
    threshold_us = 1_000_000
    period_us = 2_592_000_000_000
    selector = { priorities = ["interactive"] }
    action = { kind = "limit_prefill", automatic = true }

Without `rules` an objective gets the default ones (SLO-5).
"""

import msgspec

from ledger.slo import Action, Indicator, Selector, Severity, SloDefinition
from ledger.slo_rules import default_rules
from ledger.slo_text import to_json


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A burn rule; its factor is a fraction as text: `72/5` is 14.4."""

    name: str
    severity: Severity
    factor: str
    long_us: int
    short_us: int


class Objective(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is declared of an objective. `rules` None: the default ones."""

    title: str
    indicator: Indicator
    target_ppm: int
    threshold_us: int | None = None
    threshold_pico: int | None = None
    selector: Selector = Selector()
    period_us: int
    degraded_is_valid: bool = False
    rules: tuple[Rule, ...] | None = None
    left_out: tuple[str, ...] = ()
    action: Action
    retired: bool = False


def objective_of(definition: SloDefinition) -> Objective:
    """The objective that a definition declares."""
    found = msgspec.json.decode(to_json(definition), type=Objective)
    return found if found.rules is not None else msgspec.structs.replace(found, rules=())


def complete(objective: Objective) -> Objective:
    """The objective with its default rules written out, and those that were left out."""
    if objective.rules is not None or not 0 < objective.target_ppm < 1_000_000:
        return objective
    rules, left_out = default_rules(objective.target_ppm, objective.period_us)
    written = tuple(
        Rule(
            name=rule.name,
            severity=rule.severity,
            factor=str(rule.factor),
            long_us=rule.long_us,
            short_us=rule.short_us,
        )
        for rule in rules
    )
    return msgspec.structs.replace(objective, rules=written, left_out=left_out)


def body_json(objective: Objective) -> str:
    """The body that `declare_slo` takes."""
    return msgspec.json.encode(complete(objective)).decode()
