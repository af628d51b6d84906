"""The body of POST /v1/responses, read into the chat that it stands for.

Nothing said is kept from one response to the next (SEC-1), so what would refer to an earlier one
(previous_response_id, conversation), or to a prompt kept elsewhere, is refused by name: the whole
input is sent each time.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.api.chat_messages import CalledFunction, Part, ToolCall, WireMessage
from gateway.api.chat_tools import JsonSchema, NamedFunction, NamedTool, ResponseFormat
from gateway.api.problems import Problem, invalid
from gateway.api.wire import (
    ChatBody,
    ChatRequest,
    Count,
    Share,
    Temperature,
    chat_request,
    decoded_body,
)

TEXT_PARTS = ("input_text", "output_text", "text")


class InputPart(msgspec.Struct):
    type: str
    text: str | None = None


class InputItem(msgspec.Struct):
    """A message, a function_call, a function_call_output, or a reasoning item (left out)."""

    type: str | None = None
    role: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None


class TextFormat(msgspec.Struct):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextOptions(msgspec.Struct):
    format: TextFormat | None = None


class Reasoning(msgspec.Struct):
    effort: str | None = None


class FunctionTool(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedChoice(msgspec.Struct):
    type: str
    name: str | None = None


class ResponsesBody(msgspec.Struct):
    """The body as it may come: an unknown parameter is left alone."""

    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    max_output_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: str | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, str | Count] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None  # a template that OpenAI keeps
    top_logprobs: Count | None = None
    ignore_eos: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that could be read: the chat, how it is kept, and what its answers repeat."""

    wanted: ChatRequest
    store: bool
    background: bool
    repeated: dict[str, Any] = field(repr=False)


_decoder = msgspec.json.Decoder(ResponsesBody)


def read_responses_body(body: bytes) -> Asked | Problem:
    """Returns the call, or what is wrong with it and where."""
    decoded = decoded_body(body, _decoder)
    if isinstance(decoded, Problem):
        return decoded
    problem = _refused(decoded)
    if problem is not None:
        return problem
    messages = _messages(decoded)
    if isinstance(messages, Problem):
        return messages
    wanted = chat_request(
        ChatBody(
            model=decoded.model,
            messages=messages,
            stream=decoded.stream,
            max_completion_tokens=decoded.max_output_tokens,
            tools=[_chat_tool(tool) for tool in decoded.tools] if decoded.tools else None,
            tool_choice=_chat_choice(decoded.tool_choice),
            parallel_tool_calls=decoded.parallel_tool_calls,
            response_format=_response_format(decoded.text),
            temperature=decoded.temperature,
            top_p=decoded.top_p,
            reasoning_effort=decoded.reasoning.effort if decoded.reasoning else None,
            ignore_eos=decoded.ignore_eos,
            metadata=decoded.metadata,
        )
    )
    if isinstance(wanted, Problem):
        return Problem(
            code=wanted.code, message=_renamed(wanted.message), param=_renamed(wanted.param or "")
        )
    return Asked(
        wanted=wanted,
        store=decoded.store is not False,
        background=bool(decoded.background),
        repeated=_repeated(decoded),
    )


def _refused(body: ResponsesBody) -> Problem | None:
    for name in ("previous_response_id", "conversation", "prompt"):
        if getattr(body, name) is not None:
            return invalid(f"{name} isn't taken: nothing is kept. Send the whole input.", name)
    if body.top_logprobs:
        message = "top_logprobs isn't given here; POST /v1/chat/completions has logprobs."
        return invalid(message, "top_logprobs")
    if body.background and body.store is False:
        return invalid("background needs store: its answer is asked for later.", "background")
    for position, tool in enumerate(body.tools or ()):
        if tool.type != "function" or tool.name is None:
            place = f"tools[{position}]"
            return invalid(f"{place} must be of type function, with a name.", place)
    return None


