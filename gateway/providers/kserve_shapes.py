"""The Open Inference Protocol's generate extension, asked and read (PRV-1, CST-6). Pure.

Known: the protocol's own two editions of the stream's end (`done`, `details.finish_reason`), and
Triton's vLLM and TensorRT-LLM backends (`finish_reason`, `num_input_tokens`, `num_output_tokens`).
"""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.providers.base import Call
from gateway.providers.kserve_address import Backend, Counts, Template
from gateway.providers.said import (
    Chunk,
    Done,
    Garbage,
    Reported,
    Said,
    StreamError,
    count,
    error_of,
    estimated_tokens,
    provider_id,
    reported_by,
    temporary,
)
from gateway.providers.split_pairs import SplitPairs
from gateway.providers.sse_reader import SseEvent
from gateway.submission import Message
from ledger.usage import convention_of

TRITON = convention_of("triton-generate")
NO_COUNT = -1  # a total that isn't known, which no reader takes for a count
_COUNTED = ("num_input_tokens", "num_output_tokens")


def request_fields(call: Call, backend: Backend) -> dict[str, Any]:
    """Return the request's JSON object, its parameters without those to be left out."""
    asked = call.parameters
    told = True if backend.counts is not None else None
    parameters: dict[str, Any] = {
        "max_tokens": call.max_output_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
        "stop": list(asked.stop) or None,
        "seed": call.seed,
        "ignore_eos": call.ignore_eos or None,
        "stream": told and backend.streams,
        "exclude_input_in_output": told,
        "return_finish_reason": told,
        "return_num_input_tokens": told,
        "return_num_output_tokens": told,
    }
    return {
        "text_input": prompt_text(call.messages, backend.template),
        "parameters": {
            name: value
            for name, value in parameters.items()
            if value is not None and name not in call.without
        },
    }


def prompt_text(messages: Sequence[Message], template: Template) -> str:
    """Return the messages as one text, which is all that the protocol takes."""
    if template == "none":
        return "\n".join(message.content for message in messages)
    return "".join(f"{each.role}: {each.content}\n" for each in messages) + "assistant:"


class Reader:
    """Reads one answer's events; it adds up counts that come as those of each chunk."""

    def __init__(self, counts: Counts | None) -> None:
        self._counts = counts
        self._totals: dict[str, int] = {}
        self._pairs = SplitPairs()

    def event(self, event: SseEvent) -> Said:
        """Return what one event of a stream says."""
        if event.data.strip() == b"[DONE]":
            return Done()
        return self._read(event, whole=False)

    def whole(self, event: SseEvent) -> Said:
        """Return what a body says that is a whole answer: it has finished, told so or not."""
        return self._read(event, whole=True)

    def _read(self, event: SseEvent, *, whole: bool) -> Said:
        failed = event.name == "error"
        body = self._body(event.data)
        if not isinstance(body, dict):
            return StreamError(temporary=True) if failed else Garbage()
        error = error_of(body)
        if error is not None or failed:
            return StreamError(temporary=temporary(body if error is None else error))
        text = body.get("text_output")
        if not isinstance(text, str):
            return Garbage()
        ended = whole or body.get("done") is True
        version = body.get("model_version")
        return Chunk(
            provider_id=provider_id(body.get("id")),
            text=text,
            deltas=estimated_tokens(text) if whole else int(bool(text)),
            finish_reason=_finish(body) or ("stop" if ended else None),
            reported=self._reported(body),
            choices=1,
            version=version if isinstance(version, str) and version else None,
        )

    def _body(self, data: bytes) -> Any:
        """Return an event's JSON, its text's characters whole; None where it is none."""
        body = _loaded(data)
        if body is not None and not (self._pairs.held and _has_text(body)):
            return body
        mended = self._pairs.mended(data)
        return None if mended is None else _loaded(mended)

    def _reported(self, body: dict[str, Any]) -> Reported | None:
        """Return the counts of the answer so far; None where the server doesn't tell them."""
        if self._counts is None:
            return None
        for name in _COUNTED:
            if body.get(name) is None:
                continue
            told, known = count(body[name]), self._totals.get(name, 0)
            adds = self._counts == "deltas" and name == "num_output_tokens"
            if told is None or (adds and known == NO_COUNT):
                self._totals[name] = NO_COUNT  # a sum without it would be too low
            else:
                self._totals[name] = told + (known if adds else 0)
        return reported_by(TRITON, self._totals)


def _loaded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _has_text(body: Any) -> bool:
    return isinstance(body, dict) and bool(body.get("text_output"))


def _finish(body: dict[str, Any]) -> str | None:
    details = body.get("details")
    told = body.get("finish_reason")
    if told is None and isinstance(details, dict):
        told = details.get("finish_reason")
    return told if isinstance(told, str) and told else None
