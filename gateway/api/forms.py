"""How a call is read and how its answer is written: one format for each endpoint that runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from gateway.api.answers import Chunks, Receipts, completion_body
from gateway.api.choices import Gathered
from gateway.api.ports import Run
from gateway.api.problems import Problem
from gateway.api.wire import ChatRequest, read_chat_request
from gateway.submission import Delta


class ChunkWriter(Protocol):
    """Writes the events of one stream; each call may write several, or none."""

    def role(self, index: int, first: Delta | None = None) -> bytes:
        """Returns what stands before a choice's first piece."""
        ...

    def piece(self, index: int, piece: Delta) -> bytes: ...

    def finish(self, index: int, finish_reason: str) -> bytes:
        """Returns what ends a choice that others still follow."""
        ...

    def last(self, index: int, finish_reason: str, receipts: Receipts) -> bytes:
        """Returns what ends the last choice and the stream with it."""
        ...


class Form(Protocol):
    """One call that could be read: what it wants, and how its answer is written."""

    @property
    def wanted(self) -> ChatRequest: ...

    def writer(self, run: Run, choices: int) -> ChunkWriter: ...

    def whole(self, run: Run, finished: "Finished", receipts: Receipts) -> bytes: ...


Finished = Sequence[tuple[Gathered, str]]
"""Each choice in order, with its finish reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An endpoint's way to be asked. `name` is the endpoint's, in metrics."""

    name: str
    read: Callable[[bytes], Form | Problem]


class ChatForm(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A chat completion."""

    wanted: ChatRequest

    def writer(self, run: Run, choices: int) -> ChunkWriter:
        return Chunks(run, self.wanted.include_usage, choices)

    def whole(self, run: Run, finished: Finished, receipts: Receipts) -> bytes:
        return completion_body(run, finished, receipts)


def _read_chat(body: bytes) -> Form | Problem:
    wanted = read_chat_request(body)
    return wanted if isinstance(wanted, Problem) else ChatForm(wanted=wanted)


CHAT = Format(name="chat_completions", read=_read_chat)
