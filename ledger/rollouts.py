"""A rollout's plan, declared before its first request, and what each window leads to (REL-3..6).

Pure. Shares and margins are integers in thousandths, alphas in millionths, so that a plan's bytes
and their hash say exactly what was declared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Literal, get_args

import msgspec

from ledger.releases import Verdict

Metric = Literal[
    "ttft_p99",
    "itl_p99",
    "e2e_p99",
    "valid_completion",
    "schema_failures",
    "user_cancels",
    "degraded",
    "taken_over",
    "cost_per_valid",
    "input_tokens",
    "output_tokens",
]
METRICS: tuple[Metric, ...] = get_args(Metric)
TAILS: frozenset[str] = frozenset({"ttft_p99", "itl_p99", "e2e_p99"})
RATIOS: frozenset[str] = frozenset(
    {"valid_completion", "schema_failures", "user_cancels", "degraded", "taken_over"}
)
State = Literal["running", "held", "promoted", "rolled_back", "ended"]
Decision = Literal["continue", "raise", "promote", "hold", "resume", "roll_back", "end"]
STEPS_LIMIT = 16
CONDITIONS_LIMIT = 16
PERMILLE = 1_000
WINDOW_LEAST_US = 60_000_000
WINDOW_LIMIT_US = 7 * 86_400_000_000
DEADLINE_LIMIT_US = 90 * 86_400_000_000
ROUTES_LIMIT = 64  # of an arm
COUNT_LIMIT = 1_000  # of windows
MINIMUM_LIMIT = 10_000_000  # of requests in a window
LIMIT_PERMILLE_LIMIT = 1_000_000


class Condition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must not get worse. `limit_permille`: a tail's delta, a ratio's margin, a mean's."""

    metric: str
    limit_permille: int
    alpha_ppm: int = 10_000  # of a tail; .01


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a release gets its traffic, and what takes it away again. Immutable once declared."""

    rollout_id: str
    release_id: str
    logical_model: str
    baseline_routes: tuple[str, ...]
    canary_routes: tuple[str, ...]
    conditions: tuple[Condition, ...]
    steps_permille: tuple[int, ...] = (50, 200, 500)
    key: Literal["request", "session", "tenant"] = "request"
    window_us: int = 900_000_000
    deadline_us: int = 172_800_000_000  # after the start; then it ends without promotion
    priority: str = "interactive"  # whose latencies the tails are; "": everybody's
    passes_per_step: int = 1
    consecutive: int = 2
    inconclusive_limit: int = 3
    baseline_minimum: int = 1_000
    canary_minimum: int = 300


DEFAULT_CONDITIONS = (
    Condition(metric="ttft_p99", limit_permille=100),
    Condition(metric="itl_p99", limit_permille=100),
    Condition(metric="valid_completion", limit_permille=10),
    Condition(metric="schema_failures", limit_permille=10),
    Condition(metric="user_cancels", limit_permille=10),
    Condition(metric="degraded", limit_permille=10),
    Condition(metric="cost_per_valid", limit_permille=200),
)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rollout has come; what `after_window` needs of the past, and nothing else."""

    state: State = "running"
    step: int = 0  # index into the plan's steps
    started_us: int = 0
    step_since_us: int = 0  # the first window of the step starts here
    windows: int = 0  # closed and evaluated
    passes: int = 0  # of this step
    inconclusive: int = 0  # in a row
    failed: tuple[tuple[str, int], ...] = ()  # metric -> windows in a row, by metric
    bad: tuple[tuple[int, int, int], ...] = ()  # share, bad of the baseline, of the canary

    @property
    def live(self) -> bool:
        return self.state in ("running", "held")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a closed window showed."""

    end_us: int
    verdicts: Mapping[str, Verdict]  # by metric
    share_off_plan: bool = False  # REL-6: the arms don't have the traffic that was planned
    evidence_stops: bool = False  # the e-value has reached its limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decision, why, the window's verdict as a whole, and the progress that follows."""

    decision: Decision
    reason: str  # a stable code
    verdict: Verdict
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProblem:
    """Why a plan can't be declared: the field, and what would do."""

    field: str
    detail: str


