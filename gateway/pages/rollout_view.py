"""A rollout made ready to be read: plan, windows with their tests, gate. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.pages.formatting import thousands
from gateway.pages.slo_view import length_of
from ledger.records import RolloutEvaluation
from ledger.release_gate import GateLine
from ledger.rollouts import RATIOS, TAILS, Condition, Plan, Progress

VERDICT_CHIPS = {"PASS": "ok", "FAIL": "alert", "INCONCLUSIVE": "no_data"}
STATE_CHIPS = {"running": "ok", "held": "watch", "promoted": "ok", "rolled_back": "alert"}
GATE_CHIPS = {"passed": "ok", "failed": "alert", "missing": "watch"}
METRIC_WORDS = {
    "ttft_p99": "time to first token, p99",
    "itl_p99": "time between tokens, p99",
    "e2e_p99": "end to end, p99",
    "valid_completion": "valid completions",
    "schema_failures": "answers against their schema",
    "user_cancels": "cancelled by users",
    "degraded": "degraded answers",
    "taken_over": "taken over by a person",
    "cost_per_valid": "cost of a valid result",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
}
_ENDS = (("roll_back", "Roll back", True), ("end", "End unpromoted", True))
DECISIONS = {  # what a person may do in each state, besides promoting it
    "running": (("hold", "Hold", False), *_ENDS),
    "held": (("resume", "Let it go on", False), *_ENDS),
}


class _Test(msgspec.Struct, frozen=True, kw_only=True):
    """A condition's test as `gateway.control.rolling` records it; any kind's numbers."""

    metric: str
    verdict: str
    statistics: dict[str, object] | None = None


class _Share(msgspec.Struct, frozen=True, kw_only=True):
    canary_count: int
    total_count: int
    planned: str
    chi_square: float
    p_value: float
    blocked: bool


class _Statistics(msgspec.Struct, frozen=True, kw_only=True):
    tested: tuple[_Test, ...] = ()
    share: _Share | None = None
    baseline_requests: int = 0
    canary_requests: int = 0
    log_e: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One condition in one window: its verdict, and its numbers as a sentence."""

    metric: str
    verdict: str
    chip: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the rollout: its start, a closed window, a look, a person's word."""

    number: int
    kind: str
    start_us: int
    end_us: int
    verdict: str
    chip: str
    decision: str
    reason: str
    actor: str
    permille: int | None
    counts: str  # requests of baseline and canary
    tested: tuple[Tested, ...]
    share: str
    share_off: bool

    @property
    def x(self) -> int:
        return (self.number - 1) * 14


def steps_of(plan: Plan, rows: Sequence[RolloutEvaluation]) -> tuple[Step, ...]:
    """Every step in its order, each with the numbers that were recorded with it."""
    found, share = [], plan.steps_permille[0]
    for row in rows:
        found.append(_step(row, share))
        after = progress_of(row)
        share = plan.steps_permille[min(after.step, len(plan.steps_permille) - 1)]
    return tuple(found)


def progress_of(row: RolloutEvaluation) -> Progress:
    return msgspec.json.decode(row.progress_json, type=Progress)


def _step(row: RolloutEvaluation, permille: int) -> Step:
    found = msgspec.json.decode(row.statistics_json, type=_Statistics)
    windowed = row.kind == "window"
    counted = f"{thousands(found.baseline_requests)} and {thousands(found.canary_requests)}"
    said = "" if found.share is None else _share(found.share)
    if found.log_e is not None:
        said = f"log e-value {found.log_e:.2f}"
    return Step(
        number=row.number,
        kind=row.kind,
        start_us=row.start_us,
        end_us=row.end_us,
        verdict=row.verdict,
        chip=VERDICT_CHIPS.get(row.verdict, "no_data"),
        decision=row.decision.replace("_", " "),
        reason=row.reason,
        actor=row.actor,
        permille=permille if windowed else None,
        counts=counted if windowed else "",
        tested=tuple(
            Tested(
                metric=METRIC_WORDS.get(one.metric, one.metric),
                verdict=one.verdict,
                chip=VERDICT_CHIPS.get(one.verdict, "no_data"),
                said=_numbers(one.metric, one.statistics),
            )
            for one in found.tested
        ),
        share=said,
        share_off=found.share is not None and found.share.blocked,
    )


