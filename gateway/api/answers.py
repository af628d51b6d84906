"""Chat completion answers as bytes: the whole answer, and the chunks of a stream.

Id, creation time, model and fingerprint are the same in every chunk of an answer. A simulated
answer's fingerprint starts with "sim-" (DLV-7).
"""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.api.http import Header
from gateway.api.ports import Run
from gateway.api.sse import event
from gateway.ids import completion_id
from ledger.records import Receipt

SYSTEM_FINGERPRINT_LIMIT = 200


class Chunks:
    """Writes the chunks of one answer as server-sent events."""

    def __init__(self, run: Run, include_usage: bool) -> None:
        self._head = {**_head(run, "chat.completion.chunk")}
        self._usage: dict[str, Any] = {"usage": None} if include_usage else {}
        self._include_usage = include_usage
        # What is the same in each content chunk is encoded once: this is the hottest line here.
        before, after = orjson.dumps(
            {**self._head, "choices": [_choice({"content": _HERE})], **self._usage}
        ).split(f'"{_HERE}"'.encode())
        self._before, self._after = b"data: " + before, after + b"\n\n"

    def role(self) -> bytes:
        """Returns the first chunk: the role and no text yet."""
        choice = _choice({"role": "assistant", "content": ""})
        return event(orjson.dumps({**self._head, "choices": [choice], **self._usage}))

    def content(self, text: str) -> bytes:
        """Returns a chunk with a piece of the answer's text."""
        return self._before + orjson.dumps(text) + self._after

    def last(self, finish_reason: str, receipt: Receipt, receipt_json: Mapping[str, Any]) -> bytes:
        """Returns what stands before [DONE]: the finish, then the usage where it was asked for.

        The very last chunk carries the receipt, which is durable by then (LED-1).
        """
        finish = {**self._head, "choices": [_choice({}, finish_reason)], **self._usage}
        if not self._include_usage:
            return event(orjson.dumps({**finish, "receipt": receipt_json}))
        usage = {
            **self._head,
            "choices": [],
            "usage": usage_json(receipt),
            "receipt": receipt_json,
        }
        return event(orjson.dumps(finish)) + event(orjson.dumps(usage))


_HERE = "\ue000here"


def completion_body(
    run: Run, text: str, finish_reason: str, receipt: Receipt, receipt_json: Mapping[str, Any]
) -> bytes:
    """Returns the whole answer of a request that isn't streamed."""
    return orjson.dumps(
        {
            **_head(run, "chat.completion"),
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": finish_reason,
                }
            ],
            "usage": usage_json(receipt),
            "receipt": receipt_json,
        }
    )


def usage_json(receipt: Receipt) -> dict[str, Any]:
    """Returns the receipt's tokens under OpenAI's names; cached ones are inside prompt_tokens."""
    return {
        "prompt_tokens": receipt.input_tokens,
        "completion_tokens": receipt.output_tokens,
        "total_tokens": receipt.input_tokens + receipt.output_tokens,
        "prompt_tokens_details": {"cached_tokens": receipt.cached_input_tokens},
    }


def run_headers(run: Run) -> tuple[Header, ...]:
    """Returns the headers that say how the answer came about (FBK-2, DLV-7)."""
    headers = [
        (b"x-weighbridge-route", _header_value(run.route_id)),
        (b"x-weighbridge-degraded", b"true" if run.degraded_from else b"false"),
        (b"x-weighbridge-simulated", b"true" if run.simulated else b"false"),
    ]
    if run.degraded_from:
        headers.append((b"x-weighbridge-degraded-from", _header_value(run.degraded_from)))
    return tuple(headers)


def _header_value(text: str) -> bytes:
    return "".join(c if " " <= c <= "~" else "?" for c in text).encode("ascii")


def _head(run: Run, kind: str) -> dict[str, Any]:
    return {
        "id": completion_id(run.request_id),
        "object": kind,
        "created": run.created_us // 1_000_000,
        "model": run.logical_model,
        "system_fingerprint": run.fingerprint[:SYSTEM_FINGERPRINT_LIMIT],
    }


def _choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
