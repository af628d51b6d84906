"""The form that declares an objective, or the next revision of one (SLO-3..5)."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, get_args

from django import forms

from gateway.policy.values import PRIORITIES
from ledger.slo import (
    ACTION_WORDS,
    DAY_US,
    LATENCY_INDICATORS,
    PPM,
    Action,
    Indicator,
    Selector,
    SloDefinition,
)
from ledger.slo_rules import default_rules

INDICATOR_WORDS: Final[dict[Indicator, str]] = {
    "ttft": "time to first token",
    "queue": "time in the queue",
    "itl": "time between tokens, mean of a request",
    "e2e": "end to end",
    "valid_completion": "valid completions",
    "capacity": "not turned away for want of capacity",
    "main_path": "answered on the main path",
    "cancel_ack": "cancel acknowledged",
    "cost": "cost of a request that gave a valid result",
}
DEGRADED_WORDS: Final = (("", "both"), ("no", "the main path alone"), ("yes", "degraded alone"))
PICO_PER_UNIT: Final = 1_000_000_000_000
_LISTS: Final = ("tenants", "logical_models", "identities", "routes", "user_paths", "arms")
NAMES_LIMIT: Final = 20
NAME_CHARS: Final = 128


class SloForm(forms.Form):
    """What an objective promises, for whom, and what is done where it doesn't hold."""

    slo_id = forms.RegexField(
        regex=r"\A[a-z0-9][a-z0-9-]{0,62}\Z",
        label="Name",
        help_text="Of an objective in force: its next revision. Small letters, digits and dashes.",
    )
    title = forms.CharField(max_length=120, label="What is promised, as a sentence")
    indicator = forms.ChoiceField(choices=tuple(INDICATOR_WORDS.items()), label="What is measured")
    target = forms.DecimalField(
        min_value=Decimal("0.0001"),
        max_value=Decimal("99.9999"),
        max_digits=6,
        decimal_places=4,
        initial=99,
        label="Good, of those that count, in %",
    )
    threshold_ms = forms.DecimalField(
        required=False,
        min_value=Decimal("0.001"),
        max_digits=12,
        decimal_places=3,
        label="Good is at or under, in ms",
        help_text="Of latencies alone.",
    )
    threshold_units = forms.DecimalField(
        required=False,
        min_value=Decimal("0.000000000001"),
        max_digits=24,
        decimal_places=12,
        label="Good is at or under, in units",
        help_text="Of cost alone.",
    )
    period_days = forms.IntegerField(
        min_value=1, max_value=90, initial=30, label="The budget's period, in days"
    )
    priorities = forms.MultipleChoiceField(
        required=False,
        choices=tuple((name, name) for name in PRIORITIES),
        widget=forms.CheckboxSelectMultiple,
        label="Priorities",
        help_text="None: all of them.",
    )
    tenants = forms.CharField(required=False, label="Tenants", help_text="By commas; empty: all.")
    logical_models = forms.CharField(required=False, label="Models")
    identities = forms.CharField(required=False, label="Model identities")
    routes = forms.CharField(required=False, label="Routes")
    user_paths = forms.CharField(required=False, label="User paths")
    arms = forms.CharField(required=False, label="Arms of a release")
    degraded = forms.ChoiceField(required=False, choices=DEGRADED_WORDS, label="Degraded answers")
    degraded_is_valid = forms.BooleanField(
        required=False, label="A degraded answer counts as a valid one"
    )
    action = forms.ChoiceField(choices=tuple(ACTION_WORDS.items()), label="What is done about it")
    action_target = forms.CharField(
        required=False,
        max_length=NAME_CHARS,
        label="Done to",
        help_text="A priority, route, tenant or model; empty: the worst, or all.",
    )
    automatic = forms.BooleanField(required=False, label="Done by itself, without asking a person")
    reason = forms.CharField(max_length=500, label="Reason")

    def clean(self) -> dict[str, Any]:
        """Each list within its limit; a threshold where the indicator needs one."""
        cleaned: dict[str, Any] = super().clean() or {}
        for name in _LISTS:
            cleaned[name] = names = _names(cleaned.get(name) or "")
            if len(names) > NAMES_LIMIT or any(len(one) > NAME_CHARS for one in names):
                self.add_error(name, f"At most {NAMES_LIMIT} of {NAME_CHARS} characters each.")
        indicator = cleaned.get("indicator")
        if indicator in LATENCY_INDICATORS and not cleaned.get("threshold_ms"):
            self.add_error("threshold_ms", "A latency needs one.")
        if indicator == "cost" and not cleaned.get("threshold_units"):
            self.add_error("threshold_units", "The cost needs one.")
        return cleaned


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def objective_of(given: Mapping[str, Any], before: SloDefinition | None) -> SloDefinition:
    """The definition that a valid form describes, exact to the digit; its revision is not set.

    Rules are the default ones of its target and period; those of `before`, and its token buckets,
    stay where target and period do: a form can't say them, OpenSLO can.
    """
    target_ppm = int(given["target"] * PPM / 100)
    period_us = given["period_days"] * DAY_US
    rules, left_out = default_rules(target_ppm, period_us)
    if before is not None and (before.target_ppm, before.period_us) == (target_ppm, period_us):
        rules, left_out = before.rules, before.left_out
    indicator = next(name for name in get_args(Indicator) if name == given["indicator"])
    latency = indicator in LATENCY_INDICATORS
    selector = replace(
        Selector() if before is None else before.selector,
        priorities=tuple(given["priorities"]),
        degraded={"yes": True, "no": False}.get(given["degraded"]),
        **{name: given[name] for name in _LISTS},
    )
    return SloDefinition(
        slo_id=given["slo_id"],
        revision=0,
        title=given["title"],
        indicator=indicator,
        target_ppm=target_ppm,
        threshold_us=int(given["threshold_ms"] * 1_000) if latency else None,
        threshold_pico=int(given["threshold_units"] * PICO_PER_UNIT)
        if indicator == "cost"
        else None,
        selector=selector,
        period_us=period_us,
        degraded_is_valid=given["degraded_is_valid"],
        rules=rules,
        left_out=left_out,
        action=Action(
            kind=next(kind for kind in ACTION_WORDS if kind == given["action"]),
            target=given["action_target"],
            automatic=given["automatic"],
        ),
    )


def fields_of(definition: SloDefinition) -> dict[str, object]:
    """An objective as the form's first values: declaring them again changes nothing."""
    chosen = definition.selector
    threshold_us, threshold_pico = definition.threshold_us, definition.threshold_pico
    return {
        "slo_id": definition.slo_id,
        "title": definition.title,
        "indicator": definition.indicator,
        "target": _plain(Decimal(definition.target_ppm * 100) / PPM),
        "threshold_ms": None if threshold_us is None else _plain(Decimal(threshold_us) / 1_000),
        "threshold_units": None
        if threshold_pico is None
        else _plain(Decimal(threshold_pico) / PICO_PER_UNIT),
        "period_days": definition.period_us // DAY_US,
        "priorities": chosen.priorities,
        "degraded": {None: "", True: "yes", False: "no"}[chosen.degraded],
        "degraded_is_valid": definition.degraded_is_valid,
        "action": definition.action.kind,
        "action_target": definition.action.target,
        "automatic": definition.action.automatic,
        **{name: ", ".join(getattr(chosen, name)) for name in _LISTS},
    }


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
