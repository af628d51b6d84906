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

from ledger.slo import SloDefinition
from ledger.slo_rules import default_rules
from ledger.slo_text import Declared, Rule, texts, to_json


class Objective(Declared, frozen=True, kw_only=True, omit_defaults=True):
    """What is declared of an objective. `rules` None: the default ones."""

    rules: tuple[Rule, ...] | None = None


def objective_of(definition: SloDefinition) -> Objective:
    """The objective that a definition declares."""
    found = msgspec.json.decode(to_json(definition), type=Objective)
    return found if found.rules is not None else msgspec.structs.replace(found, rules=())


def complete(objective: Objective) -> Objective:
    """The objective with its default rules written out, and those that were left out."""
    if objective.rules is not None or not 0 < objective.target_ppm < 1_000_000:
        return objective
    rules, left_out = default_rules(objective.target_ppm, objective.period_us)
    return msgspec.structs.replace(objective, rules=texts(rules), left_out=left_out)


def body_json(objective: Objective) -> str:
    """The body that `declare_slo` takes."""
    return msgspec.json.encode(complete(objective)).decode()
