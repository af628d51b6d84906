"""Service level objectives: what is declared, and how one request counts (SPEC 12). Pure.

A definition counts good among valid requests at an exact threshold (SLO-7). Targets are exact:
parts per million, compared as rationals. `ledger.slo_burn` turns the counts into burn rates.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

Indicator = Literal[
    "ttft",
    "queue",
    "itl",
    "e2e",
    "valid_completion",
    "capacity",
    "main_path",
    "cancel_ack",
    "cost",
]
Severity = Literal["page", "ticket"]
Verdict = Literal["good", "bad"]

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
PPM = 1_000_000
LATENCY_INDICATORS: frozenset[Indicator] = frozenset({"ttft", "queue", "itl", "e2e", "cancel_ack"})
ActionKind = Literal[
    "limit_prefill",
    "reduce_batch",
    "shed_priority",
    "change_quota",
    "tighten_tokens",
    "cut_route",
    "freeze_rollouts",
    "advise_scaling",
    "open_incident",
]
ACTION_WORDS: dict[ActionKind, str] = {
    "limit_prefill": "limit prefill concurrency",
    "reduce_batch": "reduce batch pressure",
    "shed_priority": "shed a priority",
    "change_quota": "change a tenant's quota",
    "tighten_tokens": "tighten a token budget",
    "cut_route": "cut a route",
    "freeze_rollouts": "freeze the release",
    "advise_scaling": "advise scaling",
    "open_incident": "open an incident",
}

# What a request without an end says nothing of: it was accepted, cancelled nothing, cost nothing.
NOT_OF_OPEN: frozenset[Indicator] = frozenset({"capacity", "cancel_ack", "cost", "main_path"})

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
    @property
    def degraded_from(self) -> str | None: ...


class Ended(Protocol):
    """What says how a request ended. Durations from acceptance."""

    @property
    def status(self) -> str: ...
    @property
    def degraded_from(self) -> str | None: ...
    @property
    def first_token_us(self) -> int | None: ...
    @property
    def e2e_us(self) -> int: ...
    @property
    def deadline_us(self) -> int: ...
    @property
    def schema_valid(self) -> int | None: ...


class Judged(Sliced, Ended, Protocol):
    """What is read of a receipt; `ledger.records.Receipt` has it all. Durations from acceptance."""

    @property
    def queue_us(self) -> int | None: ...
    @property
    def itl_mean_us(self) -> int | None: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def terminal_error_code(self) -> str | None: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def cancel_ack_us(self) -> int | None: ...
    @property
    def cost_total_pico(self) -> int: ...


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
    degraded_from: str | None = None


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
    degraded: bool | None = None  # None: both
    input_tokens: tuple[int, int] | None = None  # from <= t < to: a bucket
    output_tokens: tuple[int, int] | None = None

    @property
    def by_tokens(self) -> bool:
        """Whether it asks for a token bucket, which no other property of a request settles."""
        return self.input_tokens is not None or self.output_tokens is not None

    def covers_tokens(self, receipt: "Judged") -> bool:
        """Whether the request lies in the token buckets."""
        return _within(receipt.input_tokens, self.input_tokens) and _within(
            receipt.output_tokens, self.output_tokens
        )

    def covers(self, receipt: Sliced) -> bool:
        """Whether the request lies in the slice, whatever its tokens."""
        return (
            (not self.priorities or receipt.priority in self.priorities)
            and (not self.tenants or receipt.tenant_id in self.tenants)
            and (not self.logical_models or receipt.logical_model in self.logical_models)
            and (not self.identities or receipt.identity_id in self.identities)
            and (not self.routes or receipt.route_id in self.routes)
            and (not self.user_paths or receipt.user_path in self.user_paths)
            and (not self.arms or receipt.arm in self.arms)
            and (self.degraded is None or self.degraded == bool(receipt.degraded_from))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What is done about an objective that burns too fast, and whether a person is asked first."""

    kind: ActionKind
    target: str = ""  # a priority, route, tenant or model; "": the worst, or all, as the kind says
    automatic: bool = False


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
    action: Action = Action(kind="open_incident")  # what is done about it (SLO-4)
    threshold_pico: int | None = None  # of the cost indicator: good is at or below it
    counted_from_us: int = 0  # a request accepted before belongs to the revision before
    counted_until_us: int | None = None  # from here on the next revision counts
    retired: bool = False
    key: str = field(init=False)  # `slo_id@revision`: a new revision is counted anew

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.slo_id}@{self.revision}")

    @property
    def control_action(self) -> str:
        """The action in words."""
        words = ACTION_WORDS[self.action.kind]
        return f"{words} ({self.action.target})" if self.action.target else words

    def counts_at(self, accepted_at_us: int) -> bool:
        """Whether it is this revision that a request accepted then is counted under."""
        return self.counted_from_us <= accepted_at_us and (
            self.counted_until_us is None or accepted_at_us < self.counted_until_us
        )

    @property
    def target(self) -> Fraction:
        return Fraction(self.target_ppm, PPM)

    @property
    def budget(self) -> Fraction:
        """The share of valid requests that may be bad."""
        return Fraction(PPM - self.target_ppm, PPM)