def encode(plan: Plan) -> str:
    """The plan's canonical JSON: what is recorded and hashed."""
    return msgspec.json.encode(plan, order="sorted").decode()


def plan_hash(plan_json: str) -> str:
    """The sha256 of a declared plan, in hexadecimal."""
    return sha256(plan_json.encode()).hexdigest()


def problems(plan: Plan) -> tuple[PlanProblem, ...]:
    """Everything that keeps a plan from being declared; empty where nothing does."""
    found: list[PlanProblem] = []

    def refuse(condition: bool, field: str, detail: str) -> None:
        if condition:
            found.append(PlanProblem(field=field, detail=detail))

    steps = plan.steps_permille
    ascending = all(0 < low < high for low, high in pairwise(steps))
    refuse(not steps or len(steps) > STEPS_LIMIT, "steps_permille", f"1 to {STEPS_LIMIT} steps")
    refuse(
        bool(steps) and not (ascending and steps[0] > 0 and steps[-1] < PERMILLE),
        "steps_permille",
        f"ascending, each from 1 to {PERMILLE - 1}",
    )
    names = [condition.metric for condition in plan.conditions]
    refuse(not names, "conditions", "name at least one: nothing else could stop the rollout")
    refuse(len(names) > CONDITIONS_LIMIT, "conditions", f"at most {CONDITIONS_LIMIT}")
    refuse(len(set(names)) < len(names), "conditions", "each metric once")
    unknown = sorted(set(names) - set(METRICS))
    refuse(bool(unknown), "conditions", f"metrics are {', '.join(METRICS)}")
    for condition in plan.conditions:
        refuse(
            not 0 <= condition.limit_permille <= LIMIT_PERMILLE_LIMIT,
            "conditions",
            f"limit_permille is 0 to {LIMIT_PERMILLE_LIMIT}",
        )
        refuse(not 0 < condition.alpha_ppm <= 50_000, "conditions", "alpha_ppm is 1 to 50000 (.05)")
    refuse(
        not WINDOW_LEAST_US <= plan.window_us <= WINDOW_LIMIT_US,
        "window_us",
        f"{WINDOW_LEAST_US} to {WINDOW_LIMIT_US}",
    )
    refuse(plan.window_us % WINDOW_LEAST_US != 0, "window_us", "whole minutes")
    refuse(
        not plan.window_us <= plan.deadline_us <= DEADLINE_LIMIT_US,
        "deadline_us",
        f"at least one window, at most {DEADLINE_LIMIT_US}, which is 90 days",
    )
    for field in ("passes_per_step", "consecutive", "inconclusive_limit"):
        refuse(not 1 <= getattr(plan, field) <= COUNT_LIMIT, field, f"1 to {COUNT_LIMIT}")
    for field in ("baseline_minimum", "canary_minimum"):
        refuse(not 30 <= getattr(plan, field) <= MINIMUM_LIMIT, field, f"30 to {MINIMUM_LIMIT}")
    for field in ("baseline_routes", "canary_routes"):
        routes = getattr(plan, field)
        refuse(not 0 < len(routes) <= ROUTES_LIMIT, field, f"1 to {ROUTES_LIMIT} routes")
        refuse(len(set(routes)) < len(routes), field, "each route once")
    shared = sorted(set(plan.baseline_routes) & set(plan.canary_routes))
    refuse(bool(shared), "canary_routes", "a route is in one arm")
    return tuple(found)


