"""The chat completion request as it comes in: strict about types, tolerant of unknown parameters.

What can't be read becomes a Problem that names the place and never quotes the content (SEC-3). A
number that can be read and makes no sense as a budget (0, -1, 10^12) is left to admission, which
refuses it with a receipt.
"""

import re
from typing import Annotated, Any

import msgspec
import orjson

from gateway.api.budget import TOKENS_LIMIT
from gateway.api.problems import Problem, invalid
from gateway.schemas import BadSchema, accepted_schema
from gateway.submission import Message

MESSAGES_LIMIT = 2_048
TOOLS_LIMIT = 128
METADATA_LIMIT = 64
STOP_LIMIT = 4
TEMPERATURE_LIMIT = 2
ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_EXPECTED = re.compile(r"^Expected `[^`]*`(?:, got `[^`]*`| (?:<=|>=) -?[0-9]+)")
_MISSING = re.compile(r"missing required field `([a-z_]+)`")

_Count = Annotated[int, msgspec.Meta(ge=-TOKENS_LIMIT, le=TOKENS_LIMIT)]
_Temperature = Annotated[float, msgspec.Meta(ge=0, le=TEMPERATURE_LIMIT)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    type: str
    function: _Function | None = None


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct):
    id: str
    function: _CalledFunction
    type: str = "function"


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _JsonSchema(msgspec.Struct):
    schema: dict[str, Any] | None = None


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _JsonSchema | None = None


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    n: _Count | None = None
    tools: list[Any] | None = None
    response_format: _ResponseFormat | None = None
    temperature: _Temperature | None = None
    top_p: _Share | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    seed: _Seed | None = None
    ignore_eos: bool | None = None
    metadata: dict[str, str | _Count] | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion request that could be read."""

    model: str
    messages: tuple[Message, ...]
    stream: bool
    include_usage: bool
    max_output_tokens: int | None
    tools_json: str | None
    schema: dict[str, Any] | None
    wants_json: bool
    seed: int | None
    ignore_eos: bool
    metadata: dict[str, str | int]


_decoder = msgspec.json.Decoder(_Body)


def read_chat_request(body: bytes) -> ChatRequest | Problem:
    """Returns the request, or what is wrong with it and where."""
    decoded = _decoded(body)
    if isinstance(decoded, Problem):
        return decoded
    problem = _unsupported(decoded)
    if problem is not None:
        return problem
    messages = _messages(decoded.messages)
    if isinstance(messages, Problem):
        return messages
    tools_json = _tools_json(decoded.tools)
    if isinstance(tools_json, Problem):
        return tools_json
    schema = _schema(decoded.response_format)
    if isinstance(schema, Problem):
        return schema
    cap = decoded.max_tokens if decoded.max_tokens is not None else decoded.max_completion_tokens
    return ChatRequest(
        model=decoded.model,
        messages=messages,
        stream=bool(decoded.stream),
        include_usage=bool(decoded.stream_options and decoded.stream_options.include_usage),
        max_output_tokens=cap,
        tools_json=tools_json,
        schema=schema,
        wants_json=schema is not None,
        seed=decoded.seed,
        ignore_eos=bool(decoded.ignore_eos),
        metadata=decoded.metadata or {},
    )


def _decoded(body: bytes) -> _Body | Problem:
    if not body:
        return invalid("The body is empty; it must be a JSON object.")
    try:
        body.decode()  # the parser doesn't look into what it skips
    except UnicodeDecodeError as error:
        return invalid(f"The body isn't UTF-8 (byte {error.start}).")
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        return _misfit(str(error))
    except msgspec.DecodeError:
        return invalid(
            "The body isn't JSON that can be read: check its syntax, and that each \\u escape of a "
            "surrogate has its other half."
        )
    except RecursionError:
        return invalid("The body is nested too deeply.")


def _misfit(text: str) -> Problem:
    """Returns a parser's type error as a Problem: its place and types, not its values."""
    found = _PLACE.search(text)
    place = found.group(1) if found else None
    missing = _MISSING.search(text)
    if missing:
        param = f"{place}.{missing.group(1)}" if place else missing.group(1)
        return invalid(f"{param} is missing.", param)
    expected = _EXPECTED.match(text)
    what = expected.group(0) if expected else "A value can't be used"
    return invalid(f"{what} at {place or 'the top of the body'}.", place)


def _unsupported(body: _Body) -> Problem | None:
    if body.n not in (None, 1):
        return invalid("n must be 1: one answer is given to a request.", "n")
    if body.logprobs:
        return invalid("logprobs aren't available: leave them out.", "logprobs")
    if isinstance(body.stop, list) and not 0 < len(body.stop) <= STOP_LIMIT:
        return invalid(f"stop must be a string or 1 to {STOP_LIMIT} strings.", "stop")
    caps = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(caps) > 1:
        return invalid(
            "max_tokens and max_completion_tokens differ: send one of them.",
            "max_completion_tokens",
        )
    if not body.messages:
        return invalid("messages must hold at least one message.", "messages")
    if len(body.messages) > MESSAGES_LIMIT:
        return invalid(f"messages may hold at most {MESSAGES_LIMIT} messages.", "messages")
    if body.metadata and len(body.metadata) > METADATA_LIMIT:
        return invalid(f"metadata may hold at most {METADATA_LIMIT} entries.", "metadata")
    return None


def _messages(given: list[_Message]) -> tuple[Message, ...] | Problem:
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


def _content(message: _Message, place: str) -> str | Problem:
    """Returns the message's text: its string, or its text parts one after the other."""
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role == "assistant" and message.tool_calls:
            return ""
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


def _tools_json(tools: list[Any] | None) -> str | Problem | None:
    """Returns the tool definitions as compact JSON, as they are counted and passed on."""
    if not tools:
        return None
    if len(tools) > TOOLS_LIMIT:
        return invalid(f"tools may hold at most {TOOLS_LIMIT} definitions.", "tools")
    try:
        definitions = msgspec.convert(tools, list[_Tool])
    except msgspec.ValidationError as error:
        problem = _misfit(str(error))
        return invalid(problem.message.replace(" at ", " at tools", 1), "tools")
    for position, definition in enumerate(definitions):
        place = f"tools[{position}]"
        if definition.type != "function" or definition.function is None:
            return invalid(f"{place} must be of type function, with a function.", place)
        if not _FUNCTION_NAME.fullmatch(definition.function.name):
            return invalid(
                f"{place}.function.name must have 1 to 64 letters, digits, _ and -.", place
            )
    try:
        tools_json = orjson.dumps(tools).decode()
    except TypeError:  # an integer beyond 64 bits
        return invalid("tools hold a number that is too large.", "tools")
    if "\\u0000" in tools_json:
        return invalid("tools hold a NUL character, which no model takes.", "tools")
    return tools_json


def _schema(given: _ResponseFormat | None) -> dict[str, Any] | Problem | None:
    """Returns the JSON schema that the answer has to fulfil; None where none is asked for."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return {"type": "object"}
    place = "response_format.json_schema.schema"
    if given.type != "json_schema":
        return invalid(
            "response_format.type must be text, json_object or json_schema.", "response_format"
        )
    if given.json_schema is None or given.json_schema.schema is None:
        return invalid(f"{place} is missing.", place)
    try:
        return accepted_schema(given.json_schema.schema)
    except BadSchema as bad:
        return invalid(f"{place} can't be used: {bad}.", place)
    except (RecursionError, TypeError):  # orjson's for what it can't write
        return invalid(f"{place} can't be used: it is nested too deep or holds no JSON.", place)
