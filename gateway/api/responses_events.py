"""Answers in the Responses format: the whole object, and the events of its stream.

A response is one message, or the function calls of one; `sequence_number` counts the events. The
last event carries the receipt, which is durable by then (LED-1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.api.answers import Receipts, answer_head, receipts_field, usage_json
from gateway.api.choices import Gathered
from gateway.api.forms import ChunkWriter, Finished
from gateway.api.ports import Run
from gateway.api.responses_body import Asked
from gateway.api.wire import ChatRequest
from gateway.ids import response_id
from gateway.submission import Delta, ToolCallPiece

Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesForm:
    asked: Asked

    @property
    def wanted(self) -> ChatRequest:
        return self.asked.wanted

    def kept_chars(self) -> int:
        """Returns how many characters it holds that its run doesn't: what answers repeat."""
        return len(orjson.dumps({**self.asked.repeated, "instructions": None}))

    def writer(self, run: Run, choices: int) -> ChunkWriter:
        return ResponseEvents(self, run)

    def whole(self, run: Run, finished: Finished, receipts: Receipts) -> bytes:
        gathered, finish_reason = finished[0]
        output = output_items(run, gathered, status_of(finish_reason))
        return orjson.dumps(self.ended(run, output, finish_reason, receipts))

    def ended(
        self, run: Run, output: Sequence[Item], finish_reason: str, receipts: Receipts
    ) -> dict[str, Any]:
        """Returns a response that has its answer: completed, or cut off by the output cap."""
        status = status_of(finish_reason)
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self.begun(run, status, output),
            "incomplete_details": reason,
            "usage": _usage(receipts),
            **receipts_field(receipts),
        }

    def begun(self, run: Run, status: str, output: Sequence[Item] = ()) -> dict[str, Any]:
        """Returns a response without an end, in any status."""
        head = answer_head(run, "response")
        return {
            "id": response_id(run.request_id),
            "object": "response",
            "created_at": head["created"],
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": head["model"],
            "output": list(output),
            "usage": None,
            **self.asked.repeated,
        }


def status_of(finish_reason: str) -> str:
    return "incomplete" if finish_reason == "length" else "completed"


def output_items(run: Run, gathered: Gathered, status: str) -> list[Item]:
    """Returns the output: the message where there is text or no call, then the calls."""
    message: Mapping[str, Any] = gathered.message()
    calls = message.get("tool_calls") or []
    items = []
    if gathered.text() or not calls:
        items.append(_message(run, gathered.text(), status))
    for index, call in enumerate(calls):
        function = call["function"]
        items.append(_call(run, index, call["id"], function["name"], function["arguments"], status))
    return items


class ResponseEvents:
    """Writes the events of one stream."""

    def __init__(self, form: ResponsesForm, run: Run) -> None:
        self._form, self._run = form, run
        self._count = 0
        self._gathered = Gathered()
        self._text_at: int | None = None  # the message's place in the output
        self._calls_at: dict[int, int] = {}  # each call's
        self._places = 0

    def role(self, index: int, first: Delta | None = None) -> bytes:
        begun = self._form.begun(self._run, "in_progress")
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def piece(self, index: int, piece: Delta) -> bytes:
        self._gathered.take(piece)
        written = b""
        if piece.text:
            if self._text_at is None:
                written += self._text_begins()
            written += self._event(
                "response.output_text.delta", **self._text_place(), delta=piece.text, logprobs=[]
            )
        return written + b"".join(self._call(call) for call in piece.tool_calls)

    def finish(self, index: int, finish_reason: str) -> bytes:
        return b""

    def last(self, index: int, finish_reason: str, receipts: Receipts) -> bytes:
        written = b""
        if self._text_at is None and not self._calls_at:
            written += self._text_begins()
        status = status_of(finish_reason)
        items = output_items(self._run, self._gathered, status)
        places = [self._text_at] if self._text_at is not None else []
        places += [self._calls_at[index] for index in sorted(self._calls_at)]
        placed = sorted(zip(places, items, strict=True), key=lambda pair: pair[0])
        for place, item in placed:
            written += self._item_ends(place, item)
        ended = self._form.ended(self._run, [item for _, item in placed], finish_reason, receipts)
        return written + self._event(f"response.{status}", response=ended)

    def _text_begins(self) -> bytes:
        self._text_at, self._places = self._places, self._places + 1
        item = {**_message(self._run, "", "in_progress"), "content": []}
        return self._event(
            "response.output_item.added", output_index=self._text_at, item=item
        ) + self._event("response.content_part.added", **self._text_place(), part=_text(""))

    def _call(self, piece: ToolCallPiece) -> bytes:
        written = b""
        if piece.index not in self._calls_at:
            self._calls_at[piece.index], self._places = self._places, self._places + 1
            item = _call(self._run, piece.index, piece.call_id, piece.name or "", "", "in_progress")
            written = self._event(
                "response.output_item.added", output_index=self._calls_at[piece.index], item=item
            )
        if not piece.arguments:
            return written
        return written + self._event(
            "response.function_call_arguments.delta",
            item_id=_call_id(self._run, piece.index),
            output_index=self._calls_at[piece.index],
            delta=piece.arguments,
        )

    def _item_ends(self, place: int, item: Item) -> bytes:
        if item["type"] == "message":
            at, part = self._text_place(), item["content"][0]
            ends = self._event(
                "response.output_text.done", **at, text=part["text"], logprobs=[]
            ) + self._event("response.content_part.done", **at, part=part)
        else:
            ends = self._event(
                "response.function_call_arguments.done",
                item_id=item["id"], output_index=place,
                name=item["name"], arguments=item["arguments"],
            )  # fmt: skip
        return ends + self._event("response.output_item.done", output_index=place, item=item)

    def _text_place(self) -> dict[str, Any]:
        item_id = _message_id(self._run)
        return {"item_id": item_id, "output_index": self._text_at, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._count, **fields})
        self._count += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _usage(receipts: Receipts) -> dict[str, Any]:
    tokens = usage_json(receipts)
    cached = tokens["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": tokens["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": tokens["completion_tokens"],
        "output_tokens_details": tokens["completion_tokens_details"],
        "total_tokens": tokens["total_tokens"],
    }


def _message(run: Run, text: str, status: str) -> Item:
    return {
        "id": _message_id(run),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_text(text)],
    }


def _text(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(
    run: Run, index: int, call_id: str | None, name: str, arguments: str, status: str
) -> Item:
    return {
        "id": _call_id(run, index),
        "type": "function_call",
        "call_id": call_id or _call_id(run, index),
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _message_id(run: Run) -> str:
    return "msg_" + run.request_id.removeprefix("req_")


def _call_id(run: Run, index: int) -> str:
    return f"fc_{run.request_id.removeprefix('req_')}_{index}"