def started(at_us: int) -> Progress:
    """The progress of a rollout whose first step begins now, at the next whole minute."""
    since_us = -(-at_us // WINDOW_LEAST_US) * WINDOW_LEAST_US
    return Progress(started_us=at_us, step_since_us=since_us)


def window_of(plan: Plan, progress: Progress) -> tuple[int, int]:
    """[start, end) of the window that is evaluated next, in microseconds."""
    start_us = progress.step_since_us
    return start_us, start_us + plan.window_us


def overall(verdicts: Mapping[str, Verdict], conditions: tuple[Condition, ...]) -> Verdict:
    """FAIL where a condition fails, PASS where all pass; what was not measured is no pass."""
    found = [verdicts.get(condition.metric, "INCONCLUSIVE") for condition in conditions]
    if "FAIL" in found:
        return "FAIL"
    return "PASS" if found and all(one == "PASS" for one in found) else "INCONCLUSIVE"


def after_window(
    plan: Plan, progress: Progress, window: Window, *, frozen: bool = False
) -> Outcome:
    """What a closed window leads to.

    A metric that fails in `consecutive` windows stops the rollout; INCONCLUSIVE neither raises nor
    resets its streak, and so many in a row hold it for a person. A frozen rollout, or a held one,
    goes no further up, but down all the same (REL-4). Past its deadline it ends unpromoted.
    """
    verdict = overall(window.verdicts, plan.conditions)
    streaks = dict(progress.failed)
    for condition in plan.conditions:
        found = window.verdicts.get(condition.metric, "INCONCLUSIVE")
        if found == "FAIL":
            streaks[condition.metric] = streaks.get(condition.metric, 0) + 1
        elif found == "PASS":
            streaks.pop(condition.metric, None)
    passed = verdict == "PASS" and not window.share_off_plan
    undecided = verdict == "INCONCLUSIVE" or window.share_off_plan
    counted = msgspec.structs.replace(
        progress,
        windows=progress.windows + 1,
        step_since_us=window.end_us,
        passes=progress.passes + 1 if passed else (0 if verdict == "FAIL" else progress.passes),
        inconclusive=progress.inconclusive + 1 if undecided else 0,
        failed=tuple(sorted(streaks.items())),
    )
    decision, reason = _decide(plan, counted, window, passed=passed, frozen=frozen)
    return Outcome(
        decision=decision, reason=reason, verdict=verdict, progress=follow(counted, decision)
    )


def _decide(
    plan: Plan, counted: Progress, window: Window, *, passed: bool, frozen: bool
) -> tuple[Decision, str]:
    if window.evidence_stops:
        return "roll_back", "EVIDENCE"
    worst = [metric for metric, windows in counted.failed if windows >= plan.consecutive]
    if worst:
        return "roll_back", f"FAILED:{worst[0]}"
    if window.end_us - counted.started_us >= plan.deadline_us:
        return "end", "DEADLINE"
    if counted.state == "held":
        return "continue", "HELD"
    if window.share_off_plan:
        return "hold", "SHARE_OFF_PLAN"
    if counted.inconclusive >= plan.inconclusive_limit:
        return "hold", "INCONCLUSIVE"
    if not passed:
        return "continue", "FAILED_ONCE" if counted.failed else "INCONCLUSIVE"
    if counted.passes < plan.passes_per_step:
        return "continue", "PASSED"
    if frozen:
        return "continue", "FROZEN"
    return ("promote" if counted.step + 1 == len(plan.steps_permille) else "raise"), "PASSED"


_STATE_AFTER: dict[Decision, State] = {
    "promote": "promoted",
    "hold": "held",
    "resume": "running",
    "roll_back": "rolled_back",
    "end": "ended",
}


def follow(counted: Progress, decision: Decision) -> Progress:
    """The progress after a decision, whoever took it."""
    if decision == "raise":
        return msgspec.structs.replace(counted, step=counted.step + 1, passes=0)
    if decision == "resume":
        counted = msgspec.structs.replace(counted, inconclusive=0)
    state = _STATE_AFTER.get(decision)
    return counted if state is None else msgspec.structs.replace(counted, state=state)
