"""Service level objectives: what is declared, and how one request counts (SPEC 12). Pure.

A definition counts good among valid requests at an exact threshold (SLO-7). Targets are exact:
parts per million, compared as rationals. `ledger.slo_burn` turns the counts into burn rates.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

Indicator = Literal["ttft", "queue", "itl", "e2e", "valid_completion", "capacity"]
Severity = Literal["page", "ticket"]
Verdict = Literal["good", "bad"]

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
PPM = 1_000_000
RULES_LIMIT = 8
LATENCY_INDICATORS: frozenset[Indicator] = frozenset({"ttft", "queue", "itl", "e2e"})

# Rejections that tell of missing capacity. A tenant's quota, its budget, a policy or an impossible
# deadline refuses a request that capacity would not have saved (SLO-1).
CAPACITY_CODES = frozenset({"CAPACITY_SHED", "NO_CAPABLE_ROUTE", "LEDGER_UNAVAILABLE"})


class Sliced(Protocol):
    """What a selector asks of a request."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def logical_model(self) -> str: ...
    @property
    def identity_id(self) -> str | None: ...
    @property
    def route_id(self) -> str | None: ...
    @property
    def priority(self) -> str: ...
    @property
    def user_path(self) -> str: ...
    @property
    def arm(self) -> str | None: ...


