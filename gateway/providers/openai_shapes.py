"""The shapes in which OpenAI-compatible servers answer, read into one (PRV-2, CST-6). Pure.

Known: vLLM, SGLang, llama.cpp, Dynamo, transformers serve and hosted APIs. Texts of errors are
never kept: they may quote the prompt (SEC-1).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from gateway.providers.base import Call
from gateway.providers.openai_address import Backend
from gateway.providers.sse_reader import SseEvent
from gateway.submission import Message
from ledger.rates import Usage

DONE = b"[DONE]"
REPORTED_TOKENS_LIMIT = 100_000_000
"""A count above it is no count: it is treated as missing."""
SCHEMA_NAME = "answer"
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

_CLIENT_ERROR_TYPES = frozenset({"badrequesterror", "invalid_request_error"})
_HTTP_STATUS = re.compile(r"[1-5][0-9]{2}")
_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Usage as a server reported it; None: that count is missing or no count."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk: `deltas` tokens' worth came with it, at least; `text` of it may be shown."""

    provider_id: str | None = None
    text: str = ""
    deltas: int = 0
    finish_reason: str | None = None
    reported: Reported | None = None
    choices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The [DONE] mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamError:
    """An error object inside a 200 answer. `temporary`: another attempt may pass."""

    temporary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Data that is no JSON object."""


def read_event(event: SseEvent) -> Chunk | Done | StreamError | Garbage:
    """Return what one event says. An event named `error` is an error whatever its data is."""
    if event.data.strip() == DONE:
        return Done()
    try:
        body = orjson.loads(event.data)
    except orjson.JSONDecodeError:
        return StreamError(temporary=True) if event.name == "error" else Garbage()
    if not isinstance(body, dict):
        return StreamError(temporary=True) if event.name == "error" else Garbage()
    error = _error_of(body)
    if error is None and event.name == "error":
        error = body
    if error is not None:
        return StreamError(temporary=_temporary(error))
    return _chunk(body)


def _error_of(body: dict[str, Any]) -> Any:
    """Return the error that a body is, in any of the four common shapes; None where it is none.

    {"error": {…}}, {"error": "text"}, {"object": "error", "message": …}, {"detail": …}.
    """
    if body.get("error"):
        return body["error"]
    if body.get("object") == "error" or (body.get("detail") and "choices" not in body):
        return body
    return None


def _temporary(error: Any) -> bool:
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


def _chunk(body: dict[str, Any]) -> Chunk:
    choices = [choice for choice in _list(body.get("choices")) if isinstance(choice, dict)]
    choice = next((choice for choice in choices if choice.get("index", 0) == 0), {})
    whole = "delta" not in choice and isinstance(choice.get("message"), dict)
    part = choice.get("message" if whole else "delta")
    part = part if isinstance(part, dict) else {}
    content = part.get("content")
    text = content if isinstance(content, str) else ""
    # Reasoning and tool calls are output that was generated, and not part of the text.
    unseen = any(part.get(name) for name in ("reasoning_content", "reasoning", "tool_calls"))
    finish = choice.get("finish_reason")
    return Chunk(
        provider_id=provider_id(body.get("id")),
        text=text,
        deltas=_estimated_tokens(text) if whole else int(bool(text) or unseen),
        finish_reason=finish if isinstance(finish, str) and finish else None,
        reported=_reported(body.get("usage")),
        choices=len(choices),
    )


def _estimated_tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def provider_id(value: object) -> str | None:
    """Return a provider's request id if it looks like one, so that no text can pass as an id."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def _reported(usage: object) -> Reported | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        cached = usage.get("prompt_cache_hit_tokens")  # DeepSeek's name; inside the input too
    reported = Reported(
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cached_input_tokens=_count(cached),
    )
    return None if reported == Reported() else reported


def _count(value: object) -> int | None:
    """Return a count that can be one: a whole number from 0 to the limit. A zero is a zero."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= REPORTED_TOKENS_LIMIT else None


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


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
    )
    return usage, "provider" if complete else "estimated"


def request_body(call: Call, backend: Backend) -> bytes:
    """Return the JSON to send: always streamed, so that a cancel works and TTFT is known."""
    body: dict[str, Any] = {
        "model": backend.model,
        "messages": [_message(message) for message in call.messages],
        "max_tokens": call.max_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if call.seed is not None:
        body["seed"] = call.seed
    if call.ignore_eos:
        body["ignore_eos"] = True
    if call.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": SCHEMA_NAME, "schema": call.schema},
        }
    return orjson.dumps(body)


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls_json is not None:
        sent["tool_calls"] = orjson.Fragment(message.tool_calls_json)
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    return sent