def judge(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    """How the request counts: good, bad, or None where it is not in the denominator (SLO-0)."""
    return judge_covered(definition, receipt) if definition.selector.covers(receipt) else None


def judge_covered(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    """As `judge`, of a request that the caller knows to lie in the slice but for its tokens."""
    if definition.selector.by_tokens and not definition.selector.covers_tokens(receipt):
        return None
    return _JUDGES[definition.indicator](definition, receipt)


def judge_for(definition: SloDefinition) -> "Judge":
    """What `judge_covered` does of this objective's requests, worked out once for many."""
    return judge_covered if definition.selector.by_tokens else _JUDGES[definition.indicator]


def judge_open(definition: SloDefinition, request: OpenRequest, now_us: int) -> Verdict | None:
    """How a request without an end and without a token counts: bad once its deadline has passed.

    None while it may still be good, and where the objective doesn't cover it (SLO-7).
    """
    if definition.indicator in NOT_OF_OPEN or definition.selector.by_tokens:
        return None
    if not definition.selector.covers(request):
        return None
    return "bad" if now_us - request.accepted_at_us > request.deadline_us else None


def user_cancelled_unserved(receipt: Ended) -> bool:
    """Whether the user left before the first token and before the deadline (SLO-0).

    A cancel after the deadline is the deadline's doing: the request was bad already (SLO-7).
    """
    return (
        receipt.status == "cancelled"
        and receipt.first_token_us is None
        and receipt.e2e_us <= receipt.deadline_us
    )


def valid_completion(receipt: Ended, *, degraded_is_valid: bool = False) -> bool:
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


def _judge_main_path(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    """Of completed requests: degraded ones are bad, for a rising share is an incident (SLO-4)."""
    if receipt.status != "completed":
        return None
    return "good" if receipt.degraded_from is None else "bad"


def _judge_cancel_ack(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    """Of requests whose cancel was sent: it was acknowledged in time."""
    if receipt.cancel_ack_us is None:
        return None
    late = definition.threshold_us is None or receipt.cancel_ack_us > definition.threshold_us
    return "bad" if late else "good"


def _judge_cost(definition: SloDefinition, receipt: Judged) -> Verdict | None:
    """Of requests that cost something: they gave a valid result, at or below the threshold."""
    if receipt.cost_total_pico == 0 or definition.threshold_pico is None:
        return None
    good = receipt.cost_total_pico <= definition.threshold_pico and valid_completion(
        receipt, degraded_is_valid=definition.degraded_is_valid
    )
    return "good" if good else "bad"


def _within(value: int, bucket: tuple[int, int] | None) -> bool:
    return bucket is None or bucket[0] <= value < bucket[1]


Judge = Callable[[SloDefinition, Judged], Verdict | None]

_JUDGES: dict[Indicator, Judge] = {
    "ttft": _judge_ttft,
    "queue": _judge_queue,
    "itl": _judge_itl,
    "e2e": _judge_e2e,
    "valid_completion": _judge_valid_completion,
    "capacity": _judge_capacity,
    "main_path": _judge_main_path,
    "cancel_ack": _judge_cancel_ack,
    "cost": _judge_cost,
}
