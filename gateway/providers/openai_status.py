"""What an OpenAI-compatible server says, asked what became of a request (PRV-3). Pure.

Only an end that it states is one: a request that still runs, that it doesn't know, or of which it
gives no counts stays an unknown. The text of the answer is not looked at.
"""

from typing import Any

import orjson
from msgspec.structs import replace

from gateway.providers.openai_shapes import read_chunk
from gateway.providers.outcomes import Cancelled, Completed, Failed, Outcome
from gateway.providers.said import (
    FINISH_UNKNOWN,
    FINISHED,
    NOT_FINISHED,
    Chunk,
    Reported,
    provider_id,
    reported_by,
    usage_of,
)
from ledger.rates import Usage
from ledger.usage import Convention, convention_of

RESPONSES = convention_of("openai-responses")
SAID_FAILED = "PROVIDER_SAID_FAILED"
SAID_CANCELLED = "PROVIDER_SAID_CANCELLED"


def chat_outcome(body: bytes, convention: Convention) -> Outcome | None:
    """Return the end of a stored chat completion; None where it has no finish or no usage."""
    told = _object(body)
    chunk = None if told is None else read_chunk(told, convention)
    if not isinstance(chunk, Chunk) or chunk.finish_reason is None:
        return None
    usage, reported = _complete(chunk.reported), chunk.reported
    if usage is None or reported is None:
        return None
    finish = FINISHED.get(chunk.finish_reason)
    if finish is None:
        end: Outcome = Failed(
            usage=usage, reason=NOT_FINISHED.get(chunk.finish_reason, FINISH_UNKNOWN)
        )
    else:
        end = Completed(usage=usage, finish_reason=finish)
    return replace(
        end,
        usage_convention=convention.name,
        provider_request_id=chunk.provider_id,
        service_tier=reported.service_tier,
    )


def response_outcome(body: bytes) -> Outcome | None:
    """Return the end of a response by its `status`; None of one in progress or without usage."""
    told = _object(body)
    reported = None if told is None else reported_by(RESPONSES, told)
    usage = _complete(reported)
    end = None if told is None or usage is None else _response_end(told, usage)
    if told is None or reported is None or end is None:
        return None
    return replace(
        end,
        usage_convention=RESPONSES.name,
        provider_request_id=provider_id(told.get("id")),
        service_tier=reported.service_tier,
    )


def _response_end(told: dict[str, Any], usage: Usage) -> Outcome | None:
    details = told.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    match told.get("status"):
        case "completed":
            return Completed(usage=usage, finish_reason="stop")
        case "incomplete" if reason == "max_output_tokens":
            return Completed(usage=usage, finish_reason="length")
        case "incomplete":
            return Failed(usage=usage, reason=NOT_FINISHED.get(str(reason), FINISH_UNKNOWN))
        case "failed":
            return Failed(usage=usage, reason=SAID_FAILED)
        case "cancelled":
            return Cancelled(usage=usage, reason=SAID_CANCELLED)
    return None


def _complete(told: Reported | None) -> Usage | None:
    usage, source = usage_of(told, input_tokens=0, deltas=0)
    return usage if source == "provider" else None


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return told if isinstance(told, dict) else None