class Judged(Sliced, Protocol):
    """What is read of a receipt; `ledger.records.Receipt` has it all. Durations from acceptance."""

    @property
    def status(self) -> str: ...
    @property
    def degraded_from(self) -> str | None: ...
    @property
    def first_token_us(self) -> int | None: ...
    @property
    def queue_us(self) -> int | None: ...
    @property
    def itl_mean_us(self) -> int | None: ...
    @property
    def e2e_us(self) -> int: ...
    @property
    def deadline_us(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def schema_valid(self) -> int | None: ...
    @property
    def terminal_error_code(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A request that was accepted and has neither an end nor a first token."""

    tenant_id: str
    logical_model: str
    identity_id: str | None
    route_id: str | None
    priority: str
    user_path: str
    arm: str | None
    accepted_at_us: int
    deadline_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """The slice that an objective covers; an empty tuple takes every value of its dimension."""

    tenants: tuple[str, ...] = ()
    logical_models: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()
    user_paths: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()

    def covers(self, receipt: Sliced) -> bool:
        """Whether the request lies in the slice."""
        return (
            (not self.priorities or receipt.priority in self.priorities)
            and (not self.tenants or receipt.tenant_id in self.tenants)
            and (not self.logical_models or receipt.logical_model in self.logical_models)
            and (not self.identities or receipt.identity_id in self.identities)
            and (not self.routes or receipt.route_id in self.routes)
            and (not self.user_paths or receipt.user_path in self.user_paths)
            and (not self.arms or receipt.arm in self.arms)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRule:
    """Alerts when the burn rate is strictly above `factor` in both windows (SLO-5)."""

    name: str
    severity: Severity
    factor: Fraction
    long_us: int
    short_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SloDefinition:
    """One revision of an objective. `problems` says whether it may be declared."""

    slo_id: str
    revision: int
    title: str
    indicator: Indicator
    target_ppm: int  # 990_000 is 99 %
    threshold_us: int | None = None  # of a latency indicator: good is at or below it
    selector: Selector = Selector()
    period_us: int = 30 * DAY_US
    degraded_is_valid: bool = False
    rules: tuple[BurnRule, ...] = ()
    left_out: tuple[str, ...] = ()  # default rules that can't hold here, each with its reason
    control_action: str = ""  # what is done about it (SLO-4)
    key: str = field(init=False)  # `slo_id@revision`: a new revision is counted anew

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.slo_id}@{self.revision}")

    @property
    def target(self) -> Fraction:
        return Fraction(self.target_ppm, PPM)

    @property
    def budget(self) -> Fraction:
        """The share of valid requests that may be bad."""
        return Fraction(PPM - self.target_ppm, PPM)


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
    if definition.period_us <= 0:
        found.append(Problem(code="PERIOD_INVALID", detail="period_us must be above 0"))
    if len(definition.rules) > RULES_LIMIT:
        detail = f"{len(definition.rules)} rules; at most {RULES_LIMIT}"
        found.append(Problem(code="TOO_MANY_RULES", detail=detail))
    for rule in definition.rules:
        reason = rule_problem(rule, definition.budget, definition.period_us)
        if reason is not None:
            found.append(reason)
    return tuple(found)


def rule_problem(rule: BurnRule, budget: Fraction, period_us: int) -> Problem | None:
    """Why the rule can't hold for this budget and period; None where it can."""
    if not 0 < rule.short_us < rule.long_us <= period_us:
        detail = f"{rule.name}: needs 0 < short window < long window <= period"
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


def judge(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    """How the request counts: good, bad, or None where it is not in the denominator (SLO-0)."""
    return judge_covered(definition, receipt) if definition.selector.covers(receipt) else None


def judge_covered(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    """As `judge`, of a request that the caller knows to lie in the selector's slice."""
    return _JUDGES[definition.indicator](definition, receipt)


def judge_open(definition: SloDefinition, request: OpenRequest, now_us: int) -> Verdict | None:
    """How a request without an end and without a token counts: bad once its deadline has passed.

    None while it may still be good, and where the objective doesn't cover it (SLO-7).
    """
    if definition.indicator == "capacity" or not definition.selector.covers(request):
        return None
    return "bad" if now_us - request.accepted_at_us > request.deadline_us else None


def user_cancelled_unserved(receipt: Judged) -> bool:
    """Whether the user left before the first token and before the deadline (SLO-0).

    A cancel after the deadline is the deadline's doing: the request was bad already (SLO-7).
    """
    return (
        receipt.status == "cancelled"
        and receipt.first_token_us is None
        and receipt.e2e_us <= receipt.deadline_us
    )


def valid_completion(receipt: Judged, *, degraded_is_valid: bool = False) -> bool:
    """Whether the request completed in its deadline, schema-valid where asked, on the main path."""
    return (
        receipt.status == "completed"
        and receipt.e2e_us <= receipt.deadline_us
        and receipt.schema_valid != 0
        and (degraded_is_valid or receipt.degraded_from is None)
    )


def _judge_ttft(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    return _latency(definition, receipt, receipt.first_token_us)


def _judge_queue(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    return _latency(definition, receipt, receipt.queue_us)


def _judge_itl(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    if receipt.first_token_us is not None and receipt.output_tokens < 2:
        return None  # one token has no gap to the next
    return _latency(definition, receipt, receipt.itl_mean_us)


def _judge_e2e(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    ended = receipt.e2e_us if receipt.status == "completed" else None
    return _latency(definition, receipt, ended)


def _latency(definition: SloDefinition, receipt: Judged, value_us: int | None) -> Verdict | None:
    if receipt.status == "rejected" or user_cancelled_unserved(receipt):
        return None
    if definition.threshold_us is None or value_us is None:
        return "bad"
    return "good" if value_us <= definition.threshold_us else "bad"


def _judge_valid_completion(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    if receipt.status == "rejected" or user_cancelled_unserved(receipt):
        return None
    good = valid_completion(receipt, degraded_is_valid=definition.degraded_is_valid)
    return "good" if good else "bad"


def _judge_capacity(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    if receipt.status != "rejected":
        return "good"
    return "bad" if receipt.terminal_error_code in CAPACITY_CODES else None


_JUDGES: dict[Indicator, Callable[[SloDefinition, Judged], Verdict | None]] = {
    "ttft": _judge_ttft,
    "queue": _judge_queue,
    "itl": _judge_itl,
    "e2e": _judge_e2e,
    "valid_completion": _judge_valid_completion,
    "capacity": _judge_capacity,
}
