"""POST /v1/completions: a prompt as one user's message, answered in the older format.

The backends here answer chats, so the prompt goes through the chat template of the model like any
other message. What needs a raw prompt (echo, suffix, best_of, token ids) is refused by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from gateway.api.answers import Receipts, answer_head, receipts_field, usage_json
from gateway.api.chat_messages import WireMessage
from gateway.api.forms import ChunkWriter, Finished, Form, Format
from gateway.api.ports import Run
from gateway.api.problems import Problem, invalid
from gateway.api.sse import DONE, event
from gateway.api.wire import (
    Bias,
    ChatBody,
    ChatRequest,
    Count,
    Penalty,
    Seed,
    Share,
    StreamOptions,
    Temperature,
    chat_request,
    decoded_body,
)
from gateway.submission import Delta


class CompletionBody(msgspec.Struct):
    """The body as it may come: an unknown parameter is left alone."""

    model: str
    prompt: str | list[str]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    n: Count | None = None
    best_of: Count | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    ignore_eos: bool | None = None
    metadata: dict[str, str | Count] | None = None


_decoder = msgspec.json.Decoder(CompletionBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionForm:
    wanted: ChatRequest

    def writer(self, run: Run, choices: int) -> ChunkWriter:
        return TextChunks(run, self.wanted.include_usage)

    def whole(self, run: Run, finished: Finished, receipts: Receipts) -> bytes:
        choices = [
            _choice(index, gathered.text(), reason)
            for index, (gathered, reason) in enumerate(finished)
        ]
        return orjson.dumps(
            {
                **_head(run),
                "choices": choices,
                "usage": usage_json(receipts),
                **receipts_field(receipts),
            }
        )


class TextChunks:
    """Writes a stream's chunks, each with the object `text_completion`."""

    def __init__(self, run: Run, include_usage: bool) -> None:
        self._head = _head(run)
        self._usage: dict[str, Any] = {"usage": None} if include_usage else {}

    def role(self, index: int, first: Delta | None = None) -> bytes:
        return b""

    def piece(self, index: int, piece: Delta) -> bytes:
        return self._event(_choice(index, piece.text, None)) if piece.text else b""

    def finish(self, index: int, finish_reason: str) -> bytes:
        return self._event(_choice(index, "", finish_reason))

    def last(self, index: int, finish_reason: str, receipts: Receipts) -> bytes:
        finish = {**self._head, "choices": [_choice(index, "", finish_reason)], **self._usage}
        if not self._usage:
            return event(orjson.dumps({**finish, **receipts_field(receipts)})) + DONE
        usage = usage_json(receipts)
        end = {**self._head, "choices": [], "usage": usage, **receipts_field(receipts)}
        return event(orjson.dumps(finish)) + event(orjson.dumps(end)) + DONE

    def _event(self, choice: dict[str, Any]) -> bytes:
        return event(orjson.dumps({**self._head, "choices": [choice], **self._usage}))


def read_completion(body: bytes) -> Form | Problem:
    """Returns the call, or what is wrong with it and where."""
    decoded = decoded_body(body, _decoder)
    if isinstance(decoded, Problem):
        return decoded
    problem = _refused(decoded)
    if problem is not None:
        return problem
    prompt = decoded.prompt if isinstance(decoded.prompt, str) else decoded.prompt[0]
    wanted = chat_request(
        ChatBody(
            model=decoded.model,
            messages=[WireMessage(role="user", content=prompt)],
            stream=decoded.stream,
            stream_options=decoded.stream_options,
            max_tokens=decoded.max_tokens,
            n=decoded.n,
            temperature=decoded.temperature,
            top_p=decoded.top_p,
            presence_penalty=decoded.presence_penalty,
            frequency_penalty=decoded.frequency_penalty,
            logit_bias=decoded.logit_bias,
            stop=decoded.stop,
            seed=decoded.seed,
            ignore_eos=decoded.ignore_eos,
            metadata=decoded.metadata,
        )
    )
    if isinstance(wanted, Problem):
        place = wanted.param or ""
        if place.startswith("messages"):  # which this body doesn't have
            return invalid("The prompt holds a character that no model takes.", "prompt")
        return wanted
    return CompletionForm(wanted=wanted)


COMPLETIONS = Format(name="completions", read=read_completion)


def _refused(body: CompletionBody) -> Problem | None:
    if isinstance(body.prompt, list) and len(body.prompt) != 1:
        return invalid("prompt must be one text: send a call for each.", "prompt")
    asked: Sequence[tuple[str, bool]] = (
        ("echo", bool(body.echo)),
        ("suffix", bool(body.suffix)),
        ("best_of", body.best_of is not None and body.best_of != (body.n or 1)),
        ("logprobs", body.logprobs is not None),
    )
    for name, is_asked in asked:
        if is_asked:
            message = f"{name} isn't given here; POST /v1/chat/completions answers chats."
            return invalid(message, name)
    return None


def _head(run: Run) -> dict[str, Any]:
    return {**answer_head(run, "text_completion"), "id": f"cmpl-{run.request_id[4:]}"}


def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
