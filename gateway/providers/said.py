"""What a backend said, in one form for every protocol: chunks, their end, errors (PRV-2). Pure.

Texts of errors are never kept: they may quote the prompt (SEC-1).
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from gateway.quiet import Quiet
from gateway.submission import ToolCallPiece
from ledger.rates import Meters, Usage
from ledger.usage import Convention, count_of, normalise

REPORTED_TOKENS_LIMIT = 100_000_000
"""A count above it is no count: it is treated as missing."""
BYTES_PER_TOKEN = 4
"""To estimate a whole answer whose server neither streams nor counts."""

FinishReason = Literal["stop", "length", "tool_calls"]

FINISHED: Mapping[str, FinishReason] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
NOT_FINISHED: Mapping[str, str] = {
    "content_filter": "PROVIDER_CONTENT_FILTER",
    "abort": "PROVIDER_ABORTED",
    "cancelled": "PROVIDER_ABORTED",
    "error": "PROVIDER_STREAM_ERROR",
}
"""Finish reasons by which a server says that the answer is not whole, with our code for each."""
FINISH_UNKNOWN = "PROVIDER_FINISH_UNKNOWN"

TOOL_CALLS_LIMIT = 128  # of an answer
NO_INDEX = -1
"""Of a tool call's piece whose server gives none: Ollama, Gemini, and whole messages."""

_CLIENT_ERROR_TYPES = frozenset({"badrequesterror", "invalid_request_error"})
_HTTP_STATUS = re.compile(r"[1-5][0-9]{2}")
_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")


class Reported(Quiet, frozen=True, kw_only=True, gc=False):
    """Usage as a server reported it; None: that count is missing or no count.

    `convention` is how it counts (ledger.usage), `meters` are further counts inside these three.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    meters: Meters = ()
    convention: str | None = None
    service_tier: str = ""


class Chunk(Quiet, frozen=True, kw_only=True, gc=False):
    """One chunk: `deltas` tokens' worth came with it, at least; `text` of it may be shown.

    `version` is the model's version, where the server says with each chunk which one it is.
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"text", "logprobs_json"})

    provider_id: str | None = None
    text: str = ""
    deltas: int = 0
    finish_reason: str | None = None
    reported: Reported | None = None
    choices: int = 0
    tool_calls: tuple[ToolCallPiece, ...] = ()
    logprobs_json: str | None = None
    version: str | None = None


class Done(Quiet, frozen=True, kw_only=True, gc=False):
    """The [DONE] mark."""


class StreamError(Quiet, frozen=True, kw_only=True, gc=False):
    """An error object inside a 200 answer. `temporary`: another attempt may pass."""

    temporary: bool


class Garbage(Quiet, frozen=True, kw_only=True, gc=False):
    """Data that is no JSON object, or one that can't be part of an answer."""


class Texts(Quiet, frozen=True, kw_only=True, gc=False):
    """Chunks that came together and are `like` one another but for their texts, never none.

    `text` is the `count` texts one after the other, `encoded` each of them as a JSON string;
    `size_bytes` is how much of a stream they were.
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"like", "text", "encoded"})

    like: Chunk
    text: str
    count: int
    encoded: tuple[bytes, ...]
    size_bytes: int


Said = Chunk | Done | StreamError | Garbage


def error_of(body: dict[str, Any]) -> Any:
    """Return the error that a body is, in any of the four common shapes; None where it is none.

    {"error": {…}}, {"error": "text"}, {"object": "error", "message": …}, {"detail": …}.
    """
    if body.get("error"):
        return body["error"]
    if body.get("object") == "error" or (body.get("detail") and "choices" not in body):
        return body
    return None


def temporary(error: Any) -> bool:
    """Whether neither code nor type says a client's mistake (4xx but 408, 409, 425, 429)."""
    if not isinstance(error, dict):
        return True
    code = error.get("code")
    if isinstance(code, str) and _HTTP_STATUS.fullmatch(code):
        code = int(code)
    if str(error.get("type")).lower() in _CLIENT_ERROR_TYPES:
        return False
    if not isinstance(code, int):
        return True
    return not 400 <= code < 500 or code in (408, 409, 425, 429)


def estimated_tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def provider_id(value: object) -> str | None:
    """Return a provider's request id if it looks like one, so that no text can pass as an id."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def count(value: object) -> int | None:
    """Return a count that can be one: a whole number from 0 to the limit. A zero is a zero."""
    return count_of(value, REPORTED_TOKENS_LIMIT)


def reported_by(convention: Convention, body: dict[str, Any]) -> Reported | None:
    """Return the counts that a body reports, read by a convention; None where it has none."""
    told = normalise(convention, body)
    if told is None:
        return None
    usage = told.usage
    given = None if "input" in told.doubts else count(usage.input_tokens)
    made = None if "output" in told.doubts else count(usage.output_tokens)
    whole = given is not None and made is not None
    return Reported(
        input_tokens=given,
        output_tokens=made,
        cached_input_tokens=usage.cached_input_tokens,
        meters=usage.meters if whole else (),
        convention=told.convention,
        service_tier=told.service_tier,
    )


def usage_of(
    reported: Reported | None, *, input_tokens: int, deltas: int
) -> tuple[Usage, Literal["provider", "estimated"]]:
    """Return the usage to be priced, and whether the provider reported it (CST-6).

    A missing input count is admission's, a missing output count the number of deltas; either makes
    it an estimate. Cached tokens are inside the input and never more than it.
    """
    told = reported or Reported()
    complete = told.input_tokens is not None and told.output_tokens is not None
    used_input = input_tokens if told.input_tokens is None else told.input_tokens
    usage = Usage(
        input_tokens=used_input,
        output_tokens=deltas if told.output_tokens is None else told.output_tokens,
        cached_input_tokens=min(used_input, told.cached_input_tokens or 0),
        meters=told.meters,
    )
    return usage, "provider" if complete else "estimated"
