"""What an OpenAI-compatible server says, asked what became of a request (PRV-3). Pure.

Only an end that it states is one: a request that still runs, that it doesn't know, or of which it
gives no counts stays an unknown. The text of the answer is not looked at.
"""

from typing import Any

import orjson

from gateway.providers.openai_shapes import read_chunk
from gateway.providers.outcomes import Cancelled, Completed, Failed, Outcome
from gateway.providers.said import (
    FINISH_UNKNOWN,
    FINISHED,
    NOT_FINISHED,
    Chunk,
    Reported,
    count,
    provider_id,
    usage_of,
)
from ledger.rates import Usage

SAID_FAILED = "PROVIDER_SAID_FAILED"
SAID_CANCELLED = "PROVIDER_SAID_CANCELLED"


def chat_outcome(body: bytes) -> Outcome | None:
    """Return the end of a stored chat completion; None where it has no finish or no usage."""
    told = _object(body)
    chunk = None if told is None else read_chunk(told)
    if not isinstance(chunk, Chunk) or chunk.finish_reason is None:
        return None
    usage = _complete(chunk.reported)
    if usage is None:
        return None
    finish = FINISHED.get(chunk.finish_reason)
    if finish is None:
        reason = NOT_FINISHED.get(chunk.finish_reason, FINISH_UNKNOWN)
        return Failed(usage=usage, provider_request_id=chunk.provider_id, reason=reason)
    return Completed(usage=usage, provider_request_id=chunk.provider_id, finish_reason=finish)


def response_outcome(body: bytes) -> Outcome | None:
    """Return the end of a response by its `status`; None of one in progress or without usage."""
    told = _object(body)
    if told is None or told.get("status") not in ("completed", "incomplete", "failed", "cancelled"):
        return None
    usage, named = _complete(_response_usage(told.get("usage"))), provider_id(told.get("id"))
    if usage is None:
        return None  # nothing says what it used, so it stays open
    if told["status"] == "failed":
        return Failed(usage=usage, provider_request_id=named, reason=SAID_FAILED)
    if told["status"] == "cancelled":
        return Cancelled(usage=usage, provider_request_id=named, reason=SAID_CANCELLED)
    details = told.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    if told["status"] == "incomplete" and reason != "max_output_tokens":
        code = NOT_FINISHED.get(str(reason), FINISH_UNKNOWN)
        return Failed(usage=usage, provider_request_id=named, reason=code)
    return Completed(
        usage=usage,
        provider_request_id=named,
        finish_reason="length" if told["status"] == "incomplete" else "stop",
    )


def _response_usage(usage: object) -> Reported | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("input_tokens_details")
    return Reported(
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        cached_input_tokens=count(details.get("cached_tokens"))
        if isinstance(details, dict)
        else None,
    )


def _complete(told: Reported | None) -> Usage | None:
    usage, source = usage_of(told, input_tokens=0, deltas=0)
    return usage if source == "provider" else None


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return told if isinstance(told, dict) else None
