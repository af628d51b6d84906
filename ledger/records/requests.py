"""What one request leaves behind: its decision, hold, attempts, settlement, receipt and trace.

Those that are written together share a row where one says all of it (`ledger.carrying`): a decision
carries its first reservation, attempt and trace event, a receipt its only attempt's end and
settlement. A key is taken by either kind of row.
"""

from typing import ClassVar

from ledger.records.base import Index, Indexes, Record, Unique

_MOST = ("status", "completed")  # nearly all receipts: found by time, tenant, route or model


class CapacitySnapshotRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "capacity_snapshot"
    UNIQUE: ClassVar[Unique] = (("route_id", "revision"),)
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
    rejected_by_reason_json: str = "{}"


class RouteDecision(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "route_decision"
    VERSION: ClassVar[int] = 2
    SINCE: ClassVar[dict[str, int]] = {
        "hold_kv_tokens": 2,
        "hold_input_tokens": 2,
        "hold_output_tokens": 2,
        "hold_cost_pico": 2,
        "hold_bound_at_us": 2,
        "attempt_kind": 2,
        "attempt_identity_id": 2,
        "attempt_provider_kind": 2,
        "trace_reasons": 2,
        "trace_budget_json": 2,
        "trace_snapshot_revision": 2,
        "trace_id": 2,
    }
    UNIQUE: ClassVar[Unique] = (("request_id",),)
    TAKEN: ClassVar[tuple[str, ...]] = (
        "NEW.hold_kv_tokens IS NOT NULL AND EXISTS "
        "(SELECT 1 FROM reservation WHERE reservation_id = NEW.request_id)",
        "NEW.attempt_kind IS NOT NULL AND EXISTS "
        "(SELECT 1 FROM attempt WHERE attempt_id = NEW.request_id || '.0')",
    )
    request_id: str
    decided_at_us: int
    status: str  # accepted | rejected
    reason_code: str | None
    route_id: str | None
    tenant_id: str
    policy_revision: str
    rate_table_version: str
    code_revision: str  # of the deciding code
    inputs_json: str  # what decide() was given, by value or by the revision that holds it
    decision_json: str  # what it returned
    digest: bytes  # sha256(inputs_json + 0x00 + decision_json)
    # Carried: a Reservation, an Attempt, a TraceEvent; None where it carries none.
    hold_kv_tokens: int | None = None
    hold_input_tokens: int | None = None
    hold_output_tokens: int | None = None
    hold_cost_pico: int | None = None
    hold_bound_at_us: int | None = None
    attempt_kind: str | None = None
    attempt_identity_id: str | None = None
    attempt_provider_kind: str | None = None
    trace_reasons: str | None = None
    trace_budget_json: str | None = None
    trace_snapshot_revision: int | None = None
    trace_id: str | None = None


class Reservation(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "reservation"
    UNIQUE: ClassVar[Unique] = (("reservation_id",),)
    INDEXES: ClassVar[Indexes] = (Index("reservation_request", "request_id"),)
    TAKEN: ClassVar[tuple[str, ...]] = (
        "EXISTS (SELECT 1 FROM route_decision WHERE request_id = NEW.reservation_id "
        "AND hold_kv_tokens IS NOT NULL)",
    )
    reservation_id: str
    request_id: str
    tenant_id: str
    route_id: str
    reserved_at_us: int
    kv_tokens: int
    input_tokens: int
    output_tokens: int
    cost_pico: int
    bound_at_us: int  # after this, and with its transport closed, slot and KV are given back


class Attempt(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "attempt"
    UNIQUE: ClassVar[Unique] = (("attempt_id",),)
    INDEXES: ClassVar[Indexes] = (Index("attempt_request", "request_id"),)
    TAKEN: ClassVar[tuple[str, ...]] = (
        "EXISTS (SELECT 1 FROM route_decision "
        "WHERE request_id = substr(NEW.attempt_id, 1, length(NEW.attempt_id) - 2) "
        "AND request_id || '.0' = NEW.attempt_id AND attempt_kind IS NOT NULL)",
    )
    attempt_id: str
    request_id: str
    ordinal: int
    kind: str  # primary | retry | fallback | hedge
    route_id: str
    identity_id: str
    provider_kind: str
    started_at_us: int


class AttemptEvent(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "attempt_event"
    VERSION: ClassVar[int] = 3
    SINCE: ClassVar[dict[str, int]] = {
        "rate_key": 2,
        "usage_convention": 2,
        "usage_json": 2,
        "service_tier": 3,
    }
    INDEXES: ClassVar[Indexes] = (Index("attempt_event_request", "request_id"),)
    attempt_id: str
    request_id: str
    event: str  # ended | cancel_sent | cancel_acknowledged
    at_us: int
    outcome: str | None = None  # an end state, of event `ended`
    provider_request_id: str | None = None
    error_code: str | None = None
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    usage_source: str | None = None  # counted | provider | estimated
    cost_pico: int | None = None
    rate_key: str | None = None  # the rate that priced it: each attempt has its own (CST-8)
    usage_convention: str | None = None  # as on the receipt
    usage_json: str | None = None  # as on the receipt
    service_tier: str | None = None  # the provider's word for where it ran, if it said one


class Settlement(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "settlement"
    UNIQUE: ClassVar[Unique] = (("reservation_id",),)  # ends once (LED-6)
    INDEXES: ClassVar[Indexes] = (Index("settlement_time", "settled_at_us"),)
    TAKEN: ClassVar[tuple[str, ...]] = (
        "EXISTS (SELECT 1 FROM receipt WHERE request_id = NEW.reservation_id AND closes = 1)",
    )
    reservation_id: str  # unique: a reservation is settled once
    request_id: str
    kind: str  # posted | voided | written_off
    settled_at_us: int
    cost_pico: int
    overrun_pico: int = 0
    settled_by: str = "gateway"


class Receipt(Record, frozen=True, kw_only=True):
    """What one request was, got and cost (SPEC 9). Its prev_hash is the entry_hash of seq - 1."""

    TABLE: ClassVar[str] = "receipt"
    VERSION: ClassVar[int] = 4
    SINCE: ClassVar[dict[str, int]] = {
        "usage_convention": 2,
        "usage_json": 2,
        "cost_other_pico": 2,
        "ttft_objective_us": 3,
        "tpot_objective_us": 3,
        "closes": 4,
        "provider_request_id": 4,
        "service_tier": 4,
    }
    UNIQUE: ClassVar[Unique] = (("request_id", "revision"),)
    TAKEN: ClassVar[tuple[str, ...]] = (
        "NEW.closes = 1 AND (NEW.revision != 0 OR EXISTS "
        "(SELECT 1 FROM settlement WHERE reservation_id = NEW.request_id))",
    )
    INDEXES: ClassVar[Indexes] = (
        Index("receipt_time", "accepted_at_us"),
        Index("receipt_tenant", "tenant_id", "accepted_at_us"),
        Index("receipt_status", "status", "accepted_at_us", unless=_MOST),
        Index("receipt_tenant_status", "tenant_id", "status", "accepted_at_us", unless=_MOST),
        Index("receipt_route", "route_id", "accepted_at_us", present=True),
        Index("receipt_reason", "terminal_error_code", "accepted_at_us", present=True),
        Index("receipt_model", "logical_model", "accepted_at_us"),
    )
    request_id: str
    revision: int  # 0, then 1 for the receipt that resolves an unknown, …
    resolves_hash: bytes | None  # entry_hash of the receipt that this one resolves
    tenant_id: str
    key_id: str
    priority: str
    user_path: str
    task_type: str
    status: str  # completed | rejected | cancelled | failed | unknown
    logical_model: str
    identity_id: str | None
    route_id: str | None
    route_reason: str
    policy_revision: str
    prediction_revision: str | None
    snapshot_revision: int | None
    rate_table_version: str
    rate_key: str | None  # the rate that priced it
    tokenizer_revision: str | None
    release_id: str | None
    arm: str | None
    degraded_from: str | None
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    usage_source: str | None  # counted | provider | estimated
    counted_by: str  # tokenizer | trace
    queue_us: int | None
    prefill_us: int | None
    first_decode_us: int | None
    first_byte_network_us: int | None
    decode_us: int | None
    first_token_us: int | None
    itl_mean_us: int | None
    itl_p50_us: int | None
    itl_p95_us: int | None
    itl_max_us: int | None
    e2e_us: int
    cancel_ack_us: int | None
    cost_input_pico: int
    cost_cached_input_pico: int
    cost_output_pico: int
    cost_fixed_pico: int
    cost_retry_and_hedge_pico: int
    cost_total_pico: int
    cost_estimated_pico: int | None
    terminal_error_code: str | None
    schema_valid: int | None  # null where no schema was asked for
    deadline_us: int
    max_output_tokens: int
    attempts: int
    simulated: int  # 0 or 1
    accepted_at_us: int  # of a rejected request: received
    ended_at_us: int
    tags_json: str = "{}"
    usage_convention: str | None = None  # ledger.usage: how a provider's count is read; null: ours
    usage_json: str | None = None  # tokens of further meters, {"reasoning":20}; null where none
    cost_other_pico: int = 0  # of further meters; the other components hold none of it
    ttft_objective_us: int | None = None  # what its caller wished for
    tpot_objective_us: int | None = None  # per output token after the first
    closes: int = 0  # 1: it carries its only attempt's end, and the settlement of its reservation
    provider_request_id: str | None = None  # of that attempt
    service_tier: str | None = None  # of that attempt


class TraceEvent(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "trace_event"
    VERSION: ClassVar[int] = 2
    SINCE: ClassVar[dict[str, int]] = {"trace_id": 2}
    INDEXES: ClassVar[Indexes] = (Index("trace_event_request", "request_id"),)
    LABEL: ClassVar[str] = "request_id"
    event: str
    request_id: str
    observed_at_us: int
    policy_revision: str
    route_id: str | None
    reasons: str  # space-separated
    budget_json: str
    snapshot_revision: int | None
    trace_id: str | None = None  # W3C, 32 hexadecimal digits


class IdempotencyKey(Record, frozen=True, kw_only=True):
    """Which request a tenant's Idempotency-Key stands for (LED-5). Neither key nor body is kept."""

    TABLE: ClassVar[str] = "idempotency_key"
    UNIQUE: ClassVar[Unique] = (("tenant_id", "key_mac"),)
    tenant_id: str
    key_mac: bytes  # HMAC with the instance's key: a short key or body could be guessed (SEC-1)
    body_mac: bytes
    request_id: str
    claimed_at_us: int
