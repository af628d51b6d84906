"""Objectives made ready to be read: budget, windows, history. Pure: reports in, values out."""

from dataclasses import dataclass
from datetime import UTC, tzinfo
from fractions import Fraction
from urllib.parse import urlencode

from gateway.pages.charts import Plot, Series, clock_ticks, time_series
from gateway.pages.formatting import clock_time, duration, percent
from ledger.queries.means import SAMPLE_LIMIT, Experience, Mean
from ledger.queries.slo import SloReport
from ledger.records import SloEvaluation
from ledger.slo import PPM, SloDefinition
from ledger.slo_burn import RuleStatus, SloState, SloStatus, WindowBurn
from ledger.slo_control import state_now

STEPS_SHOWN = 16  # of a quarter hour each

STATE_CHIPS = {
    "OK": "ok",
    "WATCH": "watch",
    "FREEZE": "alert",
    "SHED": "alert",
    "ROLLBACK": "alert",
    "NO_DATA": "no_data",
    "ALERT": "alert",
    "QUIET": "ok",
}
_SAID = {
    "OK": "within its budget",
    "WATCH": "burning, not yet for a page",
    "FREEZE": "burning too fast: rollouts are frozen",
    "SHED": "burning too fast: load is shed",
    "ROLLBACK": "the canary is worse: it is rolled back",
    "NO_DATA": "no request counted yet; that is not a pass",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window as text: its length, the burn rate in it, bad of valid."""

    length: str
    burn: str
    counts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A pair of windows, its factor and what came of it."""

    name: str
    severity: str
    factor: str
    long: Window
    short: Window
    state: str
    chip: str
    guard: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One objective, ready for its section of the page."""

    slo_id: str
    title: str
    state: str
    chip: str
    said: str
    target: str
    threshold: str
    covers: str
    action: str
    budget_left: str
    budget_gauge: tuple[int, int]  # used and whole, for the bar
    exhausted: str
    period: Window
    rules: tuple[Rule, ...]
    left_out: tuple[str, ...]
    plot: Plot | None
    history: tuple[tuple[str, str, str], ...]  # from, burn, bad of valid
    contrast: str  # what the mean says meanwhile; "" where that is no contrast
    beside: str  # mean and p99 of the last hour; "" for no latency
    bad_ones: str  # what the bad ones of the last hour are; "" where there is none
    drill: str


def state_of(status: SloStatus, last: SloEvaluation | None) -> SloState:
    """The state to show: `last` is the newest closed window's, which knows what is in force."""
    return status.state if last is None else state_now(status, last.state, last.end_us)


def card(
    report: SloReport, met: Experience, last: SloEvaluation | None, zone: tzinfo = UTC
) -> Card:
    """The card of one objective; `met`: what its requests met in the last hour.

    `last`: its newest evaluation.
    """
    state = state_of(report.status, last)
    status, definition = report.status, report.status.definition
    left, used = status.budget_left, status.period.burn
    return Card(
        slo_id=definition.slo_id,
        title=definition.title,
        state=state,
        chip=STATE_CHIPS[state],
        said=_said(state, left),
        target=ppm(definition.target_ppm),
        threshold=duration(definition.threshold_us) if definition.threshold_us else "",
        covers=covers(definition),
        action=definition.control_action,
        budget_left="NO_DATA" if left is None else percent(left.numerator, left.denominator),
        budget_gauge=(0, 1) if used is None else (used.numerator, used.denominator),
        exhausted=_exhausted(status.exhausted_in_us, left),
        period=_window(status.period),
        rules=tuple(_rule(rule) for rule in status.rules),
        left_out=definition.left_out,
        plot=_plot(report, zone),
        history=tuple(
            (
                clock_time(point.start_us, zone)[:5],
                rate(point.burn),
                f"{point.tally.bad:,} of {point.tally.valid:,}",
            )
            for point in report.history
            if point.tally.valid
        ),
        contrast=_contrast(definition, status.state, met.mean),
        beside=_beside(definition, met),
        bad_ones=_bad_ones(met),
        drill=drill_of(definition),
    )


def _said(state: str, left: Fraction | None) -> str:
    if state == "OK" and left is not None and left < 0:
        return "not burning too fast now, but more than its budget is spent"
    return _SAID[state]


def ppm(ppm: int) -> str:
    return f"{ppm * 100 / PPM:g} %"


def covers(definition: SloDefinition) -> str:
    """The slice in words."""
    chosen = definition.selector
    named = (
        (chosen.priorities, "priority"),
        (chosen.tenants, "tenant"),
        (chosen.logical_models, "model"),
        (chosen.routes, "route"),
        (chosen.identities, "identity"),
        (chosen.user_paths, "path"),
        (chosen.arms, "arm"),
    )
    said = [f"{label} {' or '.join(values)}" for values, label in named if values]
    return ", ".join(said) or "all requests"


def drill_of(definition: SloDefinition) -> str:
    """The query of the receipts page that shows the slice, as far as its filters can say it."""
    chosen = definition.selector
    named = (
        ("priority", chosen.priorities),
        ("tenant", chosen.tenants),
        ("model", chosen.logical_models),
        ("route", chosen.routes),
        ("identity", chosen.identities),
        ("path", chosen.user_paths),
        ("arm", chosen.arms),
    )
    return urlencode([(name, values[0]) for name, values in named if len(values) == 1])


def rate(burn: Fraction | None) -> str:
    """A burn rate to two decimals, rounded half up; the exact one decides, not this text."""
    if burn is None:
        return "NO_DATA"
    hundredths = (200 * burn.numerator + burn.denominator) // (2 * burn.denominator)
    return f"{hundredths // 100:,}.{hundredths % 100:02d}"


def _window(window: WindowBurn) -> Window:
    tally = window.tally
    return Window(
        length=length_of(window.length_us),
        burn=rate(window.burn),
        counts=f"{tally.bad:,} of {tally.valid:,}",
    )


def length_of(us: int) -> str:
    """A window's length in its largest whole unit: "30 d", "6 h", "5 min"."""
    minutes = us // 60_000_000
    for size, unit in ((1440, "d"), (60, "h")):
        if minutes and minutes % size == 0:
            return f"{minutes // size} {unit}"
    return f"{minutes} min"


def _rule(rule: RuleStatus) -> Rule:
    alerts = rule.state == "ALERT"
    guard = ("may act" if rule.guard_passed else "too few requests to act") if alerts else ""
    return Rule(
        name=rule.rule.name,
        severity=rule.rule.severity,
        factor=rate(rule.rule.factor),
        long=_window(rule.long),
        short=_window(rule.short),
        state=rule.state,
        chip=STATE_CHIPS[rule.state],
        guard=guard,
    )


def _exhausted(exhausted_in_us: int | None, left: Fraction | None) -> str:
    if left is None:
        return "not known"
    if exhausted_in_us is None:
        return "not at this rate"
    return "already" if exhausted_in_us == 0 else f"in {duration(exhausted_in_us)}"


def _plot(report: SloReport, zone: tzinfo) -> Plot | None:
    """The history from its first count on, but STEPS_SHOWN steps at least."""
    counted = [index for index, point in enumerate(report.history) if point.tally.valid]
    start = min(counted[0] if counted else 0, len(report.history) - STEPS_SHOWN)
    points = tuple(
        (float(point.end_us), None if point.burn is None else float(point.burn))
        for point in report.history[max(0, start) :]
    )
    marks = [(1.0, "budget")]
    marks += [
        (float(rule.rule.factor), f"{rule.rule.name} {rate(rule.rule.factor)}")
        for rule in report.status.rules
    ]
    return time_series(
        [Series(label="burn rate", points=points)],
        x_ticks=lambda first, last: clock_ticks(first, last, zone),
        y_label=lambda y: f"{y:g}",
        thresholds=marks,
    )


def _beside(definition: SloDefinition, met: Experience) -> str:
    """The mean over all traffic beside the tail of the slice; "" where nothing was measured."""
    if met.mean is None or met.tail is None:
        return ""
    return (
        f"{_window_of(met)}: mean {duration(met.mean.mean_us)} over all {met.mean.count:,} "
        f"requests; p99 {duration(met.tail.p99_us)} of the {met.tail.count:,} of "
        f"{covers(definition)}."
    )


def _bad_ones(met: Experience) -> str:
    """What the bad requests are; "" where there is none."""
    if not met.bad:
        return ""
    return f"{_window_of(met)}: bad are {', '.join(f'{count:,} {why}' for why, count in met.bad)}."


def _window_of(met: Experience) -> str:
    return f"Newest {SAMPLE_LIMIT:,} of the last hour" if met.newest_only else "Last hour"


def _contrast(definition: SloDefinition, state: str, mean: Mean | None) -> str:
    """The sentence that says what a mean would have hidden (SLO-2)."""
    if mean is None or definition.threshold_us is None or state in ("OK", "NO_DATA"):
        return ""
    if mean.mean_us > definition.threshold_us:
        return ""
    return (
        f"Over all {mean.count:,} requests of the last hour the mean is {duration(mean.mean_us)}, "
        f"comfortably under {duration(definition.threshold_us)}. The objective counts the "
        f"requests of {covers(definition)} that were over it: the mean passes, the tail doesn't."
    )
