"""The shapes in which OpenAI-compatible servers answer, read into one (PRV-2, CST-6). Pure.

Known: vLLM, SGLang, llama.cpp, Dynamo, transformers serve and hosted APIs.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec.structs import replace

from gateway.providers.said import (
    NO_INDEX,
    TOOL_CALLS_LIMIT,
    Chunk,
    Done,
    Garbage,
    Said,
    StreamError,
    Texts,
    error_of,
    estimated_tokens,
    provider_id,
    reported_by,
    temporary,
)
from gateway.providers.split_pairs import SplitPairs
from gateway.providers.sse_reader import SseEvent
from gateway.submission import ToolCallPiece
from ledger.usage import Convention, convention_of

DONE = b"[DONE]"
_USAGE_ALONE = b'"choices":[]'  # as most servers write it: no text comes with it
CHAT = convention_of("openai-chat")
NAME_LIMIT_CHARS = 256  # of a called function, and of a call's id
FIRST_LESSON = 3  # a learned chunk costs some; the first one often has a role beside its text
LESSONS_LIMIT = 4  # how many chunks of an answer are tried as the pattern of the others
PROBE = "\ue000 a text that no backend sends, and of more than one token \ue000"


def read_event(event: SseEvent, convention: Convention = CHAT) -> Said:
    """Return what one event says; its usage by a convention. One named `error` is an error."""
    if event.data.strip() == DONE:
        return Done()
    try:
        body = orjson.loads(event.data)
    except orjson.JSONDecodeError:
        return StreamError(temporary=True) if event.name == "error" else Garbage()
    if not isinstance(body, dict):
        return StreamError(temporary=True) if event.name == "error" else Garbage()
    error = error_of(body)
    if error is None and event.name == "error":
        error = body
    if error is not None:
        return StreamError(temporary=temporary(error))
    return read_chunk(body, convention)


class _PlainDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: str | None = None
    content: str | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None


class _PlainChoice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    delta: _PlainDelta
    index: Literal[0] = 0
    finish_reason: str | None = None
    logprobs: None = None
    stop_reason: None = None
    token_ids: None = None
    matched_stop: None = None


class _PlainChunk(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What nearly every chunk is: a text or an end. Whatever has more to it is read in full."""

    choices: Annotated[list[_PlainChoice], msgspec.Meta(min_length=1, max_length=1)]
    id: str | None = None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    usage: None = None
    prompt_token_ids: None = None


_decode_plain = msgspec.json.Decoder(_PlainChunk).decode


class EventReader:
    """Reads the events of one answer, each as `read_event` does.

    A backend's chunks mostly differ in their text alone. What stands around it is learned from one
    of them, and those that come together and begin and end with it are read by their texts, at
    once: a JSON text whose string is replaced by another string says the same but for that string.
    That it is the text's own place is proven with a text of our own before it is relied on.
    """

    def __init__(self, convention: Convention = CHAT) -> None:
        self._convention = convention
        self._before = self._after = self._between = b""
        self._like: Chunk | None = None
        self._texts = 0  # that were read in full
        self._named: tuple[str | None, str | None] = (None, None)  # the last id, and what it names
        self._pairs: SplitPairs | None = None  # once a text ended within a character

    def __call__(self, event: SseEvent) -> Said:
        """Return what one event says."""
        if event.name == "error":
            return read_event(event, self._convention)
        said = self._said(event)
        if type(said) is not Chunk or self._pairs is not None:
            if isinstance(said, Garbage) or (self._pairs is not None and self._pairs.held):
                said = self._mended(event, said)
            if not isinstance(said, Chunk):
                return said
        if self._like is None and said.text:
            self._texts += 1
            if FIRST_LESSON <= self._texts < FIRST_LESSON + LESSONS_LIMIT:
                self._learn(event.data, said)
        return said

    def _said(self, event: SseEvent) -> Said:
        if event.data == DONE:
            return Done()
        if _USAGE_ALONE in event.data:
            return read_event(event, self._convention)
        try:
            return self._plain(_decode_plain(event.data))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return read_event(event, self._convention)

    def _mended(self, event: SseEvent, said: Said) -> Said:
        """Return what an event says whose text is cut, or begins, within a character."""
        if not isinstance(said, Garbage) and not (isinstance(said, Chunk) and said.text):
            return said  # the other half may still come
        if self._pairs is None:
            self._pairs = SplitPairs()
        data = self._pairs.mended(event.data)
        if data is None:
            return Garbage()
        return self._said(SseEvent(name=event.name, data=data))

    def texts(self, data: bytes) -> Texts | None:
        """Return the texts of the learned chunks that whole events begin with; None: none is one.

        `data` begins between two events. The last event may be cut anywhere.
        """
        before, after, like = self._before, self._after, self._like
        if like is None or not data.startswith(before) or (self._pairs and self._pairs.held):
            return None
        if (alone := self._one_text(data, like)) is not None:
            return alone
        encoded = data[len(before) :].split(self._between)
        last, found, rest = encoded.pop().partition(after)
        if found:
            encoded.append(last)
            size_bytes = len(data) - len(rest)
        else:  # it is cut, or another kind of event that begins in the same way
            size_bytes = len(data) - len(last) - len(before)
        try:
            # No string holds a line's end, so each separator stands between two values: as many
            # values as parts are one for each, and no part lends another its quotes.
            texts = orjson.loads(joined := b"[\n  " + b",\n  ".join(encoded) + b"\n]")
            text = "".join(texts)
        except (orjson.JSONDecodeError, TypeError):  # no JSON, or another value than a string
            return None
        if not texts or len(texts) != len(encoded) or not all(texts):
            return None
        if (
            orjson.dumps(texts, option=orjson.OPT_INDENT_2) != joined
        ):  # escaped in another way than ours
            if not all(map(_is_literal, encoded)):
                return None
            encoded = list(map(orjson.dumps, texts))
        return Texts(
            like=like,
            text=text,
            count=len(texts),
            encoded=tuple(encoded),
            size_bytes=size_bytes,
        )

    def _one_text(self, data: bytes, like: Chunk) -> Texts | None:
        """Return the text of a learned chunk that came alone, as those of a paced stream do.

        What is written as we would write it is one string, and no string holds a line's end.
        """
        before, after = len(self._before), len(self._after)
        if len(data) < before + after or not data.endswith(self._after):
            return None
        encoded = data[before:-after]
        try:
            text = orjson.loads(encoded)
        except orjson.JSONDecodeError:
            return None
        if not text or not isinstance(text, str) or orjson.dumps(text) != encoded:
            return None
        return Texts(like=like, text=text, count=1, encoded=(encoded,), size_bytes=len(data))

    def _plain(self, chunk: _PlainChunk) -> Chunk:
        choice = chunk.choices[0]
        text = choice.delta.content or ""
        if chunk.id != self._named[0]:
            self._named = (chunk.id, provider_id(chunk.id))
        return Chunk(
            provider_id=self._named[1],
            text=text,
            deltas=1 if text else 0,
            finish_reason=choice.finish_reason or None,
            choices=1,
        )

    def _learn(self, data: bytes, said: Chunk) -> None:
        before, found, after = data.partition(orjson.dumps(said.text))
        plain = said.deltas == 1 and not (said.reported or said.finish_reason or said.tool_calls)
        if not found or not plain or said.logprobs_json is not None:
            return
        probed = SseEvent(name="message", data=before + orjson.dumps(PROBE) + after)
        if self._said(probed) == replace(said, text=PROBE):
            self._before, self._after, self._like = b"data: " + before, after + b"\n\n", said
            self._between = self._after + self._before