def _share(share: _Share) -> str:
    """The sample-ratio check in a sentence (REL-6)."""
    off = "off its plan" if share.blocked else "as planned"
    return (
        f"{thousands(share.canary_count)} of {thousands(share.total_count)} requests were the "
        f"canary's, {share.planned} planned: {off} (chi square {share.chi_square:.2f}, "
        f"p = {share.p_value:.4f})"
    )


def _numbers(metric: str, found: dict[str, object] | None) -> str:
    """What a test counted, in a sentence; the record has every number."""
    if found is None:
        return "nothing was measured"
    sizes = f"{_whole(found, 'baseline_count')} and {_whole(found, 'canary_count')} values"
    if metric in TAILS:
        return (
            f"{_whole(found, 'exceeding')} of the canary's over the baseline's raised p99, "
            f"p = {_real(found, 'p_value', 4)}; {sizes}"
        )
    if metric in RATIOS:
        return (
            f"{_percent(found, 'baseline_share')} and {_percent(found, 'canary_share')}, "
            f"difference {_percent(found, 'low')} to {_percent(found, 'high')}, "
            f"margin {_percent(found, 'margin')}; {sizes}"
        )
    return (
        f"{_real(found, 'ratio', 3)} times the baseline's, {_real(found, 'low', 3)} to "
        f"{_real(found, 'high', 3)}, at most {_real(found, 'limit', 3)}; {sizes}"
    )


def _whole(found: dict[str, object], name: str) -> str:
    value = found.get(name)
    return thousands(value) if isinstance(value, int) else "–"


def _real(found: dict[str, object], name: str, places: int) -> str:
    value = found.get(name)
    return f"{value:.{places}f}" if isinstance(value, float | int) else "–"


def _percent(found: dict[str, object], name: str) -> str:
    value = found.get(name)
    return f"{value * 100:.2f} %" if isinstance(value, float | int) else "–"


def condition_words(condition: Condition) -> str:
    """A declared condition in a sentence."""
    name, limit = METRIC_WORDS.get(condition.metric, condition.metric), condition.limit_permille
    if condition.metric in TAILS:
        return (
            f"{name.capitalize()}: fails when more of the canary exceed the baseline's p99 and "
            f"{limit / 10:g} % than chance gives at alpha {condition.alpha_ppm / 1e6:g}"
        )
    if condition.metric in RATIOS:
        return f"{name.capitalize()}: fails when worse by more than {limit / 10:g} points"
    return f"{name.capitalize()}: fails when more than {limit / 10:g} % above the baseline's"


def plan_facts(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The plan's other declarations, as (name, text)."""
    return (
        ("Model", plan.logical_model),
        ("Baseline on", ", ".join(plan.baseline_routes)),
        ("Canary on", ", ".join(plan.canary_routes)),
        ("Shares", ", ".join(f"{step / 10:g} %" for step in plan.steps_permille)),
        ("Assigned by", plan.key),
        ("Tails of", plan.priority or "every priority"),
        ("Window", length_of(plan.window_us)),
        ("Passes a step", str(plan.passes_per_step)),
        ("Rolled back after", f"{plan.consecutive} failing windows in a row"),
        ("Held after", f"{plan.inconclusive_limit} undecided windows in a row"),
        (
            "Least a window",
            f"{thousands(plan.baseline_minimum)} of the baseline, "
            f"{thousands(plan.canary_minimum)} of the canary",
        ),
        ("Ends unpromoted after", length_of(plan.deadline_us)),
    )


def gate_lines(lines: Sequence[GateLine]) -> tuple[tuple[GateLine, str], ...]:
    """Each check with its chip."""
    return tuple((one, GATE_CHIPS[one.state]) for one in lines)
