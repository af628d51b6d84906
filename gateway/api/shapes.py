"""The bodies of answers as types, for the OpenAPI document; tests hold real answers against them.

Nothing is encoded with them on the hot path: they say what comes, they don't make it.
"""

from typing import Any, Literal

import msgspec

Milliseconds = float | int | None
Status = Literal["completed", "rejected", "cancelled", "failed", "unknown"]


class Shape(msgspec.Struct, kw_only=True):
    """A JSON object; what a later version adds is no break."""


class LimitShape(Shape):
    name: str
    limit: int | None
    observed: int | None


class ErrorDetail(Shape):
    message: str
    type: str
    param: str | None
    code: str
    retryable: bool
    retry_after_ms: int | None
    limits: list[LimitShape]
    conditional_on: list[str]
    caller_action: str
    request_id: str | None


class IdentityShape(Shape):
    logical_model: str
    weights_revision: str
    tokenizer_revision: str
    runtime_name: str
    runtime_revision: str
    quantization: str
    serving_config_revision: str
    prompt_policy_revision: str


class CostShape(Shape):
    currency: str
    total_units: str | None
    total_pico: int | None
    estimated_at_admission_units: str | None
    estimated_at_admission_pico: int | None


class ItlShape(Shape):
    mean_ms: Milliseconds
    p50_ms: Milliseconds
    p95_ms: Milliseconds
    max_ms: Milliseconds


class ObjectivesShape(Shape):
    ttft_ms: Milliseconds
    ttft_met: bool | None
    tpot_ms: Milliseconds
    tpot_met: bool | None


class ReceiptShape(Shape):
    request_id: str
    revision: int
    tenant_id: str
    key_id: str
    priority: str
    user_path: str
    task_type: str
    status: Status
    logical_model: str
    model_identity_id: str | None
    model_identity: IdentityShape | None
    route_id: str | None
    route_reason: str | None
    policy_revision: str
    prediction_revision: str | None
    snapshot_revision: int | None
    rate_table_version: str
    rate_key: str | None
    unpriced: bool
    tokenizer_revision: str | None
    release_id: str | None
    arm: str | None
    degraded: bool
    degraded_from: str | None
    simulated: bool
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    max_output_tokens: int
    usage_source: str
    usage_convention: str | None
    further_meters: dict[str, int]
    counted_by: str | None
    queue_ms: Milliseconds
    prefill_ms: Milliseconds
    first_decode_ms: Milliseconds
    first_byte_network_ms: Milliseconds
    decode_ms: Milliseconds
    first_token_ms: Milliseconds
    e2e_ms: Milliseconds
    cancel_ack_ms: Milliseconds
    itl: ItlShape
    objectives: ObjectivesShape | None
    deadline_ms: Milliseconds
    cost: CostShape
    attempts: int
    terminal_error_code: str | None
    schema_valid: bool | None
    accepted_at: str
    ended_at: str
    tags: dict[str, str]
    seq: int
    resolves_hash: str | None
    prev_hash: str | None
    entry_hash: str


class OpenAIError(Shape):
    """A failure on /v1; `receipt` where the request got one."""

    error: ErrorDetail
    receipt: ReceiptShape | None = None


class ProblemShape(Shape):
    """A problem of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    caller_action: str
    request_id: str | None
    problems: list[str] | None = None
    limits: list[LimitShape] | None = None
    conditional_on: list[str] | None = None
    receipt: ReceiptShape | None = None


class FunctionShape(Shape):
    name: str
    arguments: str


class CallShape(Shape):
    id: str | None
    type: Literal["function"]
    function: FunctionShape


class MessageShape(Shape):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    tool_calls: list[CallShape] | None = None


class ChoiceShape(Shape):
    index: int
    message: MessageShape
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]


class PromptDetails(Shape):
    cached_tokens: int


class CompletionDetails(Shape):
    reasoning_tokens: int


class UsageShape(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class ChatCompletionShape(Shape):
    """A whole answer; `receipts` instead of `receipt` where n asked for several."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChoiceShape]
    usage: UsageShape
    receipt: ReceiptShape | None = None
    receipts: list[ReceiptShape] | None = None


class TextChoiceShape(Shape):
    index: int
    text: str
    logprobs: None
    finish_reason: Literal["stop", "length", "content_filter"]


class CompletionShape(Shape):
    """A whole answer of the older format."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoiceShape]
    usage: UsageShape
    receipt: ReceiptShape | None = None
    receipts: list[ReceiptShape] | None = None


class ResponseShape(Shape):
    """A response; `usage` and `receipt` once it has ended."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "cancelled", "failed"]
    model: str
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None
    parallel_tool_calls: bool
    tool_choice: Any
    tools: list[dict[str, Any]]
    receipt: ReceiptShape | None = None


class DeletedResponseShape(Shape):
    id: str
    object: Literal["response"]
    deleted: bool


class ModelShape(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsShape(Shape):
    object: Literal["list"]
    data: list[ModelShape]


class RequestShape(Shape):
    """Where a request is; `status` is open until it has a receipt."""

    request_id: str
    status: Status | Literal["open"]
    decided_at: str
    decision: str
    reason_code: str | None
    route_id: str | None
    receipt_revisions: int
    attempts: list[dict[str, Any]]
    attempt_decisions: list[dict[str, Any]]
    receipt: str | None
    decision_record: str


class CancelShape(Shape):
    request_id: str
    cancel: Literal["acknowledged", "not_acknowledged", "too_late", "pending"]
    status: Status | Literal["open"]
    terminal_error_code: str | None
    cancel_ack_ms: Milliseconds
    receipt: str | None


class OutcomesTaken(Shape):
    taken: int
    known: int
    outcome_ids: list[str]


class DryRun(Shape):
    """A decision that was not taken."""

    dry_run: bool
    decided_at: str
    policy_revision: str
    rate_table_version: str
    code_revision: str | int
    model: str
    status: str
    reason_code: str | None
    http_status: int
    route_id: str | None
    candidates: list[dict[str, Any]]
    budget: dict[str, Any]
    tenant: dict[str, Any]


class ReadyShape(Shape):
    ready: bool
    problems: list[str]


class OutputShape(Shape):
    content: str | None
    tool_calls: list[CallShape]
    finish_reason: str


class AnswerShape(Shape):
    """A request's output, or with status `open` where to ask for it."""

    request_id: str
    status: Literal["completed", "open"]
    output: OutputShape | str
    model: str | None = None
    request: str | None = None
    usage: UsageShape | None = None
    receipt: ReceiptShape | None = None


class ReceiptsPage(Shape):
    receipts: list[ReceiptShape]
    next: str | None


class SnapshotsPage(Shape):
    snapshots: list[dict[str, Any]]
    next: str | None


class TraceShape(Shape):
    request_id: str
    events: list[dict[str, Any]]


class AliveShape(Shape):
    status: Literal["ok"]


class OperationsShape(Shape):
    operations: dict[str, Any]


class ProtocolError(Shape):
    """A failure on /v2."""

    error: str
    code: str
    request_id: str | None


class GeneratedShape(Shape):
    model_name: str
    model_version: str
    text_output: str
    finish_reason: str
    num_input_tokens: int
    num_output_tokens: int
    receipt: ReceiptShape
    id: str | None = None


class InferredShape(Shape):
    model_name: str
    model_version: str
    outputs: list[dict[str, Any]]
    id: str | None = None


class ModelMetadata(Shape):
    name: str
    versions: list[str]
    platform: str
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]


class ModelReady(Shape):
    name: str
    ready: bool