def _is_literal(part: bytes) -> bool:
    """Whether a part of a list of JSON values can be one string as a whole."""
    return len(part) > 1 and part[:1] == part[-1:] == b'"'


def read_chunk(body: dict[str, Any], convention: Convention = CHAT) -> Chunk | Garbage:
    """Return what a chunk, or a whole chat completion, says. Only the first choice is ours."""
    choices = [choice for choice in _list(body.get("choices")) if isinstance(choice, dict)]
    if not choices:  # of the usage alone
        return Chunk(
            provider_id=provider_id(body.get("id")), reported=reported_by(convention, body)
        )
    choice = next((choice for choice in choices if choice.get("index", 0) == 0), {})
    whole = "delta" not in choice and isinstance(choice.get("message"), dict)
    part = choice.get("message" if whole else "delta")
    part = part if isinstance(part, dict) else {}
    text, thought = _content(part.get("content"))
    called = part.get("tool_calls")
    pieces = _tool_calls(_list(called))
    if pieces is None:
        return Garbage()
    # Reasoning and tool calls are output that was generated, and not part of the text.
    unseen = thought or bool(called or part.get("reasoning_content") or part.get("reasoning"))
    finish = choice.get("finish_reason")
    return Chunk(
        provider_id=provider_id(body.get("id")),
        text=text,
        deltas=_whole_tokens(text, pieces) if whole else int(bool(text) or unseen),
        finish_reason=finish if isinstance(finish, str) and finish else None,
        reported=reported_by(convention, body),
        choices=len(choices),
        tool_calls=pieces,
        logprobs_json=_logprobs(choice.get("logprobs")),
    )


def _content(content: object) -> tuple[str, bool]:
    """Return a content's text, and whether there is more to it: Mistral's is a list of parts."""
    if isinstance(content, str):
        return content, False
    parts = [part for part in _list(content) if isinstance(part, dict)]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str)), len(texts) < len(parts)


def _tool_calls(given: Sequence[Any]) -> tuple[ToolCallPiece, ...] | None:
    """Return the pieces of tool calls; None where they can't be any.

    One without an index has NO_INDEX: its call is known by its id and its place. Arguments that
    come as an object, as Ollama sends them, are written as the JSON text that they stand for.
    """
    pieces = []
    for call in given:
        if not isinstance(call, dict):
            return None
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        index = call.get("index")
        arguments = function.get("arguments") or ""
        if isinstance(arguments, dict):
            arguments = orjson.dumps(arguments).decode()
        if index is None:
            index = NO_INDEX
        elif type(index) is not int or not 0 <= index < TOOL_CALLS_LIMIT:
            return None
        if not isinstance(arguments, str):
            return None
        pieces.append(
            ToolCallPiece(
                index=index,
                call_id=_named(call.get("id")),
                name=_named(function.get("name")),
                arguments=arguments,
            )
        )
    return tuple(pieces)


def _named(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= NAME_LIMIT_CHARS else None


def _logprobs(given: object) -> str | None:
    return (
        orjson.dumps(given).decode() if isinstance(given, dict) and given.get("content") else None
    )


def _whole_tokens(text: str, calls: Sequence[ToolCallPiece]) -> int:
    return sum(map(estimated_tokens, (text, *(call.arguments for call in calls))))


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
