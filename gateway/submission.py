"""What the API hands to the journey, and what the journey hands back."""

from typing import ClassVar

from gateway.policy.values import Priority, UserPath
from gateway.quiet import Quiet
from gateway.trace_context import TraceContext
from ledger.records import Receipt


class Message(Quiet, frozen=True, kw_only=True, gc=False):
    """One chat message. Its text lives in memory only, for as long as the request does (SEC-1)."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"content", "tool_calls_json"})

    role: str
    content: str
    tool_calls_json: str | None = None  # of an assistant: OpenAI's array, as canonical JSON text
    tool_call_id: str | None = None  # of a tool: the call that it answers


class Caller(Quiet, frozen=True, kw_only=True, gc=False):
    """Who asks: the tenant, by which key, with which scopes."""

    tenant_id: str
    key_id: str
    scopes: frozenset[str]


class Claim(Quiet, frozen=True, kw_only=True, gc=False):
    """An Idempotency-Key as the ledger may keep it: HMACs of the key and of the body (LED-5)."""

    key_mac: bytes
    body_mac: bytes


class Parameters(Quiet, frozen=True, kw_only=True, gc=False):
    """How an answer is to be made, as its caller asked; None: as the provider does by itself.

    What ends in `_json` is OpenAI's value as canonical JSON text, passed on as it is. Nothing of
    this is recorded: a stop sequence or a schema can quote the prompt (SEC-1).
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset(
        {"stop", "logit_bias_json", "tool_choice_json", "response_format_json"}
    )

    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] = ()
    logit_bias_json: str | None = None
    tool_choice_json: str | None = None
    parallel_tool_calls: bool | None = None
    response_format_json: str | None = None
    reasoning_effort: str | None = None
    logprobs: bool = False
    top_logprobs: int | None = None


class Submission(Quiet, frozen=True, kw_only=True, gc=False):
    """A parsed, authenticated request before it is weighed. None: filled from the defaults."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"messages", "tools_json", "schema"})

    caller: Caller
    logical_model: str
    messages: tuple[Message, ...]
    stream: bool = False
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    deadline_ms: int | None = None
    patience_ms: int | None = None  # the caller is gone after it: bounds a deadline by default
    max_cost_pico: int | None = None
    ttft_objective_us: int | None = None
    tpot_objective_us: int | None = None
    priority: Priority = "interactive"
    user_path: UserPath = "interactive"
    task_type: str = "chat"
    required_capabilities: tuple[str, ...] = ()
    allowed_regions: tuple[str, ...] = ()
    quality_floor_milli: int = 0
    side_effects: bool = False
    session_id: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    tools_json: str | None = None  # counted, never recorded
    schema: dict[str, object] | None = None
    ignore_eos: bool = False
    seed: int | None = None
    parameters: Parameters = Parameters()
    claim: Claim | None = None
    trace: TraceContext | None = None


class Filed(Quiet, frozen=True, kw_only=True, gc=False):
    """A receipt that is durable: the record, with its place and hashes in the chain."""

    receipt: Receipt
    seq: int
    prev_hash: bytes
    entry_hash: bytes


class Refusal(Quiet, frozen=True, kw_only=True, gc=False):
    """A rejection (ADM-3), filed. Its HTTP status, code, limits and advice are in `decision`."""

    request_id: str
    reason_code: str
    http_status: int
    retryable: bool
    retry_after_ms: int | None
    limits: tuple[tuple[str, int, int], ...]  # name, limit, observed
    conditional_on: tuple[str, ...]
    caller_action: str
    filed: Filed


class ToolCallPiece(Quiet, frozen=True, kw_only=True, gc=False):
    """A piece of one tool call of an answer; pieces with the same index belong together.

    The first piece of an index has its id and name; the arguments are the pieces' one after the
    other, JSON text that is whole only at the end.
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"arguments"})

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""


class Delta(Quiet, frozen=True, kw_only=True, gc=False):
    """A piece of the answer as it arrives: `tokens` tokens' worth of text or of tool calls.

    `encoded`: where its text came in several parts at once, each of them as a JSON string.
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"text", "logprobs_json", "encoded"})

    text: str
    tokens: int
    tool_calls: tuple[ToolCallPiece, ...] = ()
    logprobs_json: str | None = None  # OpenAI's `logprobs` of a choice
    encoded: tuple[bytes, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether there is nothing in it to pass on."""
        return not (self.text or self.tool_calls or self.logprobs_json)

    @property
    def size_chars(self) -> int:
        """Return how much of it memory holds, in characters."""
        if not self.tool_calls and self.logprobs_json is None:
            return len(self.text)
        calls = sum(len(call.arguments) + len(call.name or "") for call in self.tool_calls)
        return len(self.text) + calls + len(self.logprobs_json or "")


class Ended(Quiet, frozen=True, kw_only=True, gc=False):
    """The end of a journey: how the answer finished, and its durable receipt."""

    finish_reason: str | None  # stop | length | tool_calls | None where it did not finish
    filed: Filed
    nothing_ran: bool = (
        False  # no backend had any of its attempts, or each refused: nothing is owed
    )
    retry_after_ms: int | None = None  # as a backend that refused asked