def _messages(body: ResponsesBody) -> list[WireMessage] | Problem:
    messages = []
    if body.instructions:
        messages.append(WireMessage(role="system", content=body.instructions))
    if isinstance(body.input, str):
        return [*messages, WireMessage(role="user", content=body.input)]
    calls: list[ToolCall] = []
    for position, item in enumerate(body.input):
        place = f"input[{position}]"
        kind = item.type or "message"
        if kind == "function_call":
            if item.call_id is None or item.name is None or item.arguments is None:
                return invalid(f"{place} needs call_id, name and arguments.", place)
            function = CalledFunction(name=item.name, arguments=item.arguments)
            calls.append(ToolCall(id=item.call_id, function=function))
            if len(calls) == 1:  # further ones in a row are of the same message
                messages.append(WireMessage(role="assistant", tool_calls=calls))
            continue
        if kind == "reasoning":
            continue
        calls = []
        message = _message(kind, item, place)
        if isinstance(message, Problem):
            return message
        messages.append(message)
    return messages


def _message(kind: str, item: InputItem, place: str) -> WireMessage | Problem:
    if kind == "function_call_output":
        output = _content(item.output, f"{place}.output")
        if isinstance(output, Problem):
            return output
        return WireMessage(role="tool", content=output, tool_call_id=item.call_id)
    if kind != "message" or item.role is None:
        return invalid(f"{place} must be a message with a role, or a function's call.", place)
    content = _content(item.content, f"{place}.content")
    if isinstance(content, Problem):
        return content
    return WireMessage(role=item.role, content=content)


def _content(given: str | list[InputPart] | None, place: str) -> str | list[Part] | Problem:
    if given is None:
        return invalid(f"{place} is missing.", place)
    if isinstance(given, str):
        return given
    parts = []
    for position, part in enumerate(given):
        if part.type not in TEXT_PARTS or part.text is None:
            part_place = f"{place}[{position}]"
            return invalid(f"{part_place} must be a text: no other part is taken.", part_place)
        parts.append(Part(type="text", text=part.text))
    return parts


def _chat_tool(tool: FunctionTool) -> dict[str, Any]:
    fields = ("name", "description", "parameters", "strict")
    values = {name: getattr(tool, name) for name in fields}
    function = {name: value for name, value in values.items() if value is not None}
    return {"type": "function", "function": function}


def _chat_choice(choice: str | NamedChoice | None) -> str | NamedTool | None:
    if isinstance(choice, NamedChoice):
        return NamedTool(type=choice.type, function=NamedFunction(name=choice.name or ""))
    return choice


def _response_format(text: TextOptions | None) -> ResponseFormat | None:
    if text is None or text.format is None:
        return None
    form = text.format
    schema = JsonSchema(schema=form.schema, name=form.name, strict=form.strict)
    return ResponseFormat(type=form.type, json_schema=schema)


def _renamed(text: str) -> str:
    """Returns a sentence or place of a chat in the names of this body."""
    for chats, ours in (
        ("messages", "input"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("response_format", "text.format"),
        ("max_completion_tokens", "max_output_tokens"),
    ):
        text = text.replace(chats, ours)
    return text


def _repeated(body: ResponsesBody) -> dict[str, Any]:
    """Returns what a response says again of its request, as OpenAI's does."""
    plain = msgspec.to_builtins(body)
    metadata = {name: str(value) for name, value in (body.metadata or {}).items()}
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": metadata,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None},
        "store": body.store is not False,
        "background": bool(body.background),
        "temperature": body.temperature,
        "text": {"format": _text_format(body.text)},
        "tool_choice": plain["tool_choice"] or "auto",
        "tools": plain["tools"] or [],
        "top_p": body.top_p,
        "truncation": "disabled",
    }


def _text_format(text: TextOptions | None) -> dict[str, Any]:
    if text is None or text.format is None:
        return {"type": "text"}
    form = msgspec.to_builtins(text.format)
    return {name: value for name, value in form.items() if value is not None}
