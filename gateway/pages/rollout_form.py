"""The form of a rollout's plan: its conditions are declared before the first request (REL-3)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from django import forms

from gateway.pages.rollout_view import METRIC_WORDS
from gateway.policy.values import PRIORITIES, RoutePolicy
from ledger.records import ReleaseRecord
from ledger.rollouts import (
    DEFAULT_CONDITIONS,
    METRICS,
    PERMILLE,
    RATIOS,
    STEPS_LIMIT,
    TAILS,
    Condition,
    Plan,
)

PPM: Final = 1_000_000
MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
_DEFAULTS: Final = Plan(
    rollout_id="", release_id="", logical_model="", baseline_routes=(), canary_routes=(),
    conditions=(),
)  # fmt: skip
_LIMITS: Final = {one.metric: one.limit_permille for one in DEFAULT_CONDITIONS}
_HINTS: Final = {
    "schema_failures": "Only where requests ask for a schema: no data is no pass.",
    "taken_over": "Only where outcomes are reported: no data is no pass.",
}
_LIST: Final = forms.CheckboxSelectMultiple


class RolloutForm(forms.Form):
    """How a release gets its traffic, and what takes it away again."""

    rollout_id = forms.CharField(max_length=80, label="Name of the rollout")
    release_id = forms.ChoiceField(label="Release")
    logical_model = forms.ChoiceField(label="Model")
    baseline_routes = forms.MultipleChoiceField(widget=_LIST, label="Baseline on")
    canary_routes = forms.MultipleChoiceField(widget=_LIST, label="Canary on")
    shares = forms.CharField(
        label="Shares of the canary, in %",
        help_text="Ascending, by commas; after the last one it is promoted.",
        initial=", ".join(f"{step / 10:g}" for step in _DEFAULTS.steps_permille),
    )
    key = forms.ChoiceField(
        choices=tuple((name, name) for name in ("request", "session", "tenant")),
        label="Assigned by",
    )
    priority = forms.ChoiceField(
        required=False,
        choices=(("", "every priority"), *((name, name) for name in PRIORITIES)),
        initial=_DEFAULTS.priority,
        label="Tails of",
    )
    window_minutes = forms.IntegerField(
        min_value=1, max_value=1_440, initial=_DEFAULTS.window_us // MINUTE_US,
        label="Window, in minutes",
    )  # fmt: skip
    deadline_hours = forms.IntegerField(
        min_value=1, max_value=8_760, initial=_DEFAULTS.deadline_us // HOUR_US,
        label="Ends unpromoted after, in hours",
    )  # fmt: skip
    passes_per_step = forms.IntegerField(
        min_value=1, max_value=100, initial=_DEFAULTS.passes_per_step,
        label="Windows that pass, a step",
    )  # fmt: skip
    consecutive = forms.IntegerField(
        min_value=1, max_value=100, initial=_DEFAULTS.consecutive,
        label="Failing windows in a row that roll it back",
    )  # fmt: skip
    inconclusive_limit = forms.IntegerField(
        min_value=1, max_value=100, initial=_DEFAULTS.inconclusive_limit,
        label="Undecided windows in a row that hold it",
    )  # fmt: skip
    baseline_minimum = forms.IntegerField(
        min_value=30, max_value=PPM, initial=_DEFAULTS.baseline_minimum,
        label="Least requests of the baseline, a window",
    )  # fmt: skip
    canary_minimum = forms.IntegerField(
        min_value=30, max_value=PPM, initial=_DEFAULTS.canary_minimum,
        label="Least requests of the canary, a window",
    )  # fmt: skip
    alpha = forms.DecimalField(
        min_value=Decimal("0.000001"), max_value=Decimal("0.05"), max_digits=7, decimal_places=6,
        initial="0.01", label="Alpha of the tails",
    )  # fmt: skip

    def __init__(
        self, *args: Any, policy: RoutePolicy | None, releases: list[ReleaseRecord], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        routes = [] if policy is None else [
            (one.route_id, f"{one.route_id} ({one.identity_id})") for one in policy.routes
        ]  # fmt: skip
        models = [] if policy is None else [(one.name, one.name) for one in policy.models]
        offered = {
            "release_id": [(one.release_id, one.release_id) for one in releases],
            "logical_model": models,
            "baseline_routes": routes,
            "canary_routes": routes,
        }
        for name, choices in offered.items():
            field = self.fields[name]
            if isinstance(field, forms.ChoiceField):
                field.choices = choices
        for metric in METRICS:
            self.fields[f"limit_{metric}"] = _limit_field(metric)
        self.fields["reason"] = forms.CharField(max_length=500, required=False, label="Reason")

    def clean_shares(self) -> tuple[int, ...]:
        """The shares in thousandths; a tenth of a per cent is the least."""
        shares = []
        for text in str(self.cleaned_data["shares"]).split(","):
            try:
                permille = Decimal(text.strip()) * 10
            except ArithmeticError:
                permille = Decimal(-1)
            if not (0 < permille < PERMILLE and permille == int(permille)):
                raise forms.ValidationError(
                    f"{text.strip()[:20]!r} is no share: give per cents like 5, 20, 50.5"
                )
            shares.append(int(permille))
        if len(shares) > STEPS_LIMIT:
            raise forms.ValidationError(f"At most {STEPS_LIMIT} steps.")
        return tuple(shares)


def _limit_field(metric: str) -> forms.DecimalField:
    """The limit of one condition, in per cent or points; empty: it is none."""
    name = METRIC_WORDS[metric].capitalize()
    ratio = metric in RATIOS
    limit = _LIMITS.get(metric)
    return forms.DecimalField(
        required=False, min_value=0, max_value=1_000, max_digits=5, decimal_places=1,
        initial=None if limit is None else f"{limit / 10:g}",
        label=f"{name}: worse by at most, in {'points' if ratio else '%'}",
        help_text=_HINTS.get(metric, "Of the canary's tail." if metric in TAILS else ""),
    )  # fmt: skip


def plan_of(given: Mapping[str, Any]) -> Plan:
    """The plan that a valid form describes; `ledger.rollouts.problems` says what it lacks."""
    conditions = tuple(
        Condition(
            metric=metric,
            limit_permille=int(given[f"limit_{metric}"] * 10),
            alpha_ppm=int(given["alpha"] * PPM),
        )
        for metric in METRICS
        if given.get(f"limit_{metric}") is not None
    )
    return Plan(
        rollout_id=given["rollout_id"],
        release_id=given["release_id"],
        logical_model=given["logical_model"],
        baseline_routes=tuple(given["baseline_routes"]),
        canary_routes=tuple(given["canary_routes"]),
        conditions=conditions,
        steps_permille=given["shares"],
        key=given["key"],
        window_us=given["window_minutes"] * MINUTE_US,
        deadline_us=given["deadline_hours"] * HOUR_US,
        priority=given["priority"],
        passes_per_step=given["passes_per_step"],
        consecutive=given["consecutive"],
        inconclusive_limit=given["inconclusive_limit"],
        baseline_minimum=given["baseline_minimum"],
        canary_minimum=given["canary_minimum"],
    )
