"""The answers of one call: one as a rule, n where n were asked for, each a request of its own.

Providers count several choices of one call wrongly, so each choice is run, counted and priced by
itself; here they become one answer again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec
import orjson

from gateway.submission import Delta, Ended, ToolCallPiece

Batch = Sequence[Delta | Ended]
"""Pieces of one choice that are there at once, never none; Ended is the last of all."""
Pieces = tuple[int, Batch]


class Gathered(msgspec.Struct, kw_only=True):
    """One choice of an answer that isn't streamed, added up from its pieces."""

    texts: list[str] = []  # msgspec makes a new one for each
    calls: dict[int, list[ToolCallPiece]] = {}
    logprobs: list[Any] = []
    ended: Ended | None = None

    def __repr__(self) -> str:
        return f"Gathered(ended={self.ended!r})"  # no text of an answer (SEC-1)

    def take_all(self, pieces: Sequence[Delta | Ended]) -> Ended | None:
        """Add the next pieces; returns the end, where it is among them."""
        for piece in pieces:
            if isinstance(piece, Ended):
                self.ended = piece
                continue
            self.texts.append(piece.text)
            if piece.tool_calls:
                for call in piece.tool_calls:
                    self.calls.setdefault(call.index, []).append(call)
            if piece.logprobs_json is not None:
                self.logprobs += orjson.loads(piece.logprobs_json).get("content") or []
        return self.ended

    def take(self, piece: Delta | Ended) -> None:
        self.take_all((piece,))

    def text(self) -> str:
        return "".join(self.texts)

    def message(self) -> dict[str, Any]:
        """Returns the message; one that only calls tools has no content."""
        text = "".join(self.texts)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self.calls:
            message["content"] = text or None
            message["tool_calls"] = [_whole_call(self.calls[index]) for index in sorted(self.calls)]
        return message

    def logprobs_json(self) -> dict[str, Any] | None:
        return {"content": self.logprobs, "refusal": None} if self.logprobs else None


def call_delta(piece: ToolCallPiece) -> dict[str, Any]:
    """Returns a piece of a tool call as a stream's delta has it."""
    function: dict[str, Any] = {"arguments": piece.arguments}
    delta: dict[str, Any] = {"index": piece.index}
    if piece.call_id is not None:
        delta |= {"id": piece.call_id, "type": "function"}
    if piece.name is not None:
        function["name"] = piece.name
    return {**delta, "function": function}


def _whole_call(pieces: Sequence[ToolCallPiece]) -> dict[str, Any]:
    first = pieces[0]
    return {
        "id": first.call_id,
        "type": "function",
        "function": {
            "name": next((piece.name for piece in pieces if piece.name is not None), ""),
            "arguments": "".join(piece.arguments for piece in pieces),
        },
    }


def merged(deliveries: Sequence[AsyncGenerator[Pieces, None]]) -> AsyncGenerator[Pieces, None]:
    """Yield the pieces of all choices as they arrive; delivery n tells each batch with n.

    A choice is asked for its next pieces only once its last ones were taken. Of pieces that are
    there at the same time the lower index comes first. Raises what a delivery raises.
    """
    return deliveries[0] if len(deliveries) == 1 else _merged(deliveries)


async def _merged(
    deliveries: Sequence[AsyncGenerator[Pieces, None]],
) -> AsyncGenerator[Pieces, None]:
    waiting = {asyncio.ensure_future(_next(each)): i for i, each in enumerate(deliveries)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                index = waiting.pop(task)
                pieces = task.result()
                yield pieces
                if isinstance(pieces[1][-1], Delta):
                    waiting[asyncio.ensure_future(_next(deliveries[index]))] = index
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _next(delivery: AsyncIterator[Pieces]) -> Pieces:
    return await anext(delivery)
