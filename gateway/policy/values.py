"""The values that a decision is made of: plain, frozen, and encoded the same everywhere.

Each is a `msgspec.Struct`: frozen and keyword-only like a dataclass, a fifth of its cost to make,
and `array_like`, so that what the ledger keeps of a decision is short. Array-like means that a
field may be appended with a default, and never removed, reordered or retyped.

Units: times in integer microseconds (`_us`), money in pico units (`_pico`), quality in thousandths
(`_milli`), shares in thousandths (`_permille`), tokens in tokens.
"""

from typing import Literal

import msgspec

from ledger.rates import RateTable

Priority = Literal["interactive", "normal", "batch"]
UserPath = Literal["interactive", "background", "evaluation", "recovery"]
FallbackReason = Literal["overloaded", "unhealthy", "deadline_risk"]
EndState = Literal["completed", "rejected", "cancelled", "failed", "unknown"]

# Shedding order (ADM-8): what stands last here is shed first.
PRIORITIES: tuple[Priority, ...] = ("interactive", "normal", "batch")


class Value(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A frozen value that is encoded as an array of its fields in order.

    `gc=False`: values hold values and can't form a cycle, so the collector need not walk them.
    """


class Budget(Value, frozen=True, kw_only=True):
    """What a request may use, filled in from the defaults (BUD-1, BUD-2)."""

    max_input_tokens: int
    max_output_tokens: int
    max_total_tokens: int
    deadline_us: int
    max_cost_pico: int | None = None


class TokenCount(Value, frozen=True, kw_only=True):
    """The input tokens of one request as one tokenizer revision counts them (BUD-3)."""

    tokenizer_revision: str
    tokens: int


class InferenceRequest(Value, frozen=True, kw_only=True):
    """One request as admission sees it: sizes, limits and classes, never any text (SEC-1)."""

    request_id: str
    tenant_id: str
    logical_model: str
    priority: Priority
    budget: Budget
    input_tokens: tuple[TokenCount, ...]
    required_capabilities: tuple[str, ...] = ()
    allowed_regions: tuple[str, ...] = ()  # empty: any region that the tenant allows
    quality_floor_milli: int = 0
    side_effects: bool = False
    user_path: UserPath = "interactive"
    task_type: str = "chat"
    session_id: str = ""
    key_id: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    counted_by: Literal["tokenizer", "trace"] = "tokenizer"
    ttft_objective_us: int | None = None  # the caller's wish: preferred, never a reason to refuse
    tpot_objective_us: int | None = None  # time per output token after the first


class PredictionBucket(Value, frozen=True, kw_only=True):
    """What was learned of requests with over_tokens < input tokens <= upto_tokens (ADM-5)."""

    over_tokens: int
    upto_tokens: int
    prefill_us: int
    inter_token_us: int
    requests: int  # it was learned from


class Prediction(Value, frozen=True, kw_only=True):
    """The prediction model of a route (ADM-4, ADM-5): conservative, revisioned, integer.

    queue = queue_us + waiting input tokens x prefill; prefill grows with the request's own input.
    In a bucket that was learned, its two times stand instead of the declared ones.
    """

    revision: str
    queue_us: int
    prefill_base_us: int
    prefill_us_per_ktok: int
    inter_token_us: int
    buckets: tuple[PredictionBucket, ...] = ()


class Route(Value, frozen=True, kw_only=True):
    """A way to a model: what it is, what it can, what it may carry."""

    route_id: str
    identity_id: str
    tokenizer_revision: str
    provider_kind: Literal["simulator", "openai", "kserve"]
    address: str
    region: str
    capabilities: tuple[str, ...]
    max_input_tokens: int
    max_output_tokens: int
    max_total_tokens: int
    prediction: Prediction
    quality_milli: int = 1000
    safety_policy_revision: int = 1
    queue_limit: int = 256  # waiting requests
    queue_age_limit_us: int = 30_000_000
    enabled: bool = True


class FallbackEdge(Value, frozen=True, kw_only=True):
    """A declared way from one route to another (FBK-1)."""

    from_route: str
    to_route: str
    allowed_reasons: tuple[FallbackReason, ...]
    required_evaluation_suite: str
    quality_floor_milli: int
    preserves_data_boundary: bool = True
    preserves_required_capabilities: bool = True


class CanaryArm(Value, frozen=True, kw_only=True):
    arm: str
    share_permille: int
    route_ids: tuple[str, ...]


class CanaryPlan(Value, frozen=True, kw_only=True):
    """How a logical model's traffic is split: fixed by a hash before filtering (RTE-1, REL-2)."""

    release_id: str
    key: Literal["request", "session", "tenant"]
    salt: str
    arms: tuple[CanaryArm, ...]


class LogicalModel(Value, frozen=True, kw_only=True):
    """The name that clients ask for, its primary routes, and what fills a budget's gaps (BUD-2)."""

    name: str
    primary_routes: tuple[str, ...]
    max_input_tokens: int
    max_output_tokens: int
    max_total_tokens: int
    default_output_tokens: int
    default_deadline_us: int
    canary: CanaryPlan | None = None


class PriorityShare(Value, frozen=True, kw_only=True):
    """The share of a route's queue, and of its KV, that a priority may fill (ADM-8)."""

    priority: Priority
    queue_permille: int
    kv_permille: int = 1000


class RetryRule(Value, frozen=True, kw_only=True):
    """When a request may be tried again or elsewhere after an attempt ended badly (RTY-1).

    The retries and fallbacks of a minute stay within a share of its requests, or within
    `least_per_minute` where that is more: little traffic needs a budget, too.
    """

    budget_permille: int = 200
    least_per_minute: int = 10
    backoff_us: int = 100_000  # before the second attempt on a route; doubled for each further one
    backoff_most_us: int = 5_000_000


class HedgeRule(Value, frozen=True, kw_only=True):
    """When a second attempt starts beside a silent first one, and how many of them (HDG-1)."""

    delay_us: int
    budget_permille: int = 50
    least_per_minute: int = 2


class BreakerRule(Value, frozen=True, kw_only=True):
    """When a route is taken out of traffic, and for how long (RTY-2)."""

    failures: int = 5  # in a window, and at least
    failed_permille: int = 500  # of what ended there, before it opens
    window_us: int = 30_000_000
    open_us: int = 10_000_000  # then one request may try
    when_all_unhealthy: Literal["refuse", "try_all"] = "refuse"


class AttemptRules(Value, frozen=True, kw_only=True):
    """What may follow a request's first attempt.

    `limit` counts all attempts of one request, but for one without what its provider refused.
    """

    limit: int = 1
    retry: RetryRule = RetryRule()
    hedge: HedgeRule | None = None
    breaker: BreakerRule | None = None


class LearningRule(Value, frozen=True, kw_only=True):
    """How a route's speed is learned from its receipts (ADM-5)."""

    window_requests: int = 500  # of each bucket, the last so many completed
    least_requests: int = 50  # fewer in a bucket teach nothing
    quantile_permille: int = 900
    change_permille: int = 100  # a new revision only where some time moved by more
    every_us: int = 60_000_000


class RoutePolicy(Value, frozen=True, kw_only=True):
    """A published policy revision: the whole of what routing may follow."""

    revision: str
    models: tuple[LogicalModel, ...]
    routes: tuple[Route, ...]
    edges: tuple[FallbackEdge, ...] = ()
    ordering: tuple[Literal["e2e", "cost", "quality", "route_id"], ...] = (
        "e2e",
        "cost",
        "route_id",
    )
    first_decode_us: int = 40_000
    first_byte_network_us: int = 20_000
    snapshot_max_age_us: int = 5_000_000
    probe_allowance: int = 1
    queue_shares: tuple[PriorityShare, ...] = ()
    retry_after_ms: int = 1_000
    attempts: AttemptRules = AttemptRules()
    learning: LearningRule | None = None  # None: predictions are the declared ones


class CapacitySnapshot(Value, frozen=True, kw_only=True):
    """What a route's backend said of itself, and when (SCH-2)."""

    route_id: str
    revision: int
    observed_at_us: int
    waiting_requests: int
    running_requests: int
    waiting_input_tokens: int
    reserved_kv_tokens: int
    free_kv_tokens: int
    recent_output_tokens_per_second: int
    queue_p95_us: int
    oldest_wait_us: int


class RouteState(Value, frozen=True, kw_only=True):
    """A route at the moment of a decision: its last snapshot and what was reserved since."""

    route_id: str
    healthy: bool
    snapshot: CapacitySnapshot | None
    reserved_since_kv_tokens: int = 0
    accepted_since: int = 0  # requests accepted after the snapshot was observed
    probes_in_flight: int = 0
    cooling: bool = False  # its provider asked to be left alone for now (RTY-2)


class TenantState(Value, frozen=True, kw_only=True):
    """A tenant at the moment of a decision: its quota and what it holds of it."""

    tenant_id: str
    in_flight: int
    in_flight_limit: int
    requests_in_minute: int = 0
    requests_per_minute: int | None = None
    tokens_in_minute: int = 0
    tokens_per_minute: int | None = None
    spent_pico: int = 0
    pending_pico: int = 0
    budget_pico: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    allowed_regions: tuple[str, ...] = ()  # empty: all
    retry_after_ms: int = 1_000  # until a slot may be free
    spent_today_pico: int = 0
    day_budget_pico: int | None = None
    requests_free_ms: int = 1_000  # until one more request fits the minute
    tokens_free_ms: int = 1_000  # until this request's tokens fit the minute
    day_ends_ms: int = 1_000  # until the next local day, with a new budget
    month_ends_ms: int = 1_000


class Evaluation(Value, frozen=True, kw_only=True):
    """Evidence: what one exact model identity scored on a suite."""

    suite: str
    identity_id: str
    score_milli: int
    passed: bool


class AdmissionContext(Value, frozen=True, kw_only=True):
    """All that a decision depends on besides the request, the routes and the policy."""

    now_us: int
    tenant: TenantState
    route_states: tuple[RouteState, ...]
    rates: RateTable
    evaluations: tuple[Evaluation, ...] = ()


class Limit(Value, frozen=True, kw_only=True):
    """A limit that a rejection names, with what was observed (ADM-3)."""

    name: str
    limit: int
    observed: int


class Candidate(Value, frozen=True):
    """One route as the decision saw it: the filter at which it fell, or its estimates."""

    route_id: str
    role: Literal["primary", "fallback"]
    fell_at: str | None  # the name of the filter that removed it; None: it passed all
    input_tokens: int
    ttft_us: int | None = None
    e2e_us: int | None = None
    cost_pico: int | None = None
    queue_us: int | None = None
    prefill_us: int | None = None
    via_route: str | None = None  # the edge's origin, of a fallback


class Decision(Value, frozen=True, kw_only=True):
    """The outcome of admission and routing, complete enough to be explained and replayed."""

    request_id: str
    status: Literal["accepted", "rejected"]
    candidates: tuple[Candidate, ...]
    reason_code: str | None = None  # rejected only
    reasons: tuple[str, ...] = ()  # accepted: why the winner won
    limits: tuple[Limit, ...] = ()
    conditional_on: tuple[str, ...] = ()
    retry_after_ms: int | None = None
    http_status: int = 200
    route_id: str | None = None
    identity_id: str | None = None
    tokenizer_revision: str | None = None
    input_tokens: int = 0
    reserve_kv_tokens: int = 0
    ttft_us: int | None = None
    e2e_us: int | None = None
    cost_pico: int | None = None
    degraded_from: str | None = None
    release_id: str | None = None
    arm: str | None = None
    probe: bool = False  # accepted on a route without a fresh snapshot (ADM-6)
