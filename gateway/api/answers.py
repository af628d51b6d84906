"""Chat completion answers as bytes: the whole answer, and the chunks of a stream.

Id, creation time, model and fingerprint are the same in every chunk of an answer. A simulated
answer's fingerprint starts with "sim-" (DLV-7). An answer with several choices is named by the
first one's request, and has `receipts` where one with a single choice has `receipt`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from gateway.api.choices import Gathered, call_delta
from gateway.api.http import Header
from gateway.api.ports import Run
from gateway.api.sse import DONE, event
from gateway.ids import completion_id
from gateway.submission import Delta
from ledger.receipt_cost import read_meters
from ledger.records import Receipt

SYSTEM_FINGERPRINT_LIMIT = 200
REASONING = "reasoning"  # the meter's name

Receipts = Sequence[tuple[Receipt, Mapping[str, Any]]]
"""Each choice's receipt in order, as the record and as the JSON that clients get."""


class Chunks:
    """Writes the chunks of one answer as server-sent events."""

    def __init__(self, run: Run, include_usage: bool, choices: int = 1) -> None:
        self._head = {**answer_head(run, "chat.completion.chunk")}
        self._usage: dict[str, Any] = {"usage": None} if include_usage else {}
        self._include_usage = include_usage
        # What is the same in each content chunk is encoded once: this is the hottest line here.
        self._around = [self._split(index) for index in range(choices)]

    def role(self, index: int, first: Delta | None = None) -> bytes:
        """Returns a choice's first chunk: the role and no text yet, nor any where a call begins."""
        content = None if first is not None and first.tool_calls and not first.text else ""
        return self._event(_choice(index, {"role": "assistant", "content": content}))

    def piece(self, index: int, piece: Delta) -> bytes:
        """Returns the chunks of a piece of a choice: its text, then its calls' pieces."""
        if piece.logprobs_json is not None:
            choice = _choice(index, {"content": piece.text})
            choice["logprobs"] = orjson.Fragment(piece.logprobs_json)
            text = self._event(choice)
        elif piece.encoded:
            before, after = self._around[index]
            text = before + (after + before).join(piece.encoded) + after
        elif piece.text:
            before, after = self._around[index]
            text = before + orjson.dumps(piece.text) + after
        else:
            text = b""
        if not piece.tool_calls:
            return text
        calls = [call_delta(call) for call in piece.tool_calls]
        return text + self._event(_choice(index, {"tool_calls": calls}))

    def finish(self, index: int, finish_reason: str) -> bytes:
        """Returns the last chunk of a choice that others still follow."""
        return self._event(_choice(index, {}, finish_reason))

    def last(self, index: int, finish_reason: str, receipts: Receipts) -> bytes:
        """Returns the end: the finish, the usage where it was asked for, and [DONE].

        The last chunk carries the receipts, which are durable by then (LED-1).
        """
        choice = _choice(index, {}, finish_reason)
        finish = {**self._head, "choices": [choice], **self._usage}
        if not self._include_usage:
            return event(orjson.dumps({**finish, **receipts_field(receipts)})) + DONE
        usage = {
            **self._head,
            "choices": [],
            "usage": usage_json(receipts),
            **receipts_field(receipts),
        }
        return event(orjson.dumps(finish)) + event(orjson.dumps(usage)) + DONE

    def _event(self, choice: dict[str, Any]) -> bytes:
        return event(orjson.dumps({**self._head, "choices": [choice], **self._usage}))

    def _split(self, index: int) -> tuple[bytes, bytes]:
        chunk = {**self._head, "choices": [_choice(index, {"content": _HERE})], **self._usage}
        before, after = orjson.dumps(chunk).split(f'"{_HERE}"'.encode())
        return b"data: " + before, after + b"\n\n"


_HERE = "\ue000here"


def completion_body(run: Run, choices: Sequence[tuple[Gathered, str]], receipts: Receipts) -> bytes:
    """Returns the whole answer of a request that isn't streamed: each choice, how it finished."""
    return orjson.dumps(
        {
            **answer_head(run, "chat.completion"),
            "choices": [
                {
                    "index": index,
                    "message": gathered.message(),
                    "logprobs": gathered.logprobs_json(),
                    "finish_reason": finish_reason,
                }
                for index, (gathered, finish_reason) in enumerate(choices)
            ],
            "usage": usage_json(receipts),
            **receipts_field(receipts),
        }
    )


def usage_json(receipts: Receipts) -> dict[str, Any]:
    """Returns the receipts' tokens under OpenAI's names, summed; details are inside their sums.

    Several choices each ran with the prompt, so it counts as often.
    """
    given = made = cached = reasoned = 0
    for receipt, _ in receipts:
        given += receipt.input_tokens
        made += receipt.output_tokens
        cached += receipt.cached_input_tokens
        if receipt.usage_json is not None:
            reasoned += dict(read_meters(receipt.usage_json)).get(REASONING, 0)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoned},
    }


def run_headers(runs: Sequence[Run]) -> tuple[Header, ...]:
    """Returns the headers that say how the answer came about (FBK-2, DLV-7).

    Of several choices the route is the first one's; one that is degraded or simulated makes all so.
    """
    degraded_from, simulated = None, False
    for run in runs:
        degraded_from = degraded_from or run.degraded_from
        simulated = simulated or run.simulated
    headers = [
        (b"x-weighbridge-route", _header_value(runs[0].route_id)),
        (b"x-weighbridge-degraded", b"true" if degraded_from else b"false"),
        (b"x-weighbridge-simulated", b"true" if simulated else b"false"),
    ]
    if degraded_from:
        headers.append((b"x-weighbridge-degraded-from", _header_value(degraded_from)))
    return tuple(headers)


def receipts_field(receipts: Receipts) -> dict[str, Any]:
    """Returns `receipt` of a single choice, `receipts` of several."""
    if len(receipts) == 1:
        return {"receipt": receipts[0][1]}
    return {"receipts": [as_json for _, as_json in receipts]}


@lru_cache(maxsize=256)  # routes' names
def _header_value(text: str) -> bytes:
    return "".join(c if " " <= c <= "~" else "?" for c in text).encode("ascii")


def answer_head(run: Run, kind: str) -> dict[str, Any]:
    """Returns what is the same in every part of an answer."""
    return {
        "id": completion_id(run.request_id),
        "object": kind,
        "created": run.created_us // 1_000_000,
        "model": run.logical_model,
        "system_fingerprint": run.fingerprint[:SYSTEM_FINGERPRINT_LIMIT],
    }


def _choice(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
