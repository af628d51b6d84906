"""The shapes in which OpenAI-compatible servers answer, read into one (PRV-2, CST-6). Pure.

Known: vLLM, SGLang, llama.cpp, Dynamo, transformers serve and hosted APIs.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from gateway.providers.said import (
    Chunk,
    Done,
    Garbage,
    Said,
    StreamError,
    error_of,
    estimated_tokens,
    provider_id,
    reported_by,
    temporary,
)
from gateway.providers.sse_reader import SseEvent
from gateway.submission import ToolCallPiece
from ledger.usage import Convention, convention_of

DONE = b"[DONE]"
CHAT = convention_of("openai-chat")
TOOL_CALLS_LIMIT = 128
NAME_LIMIT_CHARS = 256  # of a called function, and of a call's id
FIRST_LESSON = 4  # a learned chunk costs two; the first one often has a role beside its text
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


class EventReader:
    """Reads the events of one answer, each as `read_event` does.

    A backend's chunks mostly differ in their text alone. What stands around it is learned from one
    of them, and the next one that begins and ends with it is read by its text: a JSON text whose
    string is replaced by another string says the same but for that string. That it is the text's
    own place is proven with a text of our own before it is relied on.
    """

    def __init__(self, convention: Convention = CHAT) -> None:
        self._convention = convention
        self._before = self._after = b""
        self._like: Chunk | None = None
        self._texts = 0  # that were read in full

    def __call__(self, event: SseEvent) -> Said:
        """Return what one event says."""
        like, data = self._like, event.data
        if like is not None and event.name != "error":
            before, after = self._before, self._after
            if data.startswith(before) and data.endswith(after):
                text = _string(data[len(before) : len(data) - len(after)])
                if text:
                    return replace(like, text=text)
        said = read_event(event, self._convention)
        if isinstance(said, Chunk) and said.text and event.name != "error":
            self._texts += 1
            if FIRST_LESSON <= self._texts < FIRST_LESSON + LESSONS_LIMIT:
                self._learn(data, said)
        return said

    def _learn(self, data: bytes, said: Chunk) -> None:
        before, found, after = data.partition(orjson.dumps(said.text))
        plain = said.deltas == 1 and not (said.reported or said.finish_reason or said.tool_calls)
        if not found or not plain or said.logprobs_json is not None:
            return
        probed = SseEvent(name="message", data=before + orjson.dumps(PROBE) + after)
        if read_event(probed, self._convention) == replace(said, text=PROBE):
            self._before, self._after, self._like = before, after, said


def _string(literal: bytes) -> str | None:
    """Return the text of one JSON string and nothing else; None where it isn't one."""
    if literal[:1] != b'"':
        return None
    try:
        found = orjson.loads(literal)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, str) and literal.endswith(b'"') else None


def read_chunk(body: dict[str, Any], convention: Convention = CHAT) -> Chunk | Garbage:
    """Return what a chunk, or a whole chat completion, says. Only the first choice is ours."""
    choices = [choice for choice in _list(body.get("choices")) if isinstance(choice, dict)]
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

    A whole message has no indexes: the place counts. Arguments that come as an object, as Ollama
    sends them, are written as the JSON text that they stand for.
    """
    pieces = []
    for place, call in enumerate(given):
        if not isinstance(call, dict):
            return None
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        index = call.get("index", place)
        arguments = function.get("arguments") or ""
        if isinstance(arguments, dict):
            arguments = orjson.dumps(arguments).decode()
        if not isinstance(index, int) or not 0 <= index < TOOL_CALLS_LIMIT:
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
