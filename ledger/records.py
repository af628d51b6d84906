"""Every append-only record, field by field: the one truth for tables, hashes and rows (SPEC 2).

`ledger.models` makes a table of each, `ledger.chain` hashes the fields in this order, and
`ledger.store` writes them. To add a field: append it here with a default, raise the record's
VERSION, name the field and that version in SINCE, and make the migration; older rows keep their
version and hash.

Integers, text, bytes and None alone: no float, no decimal, no time but integer microseconds UTC.
Fields named `*_json` hold canonical JSON text.
"""

from typing import ClassVar

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An append-only row. The store adds `seq`, `v` and `entry_hash`."""

    TABLE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    SINCE: ClassVar[dict[str, int]] = {}  # field -> version that brought it, where that is not 1


class ModelIdentity(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "model_identity"
    identity_id: str  # hash of the eight fields below
    logical_model: str
    weights_revision: str
    tokenizer_revision: str
    runtime_name: str
    runtime_revision: str
    quantization: str
    serving_config_revision: str
    prompt_policy_revision: str


class RateTableRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "rate_table"
    version: str
    effective_from_us: int
    currency: str
    body_json: str  # ledger.rates.RateTable
    published_at_us: int
    published_by: str


class RoutePolicyRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "route_policy"
    revision: str
    body_json: str  # gateway.policy.values.RoutePolicy
    published_at_us: int
    published_by: str


class Tenant(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "tenant"
    tenant_id: str
    revision: int  # 1, 2, …: the highest is in force
    body_json: str  # quotas and defaults
    changed_at_us: int
    changed_by: str


class ApiKey(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "api_key"
    key_id: str
    tenant_id: str
    prefix: str  # shown; the key itself is shown once, at creation
    key_hash: bytes  # sha256 of the whole key, which has 256 random bits
    scopes: str  # space-separated
    created_at_us: int
    created_by: str
    expires_at_us: int | None = None


class ApiKeyRevocation(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "api_key_revocation"
    key_id: str
    revoked_at_us: int
    revoked_by: str
    reason: str


class EvaluationResult(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "evaluation_result"
    evaluation_id: str
    suite: str
    identity_id: str
    score_milli: int
    passed: int  # 0 or 1
    measured_at_us: int
    evidence: str  # a reference, never content


class CapacitySnapshotRecord(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "capacity_snapshot"
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


class Reservation(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "reservation"
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


class Settlement(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "settlement"
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


class TraceEvent(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "trace_event"
    event: str
    request_id: str
    observed_at_us: int
    policy_revision: str
    route_id: str | None
    reasons: str  # space-separated
    budget_json: str
    snapshot_revision: int | None


class ControlAction(Record, frozen=True, kw_only=True):
    TABLE: ClassVar[str] = "control_action"
    action: str
    subject: str
    actor: str  # an operator, a command or a rule
    acted_at_us: int
    reason: str
    before_json: str
    after_json: str
    evidence: str = ""


class IdempotencyKey(Record, frozen=True, kw_only=True):
    """Which request a tenant's Idempotency-Key stands for (LED-5). Neither key nor body is kept."""

    TABLE: ClassVar[str] = "idempotency_key"
    tenant_id: str
    key_mac: bytes  # HMAC with the instance's key: a short key or body could be guessed (SEC-1)
    body_mac: bytes
    request_id: str
    claimed_at_us: int


RECORDS: tuple[type[Record], ...] = (
    ModelIdentity,
    RateTableRecord,
    RoutePolicyRecord,
    Tenant,
    ApiKey,
    ApiKeyRevocation,
    EvaluationResult,
    CapacitySnapshotRecord,
    RouteDecision,
    Reservation,
    Attempt,
    AttemptEvent,
    Settlement,
    Receipt,
    TraceEvent,
    ControlAction,
    IdempotencyKey,
)
