"""The messages of a chat as they come in, read into ours; content is never quoted back (SEC-3)."""

import msgspec

from gateway.api.problems import Problem, invalid
from gateway.submission import Message

MESSAGES_LIMIT = 2_048
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class Part(msgspec.Struct):
    type: str
    text: str | None = None


class CalledFunction(msgspec.Struct):
    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    id: str
    function: CalledFunction
    type: str = "function"


class WireMessage(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None  # what an assistant said instead of an answer


def read_messages(given: list[WireMessage]) -> tuple[Message, ...] | Problem:
    """Returns the messages, or the first problem with one of them and its place."""
    if not given:
        return invalid("messages must hold at least one message.", "messages")
    if len(given) > MESSAGES_LIMIT:
        return invalid(f"messages may hold at most {MESSAGES_LIMIT} messages.", "messages")
    messages = []
    for position, message in enumerate(given):
        place = f"messages[{position}]"
        if message.role not in ROLES:
            return invalid(f"{place}.role must be one of {', '.join(ROLES)}.", f"{place}.role")
        content = _content(message, place)
        if isinstance(content, Problem):
            return content
        calls_json = None
        if message.tool_calls:
            if message.role != "assistant":
                return invalid(f"{place}.tool_calls belong to an assistant's message.", place)
            calls_json = msgspec.json.encode(message.tool_calls).decode()
        if "\x00" in content or "\\u0000" in (calls_json or ""):
            return invalid(f"{place} holds a NUL character, which no model takes.", place)
        messages.append(
            Message(
                role=message.role,
                content=content,
                tool_calls_json=calls_json,
                tool_call_id=message.tool_call_id,
            )
        )
    return tuple(messages)


def _content(message: WireMessage, place: str) -> str | Problem:
    """Returns the message's text: its string, or its text parts one after the other."""
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role == "assistant" and (message.tool_calls or message.refusal is not None):
            return message.refusal or ""
        return invalid(f"{place}.content is missing.", f"{place}.content")
    texts = []
    for position, part in enumerate(content):
        part_place = f"{place}.content[{position}]"
        if part.type != "text":
            return invalid(f"{part_place}.type must be text: no other part is taken.", part_place)
        if part.text is None:
            return invalid(f"{part_place}.text is missing.", part_place)
        texts.append(part.text)
    return "".join(texts)
